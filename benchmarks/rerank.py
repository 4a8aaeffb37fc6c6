"""What re-ranking costs and gains: quality of retrieval against time per query, for K = 0 … 200 re-ranked candidates.

    vse train flickr8k-small --into FIRST
    vse train flickr8k-small-cross-encoder --set loss.first_stage=FIRST/best --into CROSS
    python benchmarks/rerank.py FIRST/best CROSS/best --data data/flickr8k-projected --out rerank.json --plot rerank.png

The second model is a cross-encoder or a system of pairs such as SCAN. The first stage ranks the whole gallery, the
re-ranker orders its first K candidates in both directions. All pairs that the largest K needs are scored once, on one
thread; every smaller K is computed from them. The time of a query is that of a text query of the first stage, whose
gallery is encoded, measured one query at a time, and K times the time of one pair. Three points matter:

    equal   the smallest K whose figure reaches that of the full ranking by the re-ranker, within ``--within``; none if
            the first stage alone reaches it, which the plot and the last lines then say
    best    the K with the highest figure
    above   the largest K whose figure is no lower than that of the first stage alone

A full ranking is out of reach where images times captions exceed ``--full`` pairs: the largest K then stands for it,
and the output says so. ``--images N`` takes the first N images of the split and their captions alone.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vse.evaluation.embeddings import embed_split
from vse.evaluation.models import open_for_pairs
from vse.evaluation.rerank import PairCache, RerankedScores, score_pairs_of
from vse.evaluation.retrieval_test import RetrievalTest
from vse.evaluation.scores import DotScores
from vse.models.sources import load_reranker, load_towers

DEPTHS = (0, 5, 10, 20, 50, 100, 200)
FULL = 200_000
TIMED = 50  # queries that are timed one by one


def curve(
    first: Any,
    second: Any,
    data: Any,
    pairs_data: Any,
    depths: Sequence[int],
    full: int = FULL,
    images: int | None = None,
) -> dict:
    """Return the curve of a first stage and a re-ranker.

    Args:
        first: the model with embeddings.
        second: the model of pairs.
        data: the split as the first stage reads it.
        pairs_data: the same split as the re-ranker reads it.
        depths: the values of K.
        full: pairs up to which the re-ranker ranks the whole gallery.
        images: the first images of the split that are ranked; all of them by default.
    """
    test = RetrievalTest.of(data)
    embedded = embed_split(first, data, name="first")
    scores = DotScores(embedded.images, embedded.texts)
    gallery = np.arange(min(images or test.items, test.items))
    whole_test = test.rank(scores, gallery)
    items, texts = len(whole_test.images), len(whole_test.texts)
    whole = items * texts <= full
    depths = sorted({min(each, max(items, texts)) for each in (0, *depths, *([max(items, texts)] if whole else []))})
    timed = {"seconds": 0.0, "asked": 0}
    plain = score_pairs_of(second, pairs_data.images, test.texts)

    def score(rows: Any, columns: Any) -> Any:
        start = time.perf_counter()
        found = plain(rows, columns)
        timed["seconds"] += time.perf_counter() - start
        return found

    cache = PairCache(score, scores.shape[1])

    def pairs(rows: Any, columns: Any) -> Any:
        timed["asked"] = len(rows)
        return cache(rows, columns)

    points = []
    for depth in reversed(depths):  # the largest first: it scores all pairs that the others need
        timed["asked"] = 0
        metrics = test.rank(RerankedScores(scores, pairs, depth), gallery).metrics
        asked = timed["asked"] / (items + texts)
        points.append({"depth": depth, "pairs_per_query": asked, "rsum": metrics.rsum, **metrics.figures()})
    pair_seconds = timed["seconds"] / max(1, cache.pairs)
    first_seconds = query_seconds(first, test.texts, embedded.images[gallery], max(depths))
    for point in points:
        point["milliseconds"] = 1000 * (first_seconds + point["depth"] * pair_seconds)
    return {
        "images": items,
        "texts": texts,
        "pair_milliseconds": 1000 * pair_seconds,
        "first_milliseconds": 1000 * first_seconds,
        "full_ranking": whole,
        "points": points[::-1],
    }


def query_seconds(first: Any, texts: Sequence[str], gallery: Any, depth: int) -> float:
    """Return the median time of a text query: encode it, compare it with the encoded gallery, take the best."""
    seconds = []
    for text in [texts[0], *texts[:: max(1, len(texts) // TIMED)]]:  # the first one compiles and allocates
        start = time.perf_counter()
        found = gallery @ first.encode_texts([text], unknown="allow")[0]
        best = np.argpartition(-found, min(depth, len(found) - 1))[:depth]
        best[np.argsort(-found[best])]
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds[1:]))


def equal_point(points: Sequence[dict], figure: str, within: float) -> dict | None:
    """Return the first point whose figure reaches that of the last one, the deepest, up to ``within``.

    None if the first stage alone reaches it: the full ranking by the re-ranker is no better, and no K is needed for it.
    """
    target = points[-1][figure] - within
    found = next(point for point in points if point[figure] >= target)
    return None if found["depth"] == 0 else found


def no_equal(points: Sequence[dict], figure: str, name: str, within: float) -> str:
    """Return the words for a re-ranker that is no better than the first stage."""
    first, last = points[0][figure], points[-1][figure]
    how = f"{name} ({last:.1f}) is {'worse than' if last < first else 'as good as'} the first stage ({first:.1f})"
    return how + (f", within {within:g}" if within else "")


def best_point(points: Sequence[dict], figure: str) -> dict:
    """Return the first point with the highest figure."""
    return max(points, key=lambda point: point[figure])


def last_above(points: Sequence[dict], figure: str) -> dict:
    """Return the deepest point whose figure is no lower than that of the first stage."""
    return [point for point in points if point[figure] >= points[0][figure]][-1]


def marks(found: dict, depth: int) -> str:
    """Return which of the three points a row of the table is."""
    named = [name for name in ("equal", "best", "above") if found[name] is not None and found[name]["depth"] == depth]
    if depth == 0 and found["equal"] is None:
        named.insert(0, "no equal")
    return ", ".join(named)


def draw(found: dict, figure: str, within: float, path: Path) -> None:
    """Plot the figure against the time of a query, with the point of equal quality marked."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    points = found["points"]
    equal = equal_point(points, figure, within)
    plot, axes = plt.subplots(figsize=(6, 3.6))
    axes.plot([p["milliseconds"] for p in points], [p[figure] for p in points], marker="o", color="#1d4ed8")
    for number, point in enumerate(points):  # below and above in turns: the first ones are near each other
        axes.annotate(
            f"K={point['depth']}", (point["milliseconds"], point[figure]), (4, 8) if number % 2 else (4, -14), **NEAR
        )
    name = "full ranking" if found["full_ranking"] else f"K={points[-1]['depth']}"
    axes.axhline(points[-1][figure], linestyle=":", color="#666666")
    axes.axhline(points[0][figure], linestyle="--", color="#999999", linewidth=0.8)
    best = best_point(points, figure)
    axes.plot(
        best["milliseconds"], best[figure], marker="D", markersize=8, color="#12665c", linestyle="none", alpha=0.7
    )
    if equal is None:
        text = f"no point of equal quality: {no_equal(points, figure, name, within)}"
        axes.set_title(text, fontsize=8, color="#d62828")
    else:
        axes.plot(equal["milliseconds"], equal[figure], marker="*", markersize=15, color="#d62828", linestyle="none")
        text = f"quality of the {name} at K={equal['depth']}"
        axes.annotate(text, (equal["milliseconds"], equal[figure]), (8, 8), **{**NEAR, "color": "#d62828"})
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds per query")
    axes.set_ylabel(figure)
    axes.margins(y=0.15)
    plot.tight_layout()
    plot.savefig(path, dpi=110)
    plt.close(plot)


