"""Find the cosine that separates copies of an image from other images, for the default of ``vse.index.duplicates``.

    python benchmarks/near_duplicates.py --data DATA --features FEATURES --model MODEL... [--count 300]

Some images are edited in ways that keep them the same photograph (other JPEG qualities, smaller, slightly cropped,
brighter or darker, another colour space), and each edited one is compared with its original: the share above a
threshold is what is found. Every pair of different images is compared too: the pairs above the threshold are joined
wrongly, apart from the few that are the same scene twice. Cell features are computed once by the backbone that all
models share; ``average`` is the unit mean of the cells, without any training.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance

THRESHOLDS = (0.80, 0.85, 0.88, 0.90, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99)


def jpeg(image: Image.Image, quality: int) -> Image.Image:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return Image.open(io.BytesIO(stream.getvalue())).convert("RGB")


def cropped(image: Image.Image, part: float, corner: bool = False) -> Image.Image:
    """Return the image without ``part`` of either side: around the middle, or all of it at the top left."""
    width, height = image.size
    dx, dy = round(width * part), round(height * part)
    box = (dx, dy, width, height) if corner else (dx // 2, dy // 2, width - (dx - dx // 2), height - (dy - dy // 2))
    return jpeg(image.crop(box), 90)


def scaled(image: Image.Image, factor: float) -> Image.Image:
    return jpeg(image.resize([max(1, round(side * factor)) for side in image.size], Image.Resampling.LANCZOS), 85)


EDITS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "JPEG, quality 90": lambda image: jpeg(image, 90),
    "JPEG, quality 75": lambda image: jpeg(image, 75),
    "JPEG, quality 60": lambda image: jpeg(image, 60),
    "JPEG, quality 40": lambda image: jpeg(image, 40),
    "half the size": lambda image: scaled(image, 0.5),
    "a third of the size": lambda image: scaled(image, 1 / 3),
    "5 % cropped around": lambda image: cropped(image, 0.05),
    "5 % cropped, one corner": lambda image: cropped(image, 0.05, corner=True),
    "10 % cropped, one corner": lambda image: cropped(image, 0.10, corner=True),
    "20 % darker": lambda image: jpeg(ImageEnhance.Brightness(image).enhance(0.8), 90),
    "20 % brighter": lambda image: jpeg(ImageEnhance.Brightness(image).enhance(1.2), 90),
    "20 % more contrast": lambda image: jpeg(ImageEnhance.Contrast(image).enhance(1.2), 90),
    "less colour (half)": lambda image: jpeg(ImageEnhance.Color(image).enhance(0.5), 90),
}


def cells_of(backbone, how, images: list) -> np.ndarray:
    import torch

    from vse.inputs.preprocessing import load_pixels

    out = []
    with torch.inference_mode():
        for start in range(0, len(images), 32):
            pixels = np.stack([load_pixels(image, how) for image in images[start : start + 32]])
            out.append(backbone(torch.from_numpy(pixels)).numpy())
    return np.concatenate(out)


def average(cells: np.ndarray) -> np.ndarray:
    mean = cells.astype(np.float32).mean(axis=1)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def embedded(model, cells: np.ndarray) -> np.ndarray:
    starts = range(0, len(cells), 256)
    return np.concatenate([model.embed_images(cells[start : start + 256].astype(np.float32)) for start in starts])


def pairs_above(vectors: np.ndarray, thresholds: tuple[float, ...]) -> tuple[list[int], list[tuple[float, int, int]]]:
    """Return the number of pairs of different rows at or above each threshold, and the highest pairs."""
    counts = np.zeros(len(thresholds), np.int64)
    best: list[tuple[float, int, int]] = []
    for start in range(0, len(vectors), 1000):
        scores = vectors[start : start + 1000] @ vectors.T
        scores[np.tri(len(scores), len(vectors), start, dtype=bool)] = -1  # each pair once, none with itself
        counts += [int((scores >= threshold).sum()) for threshold in thresholds]
        rows, columns = np.nonzero(scores >= thresholds[0])
        best += zip(scores[rows, columns].tolist(), (rows + start).tolist(), columns.tolist(), strict=True)
    return counts.tolist(), sorted(best, reverse=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder of images named by the store's ids")
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--thin", type=int, default=1, help="with --size, compare every n-th image")
    parser.add_argument("--size", type=int, help="resize inputs to this size, as if the images were larger")
    parser.add_argument("--pairs", type=Path, help="write the highest pairs of different images here")
    options = parser.parse_args()

    import vse
    from vse.data import FeatureStore

    store = FeatureStore.open(options.features)
    models = {Path(name).parent.name + "/" + Path(name).name: vse.load(name) for name in options.model}
    first = next(iter(models.values()))
    backbone, how = first.image_encoder.backbone.eval(), first.preprocessing
    if options.size is not None:
        how = dataclasses.replace(how, size=(options.size, options.size))
    chosen = np.linspace(0, len(store.ids) - 1, options.count).astype(int)
    names = [str(store.ids[row]) for row in chosen]
    paths = [next(options.data.rglob(name if "." in name else name + ".jpg")) for name in names]
    originals = [Image.open(path).convert("RGB") for path in paths]
    contestants = {
        "average": average,
        **{name: (lambda cells, m=model: embedded(m, cells)) for name, model in models.items()},
    }
    every = store.array
    if options.size is not None:  # the store holds cells at the backbone's own size
        every = cells_of(backbone, how, [next(options.data.rglob(str(name))) for name in store.ids[:: options.thin]])
    whole = {name: embed(every) for name, embed in contestants.items()}
    plain = cells_of(backbone, how, paths)
    scores: dict[str, dict[str, np.ndarray]] = {name: {} for name in contestants}
    for edit, change in EDITS.items():
        cells = cells_of(backbone, how, [np.asarray(change(image)) for image in originals])
        for name, embed in contestants.items():
            scores[name][edit] = (embed(plain) * embed(cells)).sum(axis=1)
    for name in contestants:
        counts, best = pairs_above(whole[name], THRESHOLDS)
        print(f"\n## {name}\n")
        print("| edit | median | 5 % | lowest | " + " | ".join(f"{t:.2f}" for t in THRESHOLDS) + " |")
        print("|---" * (4 + len(THRESHOLDS)) + "|")
        for edit, found in scores[name].items():
            parts = " | ".join(f"{100 * float((found >= t).mean()):.0f}" for t in THRESHOLDS)
            print(f"| {edit} | {np.median(found):.3f} | {np.quantile(found, 0.05):.3f} | {found.min():.3f} | {parts} |")
        together = np.concatenate(list(scores[name].values()))
        parts = " | ".join(f"{100 * float((together >= t).mean()):.1f}" for t in THRESHOLDS)
        print(f"| **all edits, % found** | | | | {parts} |")
        print("| **pairs of different images** | | | | " + " | ".join(f"{c:,}" for c in counts) + " |")
        if options.pairs:
            lines = [f"{score:.4f} {store.ids[a]} {store.ids[b]}" for score, a, b in best]
            (options.pairs / (name.replace("/", "-") + ".txt")).write_text("\n".join(lines))


if __name__ == "__main__":
    main()
