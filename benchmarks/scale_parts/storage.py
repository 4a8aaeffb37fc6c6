"""How much float16 and int8 change the results: exact searches over real embeddings, beside float32.

Encodes all captions of Flickr8k and its first images with the bundled photo model, once; they stay in ``--into``.
Compares the best ten in double precision: captions among images, images among captions, captions among captions.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(os.environ.get("VSE_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
K = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, default=DATA, help="with flickr8k/ in it")
    parser.add_argument("--images", type=int, default=3_000)
    parser.add_argument("--into", type=Path, default=Path("runs/scale"))


def run(options: argparse.Namespace) -> None:
    """Print a Markdown table."""
    from vse.index.storage import rounded

    texts, images = embeddings(options.data / "flickr8k", options.images, options.into)
    print("| queries | among | stored as | recall@10 | same first | same ten in the same order | largest change |")
    print("|---|---|---|--:|--:|--:|--:|")
    cases = (
        ("captions", texts[::20], "images", images),
        ("images", images[::3][:1000], "captions", texts),
        ("captions", texts[5::40], "captions", texts),
    )
    for asked, queries, among, stored in cases:
        best, scores = _best(queries, stored)
        for storage in ("float16", "int8"):
            found, changed = _best(queries, rounded(stored, storage))
            recall = np.mean([len(np.intersect1d(a, b)) / K for a, b in zip(best, found, strict=True)])
            first, same = (best[:, 0] == found[:, 0]).mean(), (best == found).all(axis=1).mean()
            print(
                f"| {len(queries):,} {asked} | {len(stored):,} {among} | {storage} | {recall:.4f} | {first:.4f} "
                f"| {same:.3f} | {np.abs(scores - changed).max():.1e} |"
            )


def _best(queries: Any, vectors: Any) -> tuple[Any, Any]:
    scores = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    return np.argsort(-scores, axis=1, kind="stable")[:, :K], scores


def embeddings(folder: Path, count: int, into: Path) -> tuple[Any, Any]:
    """Return the embeddings of all captions and of the first ``count`` images, by name."""
    import vse

    paths = into / "flickr_texts.npy", into / "flickr_images.npy"
    if not all(path.exists() for path in paths):
        into.mkdir(parents=True, exist_ok=True)
        rows = [line.split("\t", 1) for line in (folder / "Flickr8k.token.txt").read_text("utf-8").splitlines()]
        names = sorted({row[0].split("#")[0] for row in rows})
        files = [folder / "images" / name for name in names if (folder / "images" / name).exists()]
        model = vse.load("photo")
        np.save(paths[0], model.encode_texts([row[1] for row in rows]))
        np.save(paths[1], model.encode_images(files[:count]))
    return np.load(paths[0]), np.load(paths[1])
