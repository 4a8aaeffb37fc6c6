"""How well ``confidence`` tells right results from wrong ones, and the coefficients that make it do so.

    vse features DATA --backbone efficientnet-lite0 --into FEATURES
    python benchmarks/confidence.py --model MODEL --data DATA [--features FEATURES] [--into runs/confidence]

Captions of Flickr8k (or any captioned data) are queries against the pictures of a split. Each caption is asked twice:
with its picture present, where the best result is right or wrong, and with its picture removed, where the best result
counts as wrong. Coefficients are fitted on one half of the pictures and judged on the other; the split is dev unless
told, so that what ships has not seen test. Printed are, for the fitted and for the shipped coefficients, the area under
the ROC curve, the Brier score and the calibration error (ten bins of equal numbers), beside the raw cosine's area.
Written are ``confidence.json`` (fitted on all, it may take the place of the shipped one), ``reliability.json`` and,
with matplotlib, ``reliability.png``.

Captions describe other pictures than their own too, so "wrong" is what the data calls wrong: confidences come out low
rather than high. With ``--features`` the pictures are not read; an export cannot use features.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

BINS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path)
    parser.add_argument("--split", default="dev")
    parser.add_argument("--queries", type=int, default=5000, help="captions at most, spread over the pictures")
    parser.add_argument("--into", type=Path, default=Path("runs/confidence"))
    options = parser.parse_args()

    from vse.files import write_json
    from vse.index.confidence import fit, shipped_coefficients

    images, texts, owners = embed(options.model, options.data, options.split, options.features)
    chosen = np.unique(np.linspace(0, len(texts) - 1, min(options.queries, len(texts))).astype(int))
    features, scores, labels, pictures = ask(images, texts[chosen], owners[chosen])
    first = pictures < len(images) // 2
    source = f"{options.data.name} {options.split}, model {Path(options.model).resolve().name}"
    fitted = fit(features[first], labels[first], source)
    whole = fit(features, labels, source)
    held = ~first
    report: dict[str, Any] = {"queries": len(chosen), "pictures": len(images), "right": float(labels.mean())}
    report["held_out"] = {"results": int(held.sum()), "right": int(labels[held].sum())}
    report["cosine"] = {"auc": auc(scores[held], labels[held])}
    for name, coefficients in (("fitted", fitted), ("shipped", shipped_coefficients())):
        report[name] = judged(coefficients.probability(features[held]), labels[held])
    options.into.mkdir(parents=True, exist_ok=True)
    write_json(options.into / "confidence.json", whole.model_dump())
    write_json(options.into / "reliability.json", report)
    judging = report["held_out"]
    print(f"{report['queries']:,} captions, {report['pictures']:,} pictures, half of them held out:", end=" ")
    print(f"{judging['results']:,} results, {judging['right']:,} of them right")
    print(f"cosine   AUC {report['cosine']['auc']:.3f}")
    for name in ("fitted", "shipped"):
        row = report[name]
        print(f"{name:<8} AUC {row['auc']:.3f}  Brier {row['brier']:.3f}  calibration error {row['error']:.3f}")
    print(f"intercept {whole.intercept:.3f}, deviations {whole.deviations:.3f}, tails {whole.tails:.3f}")
    print(f"written to {options.into}" + (" with reliability.png" if plot(report, options.into) else ""))


def embed(name: str, path: Path, split: str, features: Path | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors of pictures and captions, and the picture of each caption."""
    import vse
    from vse.data import FeatureStore, attach, open_data
    from vse.evaluation.embeddings import embed_split

    model = vse.load(name)
    data = open_data(path, split, use="features" if model.preprocessing is None else "files")
    if features is not None:
        data = attach(data, FeatureStore.open(features), on_bad="drop")
    found = embed_split(model, data, name=name)
    return found.images, found.texts, np.asarray(data.caption_to_image)


def ask(
    images: np.ndarray, texts: np.ndarray, owners: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Every caption with its picture present, then removed: features (z, τ), scores and labels of the best results."""
    from vse.index.confidence import SAMPLE, Background

    generator = np.random.default_rng(0)
    drawn = generator.permutation(len(images))[:SAMPLE]
    features, scores, labels, pictures = [], [], [], []
    for text, owner in zip(texts, owners, strict=True):
        every = images @ text
        for present in (True, False):
            sample = drawn if present else drawn[drawn != owner]
            background = Background(images[sample], len(images) - (not present), 1)
            candidates = every if present else np.where(np.arange(len(images)) == owner, -np.inf, every)
            best = int(candidates.argmax())
            features.append(background.statistics(text).features(candidates[best : best + 1])[0])
            scores.append(float(candidates[best]))
            labels.append(int(best == owner))
            pictures.append(int(owner))
    return np.array(features), np.array(scores), np.array(labels), np.array(pictures)


def judged(guesses: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Area, Brier score, calibration error and the bins of the reliability plot."""
    parts = np.array_split(np.argsort(guesses, kind="stable"), BINS)
    bins: list[dict[str, Any]] = [
        {"said": float(guesses[rows].mean()), "were": float(labels[rows].mean()), "count": len(rows)} for rows in parts
    ]
    error = sum(each["count"] * abs(each["said"] - each["were"]) for each in bins) / len(labels)
    return {"auc": auc(guesses, labels), "brier": float(((guesses - labels) ** 2).mean()), "error": error, "bins": bins}


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """The part of (right, wrong) pairs that are in order; equal scores count half."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # means over equal scores
    right = labels == 1
    wins = ranks[right].sum() - right.sum() * (right.sum() + 1) / 2
    return float(wins / max(1, right.sum() * (~right).sum()))


def plot(report: dict[str, Any], into: Path) -> bool:
    """The reliability plot, where matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(5, 5), layout="constrained")
    axis = figure.subplots()
    axis.plot([0, 1], [0, 1], color="#aab2c0", linewidth=1)
    for name, colour in (("shipped", "#12665c"), ("fitted", "#a3263b")):
        bins = report[name]["bins"]
        axis.plot([b["said"] for b in bins], [b["were"] for b in bins], marker="o", color=colour, label=name)
    axis.set(xlabel="confidence", ylabel="part that was right", xlim=(0, 1), ylim=(0, 1))
    axis.legend()
    figure.savefig(into / "reliability.png", dpi=130)
    return True


if __name__ == "__main__":
    main()
