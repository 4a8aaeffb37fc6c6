"""What a whole run does: it learns, chooses, records, and notices a collapse."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.training.support import tiny_recipe, write_pairs

import vse
from vse.data import open_data
from vse.errors import VSEError
from vse.evaluation import retrieval_metrics
from vse.progress import SilentProgress
from vse.training import Recipe, TrainingResult, train
from vse.training.log import read_metrics

OBJECTIVES: dict[str, dict[str, Any]] = {
    "contrastive": {"objective": "contrastive"},
    "hardest": {"objective": "triplet", "negatives": "hardest"},
    "semi-hard": {"objective": "triplet", "negatives": "semi-hard"},
    "all": {"objective": "triplet", "negatives": "all"},
    "annealed": {"objective": "annealed"},
}
EPOCHS, BATCH, STEPS = 10, 16, 9
LONG = {"epochs": EPOCHS, "batch_size": BATCH, "decay_epochs": 2}
COLLAPSING = 14 * STEPS
FIGURES = ("loss", "satisfied", "spread", "text_spread", "gradient")


class Notes(SilentProgress):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, message: str) -> None:
        self.said.append(message)


class Run:
    """A finished run and everything it left."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.recipe, self.folder, self.notes = recipe, folder, Notes()
        self.result: TrainingResult = train(recipe, folder, progress=self.notes)
        self.lines = read_metrics(folder)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]

    def events(self) -> list[str]:
        return [line["event"] for line in self.of_kind("event")]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("runs") / "data")


@pytest.fixture(scope="module")
def learned(data, tmp_path_factory) -> Run:
    """A run with averaged weights, a warm-up and the objective most people use."""
    recipe = tiny_recipe(
        data,
        schedule=LONG | {"warmup_epochs": 0.5},
        optimizer={"lr": 0.03},
        run={"average": 0.9, "threads": 1},
        guard={"patience": 5},
    )
    return Run(recipe, tmp_path_factory.mktemp("runs") / "learned")


def collapsing(folder: Path, action: str) -> Recipe:
    """Features that hardly differ and the hardest negatives from the first step on."""
    if not folder.exists():
        write_pairs(folder)
        generator = np.random.default_rng(1)
        for split in ("train", "dev"):
            shape = np.load(folder / f"{split}_ims.npy").shape
            np.save(folder / f"{split}_ims.npy", (1 + 0.1 * generator.standard_normal(shape)).astype(np.float32))
    return tiny_recipe(
        folder,
        schedule={"epochs": 14, "batch_size": 16, "decay_epochs": 0},
        loss={"objective": "triplet", "negatives": "hardest", "warmup_epochs": 0},
        guard={"action": action, "spread": 0.02, "patience": 3},
    )


class TestLearning:
    """The tiny set is learned, whatever is minimised."""

    @pytest.mark.parametrize("objective", OBJECTIVES)
    def test_dev_is_ranked_far_better_than_by_chance(self, objective, data, tmp_path):
        """Chance is one right image in twelve and one right text in twelve; and no run looks collapsed."""
        recipe = tiny_recipe(
            data,
            schedule=LONG,
            loss=OBJECTIVES[objective],
            optimizer={"lr": 0.03},
            guard={"patience": 5},
        )
        run = Run(recipe, tmp_path / "run")
        dev = run.result.best["dev"]
        assert min(dev["i2t"]["r1"], dev["t2i"]["r1"]) > 4 * 100 / 12
        assert dev["rsum"] > 450
        losses = [line["loss"] for line in run.of_kind("step") if line["epoch"] >= 1]  # one kind from here on
        assert np.mean(losses[-STEPS:]) < np.mean(losses[:STEPS])
        assert run.events() == []

    def test_the_best_model_ranks_dev_as_recorded(self, learned, data):
        """Loaded again and asked again, it gives the recorded figures."""
        dev = open_data(data, "dev")
        model = vse.load(learned.folder / "best")
        images = model.encode_images(dev.images)
        texts = model.encode_texts(dev.captions, unknown="allow")
        assert retrieval_metrics(images, texts, dev.caption_to_image).to_json() == learned.result.best["dev"]


