"""All systems on one dataset: retrieval quality against the costs of training and of scoring."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vse._util.atomic import write_json
from vse._util.schema import read_json
from vse.errors import InputError, unknown_choice
from vse.evaluation.bootstrap import SAMPLES
from vse.evaluation.rerank import RerankedScores, score_pairs_of
from vse.evaluation.retrieval_test import model_scores
from vse.evaluation.scores import DotScores, MeanScores
from vse.experiments.bench_report import BenchResult, Cost, SystemRow
from vse.experiments.grid.compare import (
    Row,
    TestSplit,
    TrainedSeed,
    measure_grid,
    own_scores,
    recipe_of,
    scoring_seconds,
    train_grid,
)
from vse.experiments.grid.report import common_values, rows_of, train_for_test
from vse.experiments.image_table import NO_IMAGE_DROP, NO_TEXT_DROP, RECIPE, VSE_PLUS_PLUS, prepare
from vse.experiments.plan import Call, Grid, Variant
from vse.models.protocols import CandidateScorer
from vse.models.storage import WEIGHTS, load_model, read_weights
from vse.systems.pair_model import PairModel, score_blocks
from vse.training.recipe import flat
from vse.training.recipes import toml_text
from vse.training.result import TrainingResult
from vse.training.run_folder import RESULT, RUN

EQUAL = (*NO_IMAGE_DROP, *NO_TEXT_DROP)
"""No row has augmentation, which alone changes rsum by more than some systems differ; ``--set`` gives all the same."""
SYSTEMS = (
    Variant("UVS", RECIPE, (*VSE_PLUS_PLUS, 'loss.negatives="all"')),
    Variant("VSE++", RECIPE, VSE_PLUS_PLUS),
    Variant("VSE∞", RECIPE, EQUAL),
    Variant("SCO", f"{RECIPE}-sco", EQUAL),
    Variant("GXN", f"{RECIPE}-gxn", EQUAL),
    Variant("LIWE", f"{RECIPE}-liwe", EQUAL),
    Variant("VSRN", f"{RECIPE}-vsrn", EQUAL),
    Variant("CVSE", f"{RECIPE}-cvse", EQUAL),
    Variant("DE", f"{RECIPE}-de", EQUAL),
    Variant("SCAN t2i", f"{RECIPE}-scan-t2i", EQUAL),
    Variant("SCAN i2t", f"{RECIPE}-scan-i2t", EQUAL),
    Variant("IMRAM", f"{RECIPE}-imram", EQUAL),
    Variant("CAAN", f"{RECIPE}-caan", EQUAL),
)
"""Every system that ranks a whole split."""
MEMBERS = ("SCAN t2i", "SCAN i2t")
ENSEMBLE = Variant("SCAN t2i + i2t", f"{RECIPE}-scan", EQUAL)
"""The mean of the scores of :data:`MEMBERS`, which are trained anyway, as SCAN's paper has it."""
FIRST = "VSE∞"
RERANKED = Variant(f"{FIRST} + cross-encoder", f"{RECIPE}-cross-encoder", EQUAL)
"""A cross-encoder that orders the first :data:`DEPTH` candidates of :data:`FIRST`, in both directions."""
DEPTH = 20
SEEDS = (0,)
BEST, BEST_SEEDS = 4, 3
"""How many of the best systems get more seeds, and how many seeds they have then."""
SCORING = "scoring.json"
"""In the folder of a run: the cost of a pair."""
TIMED = 0.5  # processor seconds of scoring that are measured
IMAGES, TEXTS, PAIRS = 128, 512, 256  # whose scores are timed


def run(call: Call) -> BenchResult:
    """Train every system on one dataset, rank its test split, and write quality and costs into ``call.out``.

    Unless seeds or rows are chosen, the best systems by rsum on dev are trained with further seeds. The table also has
    what the folder of runs holds of other rows and seeds with the same settings.

    Raises:
        InputError: a recipe was given, or a row is unknown.
    """
    if call.recipe is not None:
        raise InputError(f"--recipe {call.recipe}: bench trains the recipes {RECIPE}-*: leave it out, or use --row")
    known = [each.label for each in (*SYSTEMS, ENSEMBLE, RERANKED)]
    for label in call.rows:
        if label not in known:
            raise InputError(unknown_choice("row", label, known))
    reranked = not call.rows or RERANKED.label in call.rows
    both = MEMBERS if ENSEMBLE.label in call.rows else ()
    wanted = {*(call.rows or known), *([FIRST] if reranked else []), *both}
    chosen = tuple(each for each in SYSTEMS if each.label in wanted)
    grid = Grid("bench", "All systems", chosen, changes=prepare(call).changes)
    seeds = call.chosen_seeds(SEEDS)
    where, trained = train_for_test(grid, seeds, call)
    train = partial(train_grid, folder=call.runs_folder, jobs=call.jobs, report=call.report)
    if reranked:
        for each in [each for each in trained if each.variant.label == FIRST]:
            trained += train(second_stage(grid, each), [each.seed])
    if not (call.rows or call.seeds or call.quick):
        best = replace(grid, variants=best_systems(trained))
        trained += train(best, further_seeds(seeds))
    trained += measured_before(grid, trained, call.runs_folder)
    return _measure(trained, where, call)