NEAR: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7}


def main(arguments: Sequence[str] | None = None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", help="a VSE model")
    parser.add_argument("second", help="a model of pairs, such as a cross-encoder")
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--features", help="stored features of the first stage")
    parser.add_argument("--rerank-features", help="stored features of the re-ranker, if not those of the first stage")
    parser.add_argument("--depths", default=",".join(map(str, DEPTHS)))
    parser.add_argument("--figure", default="rsum", choices=("rsum", "i2t_r1", "t2i_r1"))
    parser.add_argument("--within", type=float, default=0.0, help="difference that counts as equal")
    parser.add_argument("--full", type=int, default=FULL, help="pairs up to which everything is ranked")
    parser.add_argument("--images", type=int, metavar="N", help="rank the first N images of the split alone")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args(arguments)
    first, second = load_towers(given.first, threads=1), load_reranker(given.second, threads=1)
    data = open_for_pairs(first, given.data, given.split, features=given.features)
    pairs_data = open_for_pairs(second, given.data, given.split, features=given.rerank_features or given.features)
    depths = [int(each) for each in given.depths.split(",")]
    found = curve(first, second, data, pairs_data, depths, given.full, given.images)
    found["equal"] = equal_point(found["points"], given.figure, given.within)
    found["best"] = best_point(found["points"], given.figure)
    found["above"] = last_above(found["points"], given.figure)
    times = f"{found['pair_milliseconds']:.2f} ms per pair, {found['first_milliseconds']:.2f} ms per query before"
    print(f"{found['images']} images, {found['texts']} captions; {times}")
    print(f"{'K':>5} {'pairs/query':>11} {'ms/query':>9} {'rsum':>6} {'i2t R@1':>8} {'t2i R@1':>8}")
    for point in found["points"]:
        row = (
            f"{point['depth']:>5} {point['pairs_per_query']:>11.1f} {point['milliseconds']:>9.2f} {point['rsum']:>6.1f}"
        )
        print(f"{row} {point['i2t_r1']:>8.1f} {point['t2i_r1']:>8.1f}  {marks(found, point['depth'])}".rstrip())
    reached = "the full ranking" if found["full_ranking"] else f"K = {found['points'][-1]['depth']}"
    at = found["equal"]
    if at is None:
        worse = no_equal(found["points"], given.figure, reached, given.within)
        print(f"{given.figure}: no point of equal quality: {worse}")
    else:
        print(f"{given.figure} of {reached} is reached at K = {at['depth']}, {at['milliseconds']:.1f} ms per query")
    at = found["best"]
    print(f"{given.figure} is highest at K = {at['depth']}, {at['milliseconds']:.1f} ms per query")
    print(f"{given.figure} is no lower than that of the first stage up to K = {found['above']['depth']}")
    if given.out:
        given.out.write_text(json.dumps(found, indent=1))
    if given.plot:
        draw(found, given.figure, given.within, given.plot)
    return found


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    main()
