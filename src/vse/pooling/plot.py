"""Plot pooling coefficients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from vse.errors import InputError, require
from vse.pooling.base import RankPooling
from vse.pooling.rank_poolings import KMaxPool
from vse.pooling.sets import positive_int

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#1f2a44"
LEARNED = "#d1495b"
REFERENCES = {"mean": "#7f8fa6", "max": "#2a9d8f", "K-max": "#e9a23b"}


def plot_coefficients(
    pool: RankPooling, sizes: int | Iterable[int] = (5, 10, 20, 36), *, k: int | None = None, title: str | None = None
) -> Figure:
    """Plot the coefficients of ``pool`` against mean, max and K-max pooling, one panel per size.

    Coefficients per dimension are drawn as their mean with a band from the 5th to the 95th percentile.

    Args:
        pool: A pooling that weights ranks.
        sizes: Set sizes, one panel each.
        k: K of the K-max curve; by default the K closest to the learned curve in squared distance.
        title: Shown above the panels.

    Returns:
        A matplotlib figure: ``fig.savefig("curve.png")``.

    Raises:
        InputError: If ``sizes`` is empty or the pooling does not weight ranks.
    """
    chosen = [sizes] if isinstance(sizes, int) else list(sizes)
    if not chosen:
        raise InputError("sizes is empty; give at least one set size, such as sizes=(10, 36)")
    if not isinstance(pool, RankPooling):
        raise InputError(f"{type(pool).__name__} does not weight ranks, so it has no coefficients to draw")
    if k is not None:
        positive_int("k", k)
    curves = [pool.coefficients(size).double().cpu() for size in chosen]
    figure_module: Any = require("matplotlib.figure", extra="plot", purpose="plot_coefficients")
    columns = min(len(chosen), 4)
    rows = -(-len(chosen) // columns)
    figure: Figure = figure_module.Figure(figsize=(3.4 * columns, 2.9 * rows + 0.7), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for axis, size, curve in zip(axes, chosen, curves, strict=False):
        _panel(axis, size, curve, k)
    for axis in axes[len(chosen) :]:
        axis.set_visible(False)
    handles, labels = next(iter(figure.axes)).get_legend_handles_labels()
    names = [label.split(" (")[0] for label in labels]
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    figure.suptitle(title or f"Pooling coefficients of {type(pool).__name__}", color=INK, fontweight="bold")
    return figure


def nearest_k(curve: Any) -> int:
    """Return the K whose K-max coefficients are closest to ``curve (N,)`` in squared distance."""
    size = curve.shape[0]
    distances = [float(((KMaxPool(k).coefficients(size) - curve) ** 2).sum()) for k in range(1, size + 1)]
    return distances.index(min(distances)) + 1


def _panel(axis: Any, size: int, curve: Any, k: int | None) -> None:
    ranks = range(1, size + 1)
    centre = curve if curve.dim() == 1 else curve.mean(dim=1)
    used = nearest_k(centre) if k is None else min(k, size)
    marker = "o" if size <= 40 else None
    axis.plot(ranks, [1 / size] * size, color=REFERENCES["mean"], linewidth=1.4, linestyle="--", label="mean")
    axis.plot(ranks, [1.0, *[0.0] * (size - 1)], color=REFERENCES["max"], linewidth=1.4, linestyle=":", label="max")
    k_max = [1 / used if rank <= used else 0.0 for rank in ranks]
    axis.step(
        ranks,
        k_max,
        where="mid",
        color=REFERENCES["K-max"],
        linewidth=1.4,
        label=f"{'nearest ' if k is None else ''}K-max ({used})",
    )
    axis.plot(ranks, centre, color=LEARNED, linewidth=2.2, marker=marker, markersize=3.2, label="this pooling")
    if curve.dim() == 2:
        axis.fill_between(ranks, curve.quantile(0.05, dim=1), curve.quantile(0.95, dim=1), color=LEARNED, alpha=0.2)
    # Scale the panel to the learned curve: max pooling reaches 1 and would flatten all others.
    top = max(float(curve.max()), 2 / size) * 1.25
    low = min(0.0, float(curve.min()) * 1.1)
    axis.set_ylim(low - 0.03 * (top - low), min(top, 1.05) if top > 1 else top)
    kind = f"K = {used}" if k is not None else f"nearest K-max: K = {used}"
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, size) if size / step <= 8 or step >= size)
    axis.set_xticks(sorted({1, *range(step, size + 1, step)}))
    axis.set_title(f"set of {size}  ({kind})", fontsize=10, color=INK)
    axis.set_xlabel("rank (1 = largest value)", fontsize=9, color=INK)
    axis.set_ylabel("coefficient", fontsize=9, color=INK)
    axis.tick_params(labelsize=8, colors=INK)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color="#e6e9ef", linewidth=0.8)
    axis.set_axisbelow(True)
