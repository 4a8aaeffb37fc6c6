"""The steps of the demo. Each stores its result in the output folder and is skipped when it is there."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vse._util.atomic import write_json
from vse.demo.gallery import index_gallery
from vse.demo.photos import index_samples
from vse.demo.result import DemoResult, MethodResult
from vse.errors import require
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.models.vse_model import VSEModel
    from vse.training.parallel import Run

METHODS = {"scenes-vse-plus-plus": "VSE++ (average pooling)", "scenes-vse-infinity": "VSE∞ (GPO)"}
SEEDS = (0, 1, 2)
SCENES_SEED = 1
"""Seed of the scenes. The recipes were tuned on those of seed 0, so these are unseen."""


@dataclass(frozen=True)
class Scale:
    """Numbers of scenes and epochs; None keeps the value of the recipe."""

    train: int = 2400
    dev: int = 200
    test: int = 500
    epochs: int | None = None


FULL = Scale()
QUICK = Scale(train=200, dev=40, test=60, epochs=1)


def run(
    *, out: Path, seeds: Sequence[int] = SEEDS, quick: bool = False, progress: ProgressReporter | None = None
) -> DemoResult:
    """Generate scenes, extract features, train both methods with every seed, and evaluate them on the test scenes.

    The test scenes are then indexed with the best model, for search.

    Args:
        out: folder for everything that is written; a repeated call resumes from it.
        seeds: random seeds of the training runs.
        quick: use few scenes and one epoch.
        progress: reporter of the work.

    Returns:
        Figures of both methods, and the paths of model, plots and collection.

    Raises:
        MissingDependencyError: the training extra is not installed.
    """
    scale = QUICK if quick else FULL
    for module in ("torch", "matplotlib", "safetensors"):
        require(module, extra="train", purpose="vse demo")
    from vse.models.card import write_card
    from vse.models.curves_plot import plot_curves
    from vse.models.learned_curves import curves_of
    from vse.models.storage import load_towers
    from vse.training.curves_plot import plot_training
    from vse.training.log import read_metrics
    from vse.training.parallel import train_several

    report = progress or SilentProgress()
    began = time.perf_counter()
    runs = _prepare(out, seeds, scale, report)
    results = train_several(runs, progress=report)
    report.note("evaluating on the test scenes")
    methods, gallery = _evaluate(out, seeds, [result.model for result in results])
    ours = [result for result, each in zip(results, runs, strict=True) if each.name.startswith("VSE∞")]
    best = max(ours, key=lambda result: float(result.best["rsum"]))
    model = load_towers(best.model)
    kept = out / "model"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(best.model, kept)
    write_card(kept, model)
    _calibrate(out, model, kept)
    curves = curves_of(model)
    curves_plot = plot_curves(curves, out / "pooling.png")
    drawn = plot_training({each.name: read_metrics(each.folder) for each in runs if each.recipe.seed == seeds[0]})
    drawn.savefig(out / "training.png", dpi=130)
    report.note("indexing the test scenes for the search page")
    scenes = index_gallery(out, kept, SCENES_SEED, report)
    report.note("indexing sample photographs with the photo model")
    photos = index_samples(out, sorted((out / "scenes" / "images").glob("test_*")), report)
    result = DemoResult(
        methods=methods,
        curves=curves,
        gallery=gallery,
        training=scale.train,
        seconds=time.perf_counter() - began,
        model=kept,
        curves_plot=curves_plot,
        training_plot=out / "training.png",
        scenes=scenes,
        photos=photos,
    )
    write_json(out / "result.json", result.to_json())
    return result


def _prepare(out: Path, seeds: Sequence[int], scale: Scale, report: ProgressReporter) -> list[Run]:
    """Generate scenes, extract features, and return the runs to train."""
    from vse.data.scenes import write_scenes
    from vse.models.extract import extract_features, find_images
    from vse.training.parallel import Run
    from vse.training.recipe import Recipe
    from vse.training.recipes import read_recipe, toml_text

    scenes, features = out / "scenes", out / "features"
    write_scenes(scenes, scale.train, scale.dev, scale.test, seed=SCENES_SEED, progress=report)
    places = [f"data.path={toml_text(scenes)}", f"data.features={toml_text(features)}"]
    if scale.epochs is not None:
        places += [f"schedule.epochs={scale.epochs}"]
    runs = []
    for seed in seeds:
        for name, label in METHODS.items():
            recipe = read_recipe(name, [*places, f"seed={seed}"])
            if isinstance(recipe, Recipe):
                runs.append(Run(recipe, out / "runs" / f"{name}-seed{seed}", f"{label.split()[0]} seed {seed}"))
    wanted = runs[0].recipe.model
    if wanted.kind == "vse" and wanted.image.kind == "grid":
        image = wanted.image
        extract_features(
            find_images(scenes),
            image.backbone.name,
            features,
            size=image.image_size,
            options=image.backbone.options,
            progress=report,
        )
    return runs


def _evaluate(
    out: Path, seeds: Sequence[int], models: Sequence[Path]
) -> tuple[tuple[MethodResult, ...], tuple[int, int]]:
    """Evaluate every model on the test scenes, which neither training nor the choice of epochs has seen."""
    from vse.data import FeatureStore, attach, open_data
    from vse.evaluation.retrieval_test import evaluate_split
    from vse.models.storage import load_towers

    test = attach(open_data(out / "scenes", "test"), FeatureStore.open(out / "features"))
    figures = [evaluate_split(load_towers(model), test) for model in models]
    methods = tuple(
        MethodResult(label, tuple(seeds), tuple(figures[place :: len(METHODS)]))
        for place, label in enumerate(METHODS.values())
    )
    return methods, (len(test.images), len(test.captions))


def _calibrate(out: Path, model: VSEModel, folder: Path) -> None:
    """Fit the confidence and relevance of search results to the model, on the validation scenes."""
    from vse.data import FeatureStore, attach, open_data
    from vse.evaluation.embeddings import embed_split
    from vse.index.calibration import calibrate_embeddings, write_coefficients
    from vse.index.relevance_fit import fit_embeddings, write_relevance

    dev = attach(open_data(out / "scenes", "dev"), FeatureStore.open(out / "features"))
    found = embed_split(model, dev, name=folder.name)
    write_coefficients(folder, calibrate_embeddings(found).coefficients)
    write_relevance(folder, fit_embeddings(found, model).coefficients)
