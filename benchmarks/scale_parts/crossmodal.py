"""Recall@10 of inverted lists (IVF-PQ) on real queries of the other modality, beside exact searches.

Encodes all captions and images of Flickr8k with the bundled photo model, once; they stay in ``--into``. Captions are
searched among the images, images among the captions, and images among images as the build's own trial does: queries
of another modality lie apart from what is stored, and need more lists. The collections are far smaller than those that
get lists by themselves, so the lists are forced; the number of lists follows the size.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np

from scale_parts.sizes import build_lists, opened_snapshot, write_cache
from scale_parts.storage import DATA, K, embeddings
from scale_parts.synthetic import BLOCK, DIMENSIONS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, default=DATA, help="with flickr8k/ in it")
    parser.add_argument("--images", type=int, default=8_000)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--into", type=Path, default=Path("runs/scale-crossmodal"))


def run(options: argparse.Namespace) -> None:
    """Print a Markdown table."""
    from vse.index.storage import VectorFormat
    from vse.index.store.cache import VectorCache

    texts, images = embeddings(options.data / "flickr8k", options.images, options.into)
    print("| queries | among | lists (visited) | recall@10 | queries below 0.8 | same first |")
    print("|---|---|--:|--:|--:|--:|")
    cases = (("captions", texts, "images", images), ("images", images, "captions", texts),
             ("images", images, "images", images))  # fmt: skip
    for asked, queries, among, stored in cases:
        folder = options.into / f"lists-{among}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        cache = VectorCache(folder, "items", VectorFormat(DIMENSIONS, "float16"))
        blocks = (stored[start : start + BLOCK] for start in range(0, len(stored), BLOCK))
        write_cache(cache, blocks, len(stored), "float16")
        built = build_lists(cache, len(stored))
        snapshot, shares, first = opened_snapshot(cache), [], []
        for query in queries[:: max(1, len(queries) // options.queries)][: options.queries]:
            found, exact = (snapshot.search(query, K, None, way).ids for way in (False, True))
            shares.append(len(np.intersect1d(found, exact)) / K)
            first.append(found[0] == exact[0])
        low = np.mean(np.array(shares) < 0.8)
        print(
            f"| {len(shares):,} {asked} | {len(stored):,} {among} | {built['lists']:,} ({built['probes']:,}) "
            f"| {np.mean(shares):.4f} | {low:.3f} | {np.mean(first):.3f} |", flush=True
        )  # fmt: skip