def _measure(trained: Sequence[TrainedSeed], where: TestSplit, call: Call) -> BenchResult:
    """Rank the test split with every model, measure the costs, and write the result."""
    main = where.protocols[0]
    first = {each.seed: each for each in trained if each.variant.label == FIRST}
    trained = sorted(trained, key=lambda each: each.seed)
    plain = [each for each in trained if each.variant != RERANKED]
    second = [each for each in trained if each.variant == RERANKED and each.seed in first]
    rows = []
    measured = measure_grid(plain, where, call.report)[main.name]
    for row in rows_of(Grid("bench", "", tuple(each for each in SYSTEMS if _has(plain, each))), measured):
        runs = [each.trained for each in row.seeds]
        cost = Cost(count_parameters(runs[0].result.model), _mean(runs, where), pair_cost(runs[0], where))
        rows.append(SystemRow(row, cost))
        rows += _ensemble(rows, where, call) if row.variant.label == MEMBERS[-1] else []
    if second:
        (below,) = [each for each in rows if each.label == FIRST]
        place = replace(where, file=f"reranked-{DEPTH}-{where.file}")
        ordered = measure_grid(second, place, call.report, scores=partial(reranked_scores, first))[main.name]
        (row,) = rows_of(Grid("bench", "", (RERANKED,)), ordered)
        runs = [each.trained for each in row.seeds]
        items, texts = where.test.items, where.test.positives.candidates
        asked = min(1.0, DEPTH / texts + DEPTH / items)  # at most: a pair may be asked for in both directions
        cost = Cost(
            below.cost.parameters + count_parameters(runs[0].result.model),
            _mean(runs, place),
            below.cost.pair_seconds + asked * pair_cost(runs[0], where),
            below.training_seconds,
            DEPTH,
        )
        rows.append(SystemRow(row, cost))
    about = where.about(main, SAMPLES)
    result = BenchResult(tuple(rows), about, common_values([each.row for each in rows]), call.out, call.quick)
    result.save()
    return result


def _ensemble(rows: Sequence[SystemRow], where: TestSplit, call: Call) -> list[SystemRow]:
    """Return the row of :data:`ENSEMBLE` over the seeds that both members have; its costs are the sums of theirs."""
    members = [each for each in rows if each.label in MEMBERS]
    by_seed = [{run.trained.seed: run.trained for run in each.row.seeds} for each in members]
    rising = [dict(zip(seeds, each.row.rising, strict=True)) for seeds, each in zip(by_seed, members, strict=True)]
    seeds = [seed for seed in by_seed[0] if all(seed in each for each in by_seed)]
    if len(members) < len(MEMBERS) or not seeds:
        return []
    found, spent = [], []
    for seed in seeds:
        runs = [each[seed] for each in by_seed]
        first, *others = [each.result for each in runs]
        both = replace(
            first,
            best={},  # dev was not ranked with their mean
            steps=sum(each.result.steps for each in runs),
            cpu_seconds=sum(each.result.cpu_seconds for each in runs),
        )
        marks = [str(read_json(each.model / "config.json")["fingerprint"])[:12] for each in others]
        place = replace(where, file=f"with-{'-'.join(marks)}-{where.file}")  # the other model is part of the ranks
        trained = replace(runs[0], variant=ENSEMBLE, result=both)
        scores = partial(ensemble_scores, runs)
        found += measure_grid([trained], place, call.report, scores=scores)[where.protocols[0].name]
        spent.append(scoring_seconds(trained, place) or 0.0)
    cost = Cost(
        sum(each.cost.parameters for each in members),
        float(np.mean(spent)),
        sum(each.cost.pair_seconds for each in members),
    )
    return [SystemRow(Row(ENSEMBLE, tuple(found), tuple(any(each[seed] for each in rising) for seed in seeds)), cost)]


def ensemble_scores(members: Sequence[TrainedSeed], _: TrainedSeed, where: TestSplit) -> MeanScores:
    """Return the mean of the scores of trained models."""
    return MeanScores([own_scores(each, where) for each in members])


def _has(trained: Sequence[TrainedSeed], variant: Variant) -> bool:
    return any(each.variant == variant for each in trained)


def _mean(runs: Sequence[TrainedSeed], where: TestSplit) -> float | None:
    """Return the mean processor time of ranking the test split; None if no run has measured it."""
    known = [spent for spent in (scoring_seconds(each, where) for each in runs) if spent is not None]
    return float(np.mean(known)) if known else None


def second_stage(grid: Grid, first: TrainedSeed) -> Grid:
    """Return the grid of the cross-encoder that re-ranks a trained model.

    Changes of models and losses are for the other systems, apart from the width of the features.
    """
    width = "model.image.feature_size="
    own = [
        each.replace(width, "model.feature_size=")
        for each in grid.changes
        if each.startswith(width) or not each.startswith(("model.", "loss."))
    ]
    return replace(
        grid, variants=(RERANKED,), changes=(*own, f"loss.first_stage={toml_text(first.result.folder / 'best')}")
    )


