"""Measure how well ``confidence`` separates right results from wrong ones, and fit its coefficients.

    vse features DATA --backbone efficientnet-lite0 --into FEATURES
    python benchmarks/confidence.py --data DATA --features FEATURES --models MODEL... --figure search-reliability.png

Captions of Flickr8k (or any captioned dataset) are queries against collections of several sizes, drawn from the images
of a split. Each caption is used twice: on a collection with its image, where the best result is right or wrong, and on
one from which its image was removed, where the best result counts as wrong. Coefficients are fitted on dev, on the
results of all models and sizes together, and evaluated on test, where a collection of test and dev images is larger
than any that was fitted on. The baselines are the cosine of the best result and a sigmoid of it, fitted on the same
results; each model is also evaluated with coefficients from the others.

Prints a Markdown table; writes ``confidence.json``, which can replace the bundled one, and ``reliability.json``.
Embeddings are cached below ``--into``: delete them when a model has changed. Captions also describe other images than
their own, so "wrong" is what the dataset calls wrong, and confidences are low rather than high. With ``--features`` the
images are not read; an export cannot use features.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from vse.index.calibration import Answers

LARGER = 2000
INK, GRID, REFERENCE = "#1f2a44", "#e6e9ef", "#aab2c0"
COLOURS = ("#b7791f", "#a3263b", "#12665c", "#3b5fb0", "#6b4fa0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", required=True, metavar="MODEL")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path)
    parser.add_argument("--into", type=Path, default=Path("runs/confidence"))
    parser.add_argument("--figure", type=Path, help="where the figure is written [default: INTO/reliability.png]")
    parser.add_argument("--date", default="", help="a date for the source of the coefficients")
    options = parser.parse_args()

    from vse._util.atomic import write_json
    from vse.index.calibration import SIZES, ask, fit, joined

    dev, test = [], []
    for model in options.models:
        known, held = (embed(model, options, split) for split in ("dev", "test"))
        dev.append(joined([ask(*known, size) for size in SIZES]))
        test.append(joined([ask(*held, size) for size in SIZES] + [ask(*held, LARGER, more=known[0])]))
    names = ", ".join(short(model) for model in options.models)
    sizes = ", ".join(map(str, SIZES))
    source = f"{options.data.name} dev, collections of {sizes}; models {names}; {options.date}".rstrip("; ")
    every = joined(dev)
    coefficients = fit(every.features, every.right, source)
    report: dict[str, Any] = {"all": judged(joined(test), every, coefficients), "alone": {}}
    for place, model in enumerate(options.models):
        if others := [each for other, each in enumerate(dev) if other != place]:
            rest = joined(others)
            report["alone"][short(model)] = judged(test[place], rest, fit(rest.features, rest.right, source))
    write_json(options.into / "confidence.json", asdict(coefficients))
    write_json(options.into / "reliability.json", report)
    print_tables(report)
    figure = options.figure or options.into / "reliability.png"
    plot(report["all"], joined(test), coefficients.probability(joined(test).features), figure)


def short(model: str) -> str:
    """Return the run's name where a model is the best of a run."""
    path = Path(model)
    return path.parent.name if path.name in {"best", "last", "averaged"} else path.name