class TestRecords:
    """What a run writes down."""

    def test_every_step_and_epoch_has_a_line(self, learned):
        """In order, and with the data in the same order for all."""
        steps, epochs = learned.of_kind("step"), learned.of_kind("epoch")
        assert [line["step"] for line in steps] == list(range(EPOCHS * STEPS))
        assert [line["epoch"] for line in steps] == [step // STEPS for step in range(EPOCHS * STEPS)]
        assert [(line["epoch"], line["step"]) for line in epochs] == [(n, (n + 1) * STEPS) for n in range(EPOCHS)]
        timings = [json.loads(line) for line in (learned.folder / "timings.jsonl").read_text().splitlines()]
        assert [line["step"] for line in timings] == [line["step"] for line in steps]
        assert all(line["compute"] >= 0 and line["wait"] >= 0 for line in timings)

    def test_an_epoch_tells_the_means_of_its_steps(self, learned):
        """Every figure of a step."""
        for epoch in learned.of_kind("epoch"):
            steps = [line for line in learned.of_kind("step") if line["epoch"] == epoch["epoch"]]
            for figure in FIGURES:
                mean = math.fsum(line[figure] for line in steps) / STEPS
                assert epoch[figure] == pytest.approx(mean, rel=1e-12), figure

    def test_figures_are_within_their_bounds(self, learned):
        """A share is a share; the spread of unit vectors is at most 2; a loss of this kind is positive."""
        for line in learned.of_kind("step"):
            assert 0 <= line["satisfied"] <= 1
            assert 0 <= line["spread"] <= 2
            assert 0 <= line["text_spread"] <= 2
            assert line["loss"] > 0
            assert line["gradient"] > 0

    def test_the_learning_rate_follows_the_schedule(self, learned):
        """Half an epoch up, then full, then a tenth for the last two epochs."""
        rates = np.array([line["lr"] for line in learned.of_kind("step")])
        warm = round(0.5 * STEPS)
        expected = np.full(EPOCHS * STEPS, 0.03)
        expected[:warm] *= np.arange(1, warm + 1) / warm
        expected[-2 * STEPS :] /= 10
        np.testing.assert_allclose(rates, expected, rtol=1e-12)

    def test_the_best_is_the_highest_rsum_on_dev_and_the_first_of_equals(self, learned):
        """Over all epochs, trained and averaged weights alike; the link leads to that model."""
        candidates = [
            (line[key]["rsum"], -line["epoch"], name)
            for line in learned.of_kind("epoch")
            for key, name in (("dev", "last"), ("dev_averaged", "averaged"))
        ]
        rsum, epoch, _ = max(candidates, key=lambda each: each[:2])
        best = learned.result.best
        assert (best["rsum"], best["epoch"]) == (rsum, -epoch)
        assert (rsum, epoch, best["weights"]) in candidates
        suffix = "-averaged" if best["weights"] == "averaged" else ""
        assert (learned.folder / "best").readlink() == Path(f"model-{best['step']:08d}{suffix}")
        so_far = -1.0
        for line in learned.of_kind("epoch"):
            highest = max(line["dev"]["rsum"], line["dev_averaged"]["rsum"])
            assert line["best"] == (highest > so_far)
            so_far = max(so_far, highest)

    def test_last_and_averaged_are_those_of_the_last_epoch(self, learned):
        """And no other models are kept than those that links lead to."""
        last = f"model-{EPOCHS * STEPS:08d}"
        links = {name: (learned.folder / name).readlink().name for name in ("best", "last", "averaged")}
        assert (links["last"], links["averaged"]) == (last, f"{last}-averaged")
        assert {path.name for path in learned.folder.glob("model-*")} == set(links.values())
        assert len(list(learned.folder.glob("checkpoint-*"))) == 1

    def test_the_result_file_agrees(self, learned):
        """With what ``train`` returned, with the metrics, and with itself when read again."""
        written = json.loads((learned.folder / "result.json").read_text())
        assert written == learned.result.to_json()
        assert written == TrainingResult.read(learned.folder).to_json()
        assert (written["epochs"], written["steps"]) == (EPOCHS, EPOCHS * STEPS)
        assert 0 <= written["waiting_for_data"] <= 1
        line = learned.of_kind("epoch")[written["best"]["epoch"]]
        figures = line["dev" if written["best"]["weights"] == "last" else "dev_averaged"]
        dev = written["best"]["dev"]
        flat = {f"{way}_{name}": dev[way][name] for way in ("i2t", "t2i") for name in dev[way] if name != "queries"}
        assert flat | {"rsum": dev["rsum"]} == figures

    def test_the_model_card_holds_recipe_and_scores(self, learned):
        """Every setting of the recipe, and the figures on dev with their protocol."""
        card = (learned.folder / "best" / "README.md").read_text()
        about = json.loads((learned.folder / "best" / "config.json").read_text())["about"]
        assert about["recipe"]["optimizer.lr"] == 0.03
        assert about["recipe"]["schedule.epochs"] == EPOCHS
        for key in about["recipe"]:
            assert f"| {key.replace('_', chr(92) + '_')} |" in card
        (score,) = about["scores"]
        assert score["values"]["rsum"] == learned.result.best["rsum"]
        assert score["split"] == "dev"
        assert f"after epoch {learned.result.best['epoch'] + 1}" in score["protocol"]
        assert f"{learned.result.best['rsum']:.5g}" in card
        assert (learned.folder / "best" / "pooling.png").is_file()

    def test_the_curves_are_drawn(self, learned):
        """As a plot that is not empty."""
        with Image.open(learned.folder / "curves.png") as picture:
            assert min(picture.size) > 200
            assert len(set(picture.convert("L").resize((64, 64)).tobytes())) > 8

    def test_the_recipe_is_written_first(self, learned):
        """``run.json`` holds everything needed to tell whether a folder is for a recipe."""
        record = json.loads((learned.folder / "run.json").read_text())
        assert record["recipe"] == learned.recipe.identity()
        assert record["data"]["train"]["captions"] == 144

    def test_each_epoch_is_told_in_a_line(self, learned):
        """Number, loss, figures on dev; and whether it is the best so far."""
        told = [line for line in learned.notes.said if line.startswith("epoch ")]
        assert len(told) == EPOCHS
        for number, (line, epoch) in enumerate(zip(told, learned.of_kind("epoch"), strict=True), 1):
            assert line.startswith(f"epoch {number}/{EPOCHS}: loss {epoch['loss']:.4g}, ")
            assert f"rsum {epoch['dev']['rsum']:.1f}" in line
            assert line.endswith(" (best so far)") == epoch["best"]


class TestGuard:
    """A run whose embeddings run to one point."""

    @pytest.fixture(scope="class")
    @classmethod
    def warned(cls, tmp_path_factory) -> Run:
        folder = tmp_path_factory.mktemp("collapse")
        return Run(collapsing(folder / "data", "warn"), folder / "run")

    def test_warn_says_so_once_and_goes_on(self, warned):
        """After ten patiences that a random beginning is given; the run ends as it would have."""
        assert warned.events() == ["collapsed"]
        told = [line for line in warned.notes.said if "collaps" in line]
        (event,) = warned.of_kind("event")
        assert len(told) == 1
        assert event["side"] in {"images", "texts"}
        assert told[0].startswith(f"step {event['step']} of {COLLAPSING} (epoch {event['epoch'] + 1}): the embeddings ")
        assert warned.result.steps == COLLAPSING
        spreads = [min(line["spread"], line["text_spread"]) for line in warned.of_kind("step")]
        assert max(spreads[event["step"] - 3 : event["step"]]) < 0.02
        assert {line["loss_kind"] for line in warned.of_kind("epoch")} == {"hardest negatives"}

    def test_soften_takes_all_negatives_until_the_spread_has_recovered(self, warned, tmp_path):
        """The same until the event; then all negatives, which pull the embeddings apart, then its own loss again."""
        run = Run(collapsing(tmp_path / "data", "soften"), tmp_path / "run")
        assert run.events()[:2] == ["collapsed", "recovered"]
        collapsed, recovered = (line["step"] for line in run.of_kind("event")[:2])
        ours, theirs = run.of_kind("step"), warned.of_kind("step")
        assert ours[:collapsed] == theirs[:collapsed]
        assert ours[collapsed]["loss"] > 3 * theirs[collapsed]["loss"]  # 15 negatives a pair in the place of one
        assert min(line["spread"] for line in ours[recovered - 3 : recovered]) > 0.04
        kinds = {line["epoch"]: line["loss_kind"] for line in run.of_kind("epoch")}
        assert kinds[run.of_kind("event")[0]["epoch"]] == "all negatives"
        assert any("the loss is softened until they have spread out" in line for line in run.notes.said)
        assert any("the embeddings have spread out again" in line for line in run.notes.said)

    def test_stop_ends_the_run_in_one_line(self, tmp_path):
        """The line says where, how far, and what to do; nothing claims to be a result."""
        recipe = collapsing(tmp_path / "data", "stop")
        with pytest.raises(VSEError, match=r"stopped by guard\.action; the last checkpoint is intact") as caught:
            train(recipe, tmp_path / "run")
        assert len(str(caught.value).splitlines()) == 1
        assert f"step 33 of {COLLAPSING}" in str(caught.value)
        assert not (tmp_path / "run" / "result.json").exists()

    def test_texts_that_collapse_alone_are_seen_and_named(self, tmp_path):
        """Images far apart and one sentence for all of them: the event and its line are about the texts."""
        data = write_pairs(tmp_path / "data")
        for split in ("train", "dev"):
            file = data / f"{split}_caps.txt"
            file.write_text("a dog\n" * len(file.read_text().splitlines()))
        run = Run(tiny_recipe(data, guard={"action": "warn", "spread": 0.02, "patience": 1}), tmp_path / "run")
        (event,) = run.of_kind("event")
        assert (event["event"], event["side"], event["step"]) == ("collapsed", "texts", 11)
        assert event["spread"] == run.of_kind("step")[10]["text_spread"] < 0.02
        assert min(line["spread"] for line in run.of_kind("step")) > 0.04
        (told,) = (line for line in run.notes.said if "collaps" in line)
        assert f"different texts have a mean cosine of {1 - event['spread']:.3f}" in told

    def test_guard_off_changes_nothing(self, warned, tmp_path):
        """The figures are those of a run that is only warned."""
        run = Run(collapsing(tmp_path / "data", "off"), tmp_path / "run")
        assert run.events() == []
        assert run.of_kind("step") == warned.of_kind("step")


def test_seeds_make_different_runs_and_one_seed_the_same(data, tmp_path):
    """The recipe's seed decides everything that is drawn."""

    def losses(seed: int, name: str) -> list[float]:
        recipe = tiny_recipe(data, seed=seed, schedule={"epochs": 1, "batch_size": 16, "decay_epochs": 0})
        return [line["loss"] for line in Run(recipe, tmp_path / name).of_kind("step")]

    first = losses(1, "a")
    assert losses(1, "b") == first
    assert losses(2, "c") != first