def best_systems(trained: Sequence[TrainedSeed]) -> tuple[Variant, ...]:
    """Return the systems with the highest mean rsum on dev, in the order of :data:`SYSTEMS`."""
    found = {each: [run.result.best["rsum"] for run in trained if run.variant == each] for each in SYSTEMS}
    ranked = sorted((each for each in SYSTEMS if found[each]), key=lambda each: -float(np.mean(found[each])))
    return tuple(each for each in SYSTEMS if each in ranked[:BEST])


def further_seeds(seeds: Sequence[int]) -> list[int]:
    """Return the seeds that the best systems lack.

    >>> further_seeds((0,))
    [1, 2]
    """
    free = (each for each in range(len(seeds) + BEST_SEEDS) if each not in seeds)
    return [seed for seed, _ in zip(free, range(BEST_SEEDS - len(seeds)), strict=False)]


def measured_before(grid: Grid, trained: Sequence[TrainedSeed], folder: Path) -> list[TrainedSeed]:
    """Return the finished runs in ``folder`` of other rows and seeds, with the same settings and training data."""
    have = {(each.variant, each.seed) for each in trained}
    first = next(each for each in trained if each.variant != RERANKED)
    data = _data(first.result.folder)
    again = second_stage(grid, first)
    found = []
    for variant in (*SYSTEMS, RERANKED):
        for path in sorted(folder.glob(f"{variant.key}-seed*")):
            number = path.name.removeprefix(f"{variant.key}-seed")
            if not number.isdecimal() or not (path / RESULT).is_file() or (variant, int(number)) in have:
                continue
            recipe = recipe_of(again if variant == RERANKED else grid, variant, int(number))
            before, now = flat(read_json(path / RUN)["recipe"]), flat(recipe.identity())
            if all(now.get(key) == value for key, value in before.items()) and _data(path) == data:
                found.append(TrainedSeed(variant, int(number), recipe, TrainingResult.read(path)))
    return found


def _data(run: Path) -> tuple[object, object]:
    """Return what identifies the training data of a run, whatever its words are."""
    known = read_json(run / RUN)["data"]
    return known["train"], known["features"]


def reranked_scores(first: dict[int, TrainedSeed], trained: TrainedSeed, where: TestSplit) -> RerankedScores:
    """Return the scores of the first stage of the same seed, re-ranked by a trained model."""
    below = model_scores(load_model(first[trained.seed].result.model), where.data, where.test)
    second: Any = load_model(trained.result.model)  # a recipe of a cross-encoder has trained it
    return RerankedScores(below, score_pairs_of(second, where.data.images, where.test.texts), DEPTH)


def count_parameters(model: Path) -> int:
    """Return the number of values in the tensors of a saved model."""
    tensors, _ = read_weights(model / WEIGHTS)
    return sum(each.numel() for each in tensors.values())


def pair_cost(trained: TrainedSeed, where: TestSplit) -> float:
    """Return the processor seconds of scoring a pair, encoding and start-up left out; measured once for each model."""
    path, about = trained.result.folder / SCORING, read_json(trained.result.model / "config.json")
    what = {"model": about["fingerprint"], "split": where.test.about["split_hash"]}
    if path.is_file():
        kept = read_json(path)
        if all(kept.get(name) == value for name, value in what.items()):
            return float(kept["pair_seconds"])
    score, pairs = prepared_scores(load_model(trained.result.model), where)
    score()  # compiles and allocates
    rounds, start = 0, time.process_time()
    while not rounds or time.process_time() - start < TIMED:
        score()
        rounds += 1
    cost = (time.process_time() - start) / (rounds * pairs)
    write_json(path, {**what, "pair_seconds": cost, "pairs": rounds * pairs})
    return cost


def prepared_scores(model: Any, where: TestSplit) -> tuple[Callable[[], object], int]:
    """Return a function that scores some pairs of the split, whose sides are encoded by then, and their number.

    A cross-encoder encodes nothing before it knows the pair.
    """
    images = [where.data.images[number] for number in range(min(IMAGES, len(where.data.images)))]
    texts = where.test.texts[:TEXTS]
    pairs = len(images) * len(texts)
    if isinstance(model, PairModel):
        seen, read = model.image_sets(images), [sets for _, sets in model.text_sets(texts, unknown="allow")]
        return lambda: [None for sets in read for _ in score_blocks(model.scoring, seen, sets)], pairs
    if isinstance(model, CandidateScorer):
        count = np.arange(PAIRS)
        return lambda: model.score_candidates(images, texts, count % len(images), count % len(texts)), PAIRS
    scores = DotScores(model.encode_images(images), model.encode_texts(texts, unknown="allow"))
    return lambda: scores.block(slice(0, len(images)), slice(0, len(texts))), pairs