def embed(model: str, options: argparse.Namespace, split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return embeddings of images and captions, and the image of each caption."""
    import vse
    from vse.data import FeatureStore, attach, open_data
    from vse.errors import InputError
    from vse.evaluation.embeddings import Embeddings, embed_split

    place = options.into / f"{short(model)}-{split}"
    try:
        found = Embeddings.load(place)
    except InputError:
        loaded = vse.load(model)
        data = open_data(options.data, split, use="features" if loaded.preprocessing is None else "files")
        if options.features is not None:
            data = attach(data, FeatureStore.open(options.features), on_bad="drop")
        found = embed_split(loaded, data, name=short(model))
        found.save(place)
    return np.array(found.images), np.array(found.texts), np.array(found.text_to_image)


def judged(answers: Answers, fitted_on: Answers, coefficients: Any) -> dict[str, Any]:
    """Return areas, Brier score, calibration error and bins of confidence and sigmoid, per size and overall."""
    from vse.index.calibration import area

    sigmoid = fitted_sigmoid(fitted_on.scores, fitted_on.right)
    guesses = {"confidence": coefficients.probability(answers.features), "sigmoid": sigmoid(answers.scores)}
    report = {}
    for size in [0, *np.unique(answers.sizes).tolist()]:
        rows = np.flatnonzero((answers.sizes == size) | (size == 0))
        some = answers.of(rows)
        found = float(some.right[some.present].mean())
        report[str(size or "all")] = {"results": len(rows), "found": found, "bound": (1 + 2 * found - found**2) / 2} | {
            name: {"presence": area(guess[rows], some.present)} | reliability(guess[rows], some.right)
            for name, guess in guesses.items()
        }
    return report


def fitted_sigmoid(scores: np.ndarray, right: np.ndarray) -> Any:
    """Return the best-fitting sigmoid of the cosine: the same fit, from one feature."""
    from vse.index.calibration import fit

    def features(values: np.ndarray) -> np.ndarray:
        return np.stack([values, np.zeros_like(values), np.zeros_like(values)], axis=1)

    coefficients = fit(features(scores), right, "a sigmoid of the cosine")
    return lambda values: coefficients.probability(features(values))


def reliability(guesses: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """Return area, Brier score, calibration error, and the reliability bins of equal size."""
    from vse.index.calibration import area, bins, calibration_error

    return {
        "right": area(guesses, right),
        "brier": float(((guesses - right) ** 2).mean()),
        "error": calibration_error(guesses, right),
        "bins": bins(guesses, right),
    }


def print_tables(report: dict[str, Any]) -> None:
    """Print a table per size, then overall; an area over several sizes would describe the sizes, not the scores."""
    head = ("images", "found first", "presence, AUC", "bound", "right, AUC", "Brier", "calibration error")
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    told = [(f"{int(size):,}", row, True) for size, row in report["all"].items() if size != "all"]
    told += [("all sizes", report["all"]["all"], False)]
    told += [(f"all sizes, {name} by the others", rows["all"], False) for name, rows in report["alone"].items()]
    for name, row, areas in told:
        presence, right, brier, error = (
            " / ".join(f"{row[kind][key]:.3f}" for kind in ("sigmoid", "confidence"))
            for key in ("presence", "right", "brier", "error")
        )
        cells = (presence, f"{row['bound']:.3f}", right) if areas else ("", "", "")
        print(f"| {name} | {row['found']:.1%} | {' | '.join(cells)} | {brier} | {error} |")


def plot(report: dict[str, Any], answers: Answers, guesses: np.ndarray, target: Path) -> None:
    """Plot the reliability of confidence and sigmoid for each size, and the ROC curves of presence."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.4, 4.3), layout="constrained", facecolor="white")
    axes = figure.subplots(1, 3)
    for size, colour in zip([each for each in report if each != "all"], COLOURS, strict=True):
        name = f"{int(size):,}"
        for axis, kind in zip(axes, ("confidence", "sigmoid"), strict=False):
            said, were, _ = zip(*report[size][kind]["bins"], strict=True)
            label = f"{name}: error {report[size][kind]['error']:.3f}"
            axis.plot(said, were, "o-", color=colour, linewidth=1.4, markersize=4, label=label)
        rows = answers.sizes == int(size)
        present = answers.present[rows][np.argsort(-guesses[rows])]
        row = report[size]
        label = f"{name}: {row['confidence']['presence']:.3f}, bound {row['bound']:.3f}"
        false, true = (np.cumsum(each) / each.sum() for each in (~present, present))
        axes[2].plot(false, true, color=colour, linewidth=1.4, label=label)
    titles = ("confidence", "a fitted sigmoid of the cosine", "is the image there? area under the curve")
    labels = (("said", "were right"), ("said", "were right"), ("removed, called present", "present, called present"))
    for axis, title, (x, y) in zip(axes, titles, labels, strict=True):
        axis.plot([0, 1], [0, 1], color=REFERENCE, linewidth=1, zorder=0)
        axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        axis.set_title(title, loc="left", color=INK, fontsize=10)
        axis.set_xlabel(x, color=INK)
        axis.set_ylabel(y, color=INK)
        axis.grid(color=GRID)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(title="images", title_fontsize=8, fontsize=8, frameon=False, loc="lower right")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=130)


if __name__ == "__main__":
    main()
