"""The paper's fig:grid_search: K-max with every pair of K for images and words, against GPO.

Max (K = 1) and average (K = all) are always in the grid: the best simple pooling may be either. A K of all elements or
more is the average, and left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vse._util.atomic import write_json, write_text
from vse.errors import InputError, require
from vse.experiments.grid.compare import TrainedSeed, train_grid
from vse.experiments.grid.report import augmentation_text
from vse.experiments.image_table import Changes, Place, pooling, prepare
from vse.experiments.plan import Call, Grid, Variant
from vse.pooling.plot import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALL = 0
"""Stands for K = all elements, the average."""
CELLS = 49
IMAGE_KS, TEXT_KS = (5, 20, 40), (3, 5, 10)
"""Searched by default; those of images are for sets of :data:`CELLS`, and in proportion for other sizes."""
QUICK_KS = (4,)
SEED = 0
GPO = "GPO"
PROTOCOL = "rsum on the dev split, every image at once"


def every_k(ks: Sequence[int]) -> tuple[int, ...]:
    """Return the K of a search in order, with 1 (max) and :data:`ALL` (average) among them.

    >>> every_k((20, 5))
    (1, 5, 20, 0)
    """
    if any(k < 1 for k in ks):
        raise InputError(f"K of K-max is {min(ks)}, expected numbers from 1 on; K = all is always searched")
    return (*sorted({1, *ks}), ALL)


def k_pooling(side: str, k: int) -> Changes:
    """Return the change of the pooling of a side to K-max; :data:`ALL` is the average and 1 the maximum."""
    if k in {ALL, 1}:  # the poolings of other tables, so that runs are shared
        return pooling(side, "avg" if k == ALL else "max")
    return pooling(side, "k-max", k=k)


def k_name(k: int) -> str:
    """Return the name of a pooling: ``Avg``, ``Max`` or ``20-max``."""
    return {ALL: "Avg", 1: "Max"}.get(k, f"{k}-max")


@dataclass(frozen=True)
class BestK:
    """The K with the highest rsum on dev; None for a side that was not searched."""

    image: int | None = None
    text: int | None = None


@dataclass(frozen=True)
class SearchResult:
    """Rsum on dev of the search ``[seed][image K][text K]``, and of GPO for each seed."""

    image_ks: tuple[int, ...]
    text_ks: tuple[int, ...]
    seeds: tuple[int, ...]
    by_seed: NDArray[np.float64]
    gpo_by_seed: tuple[float, ...]
    folder: Path
    quick: bool
    augmentation: str = ""

    @property
    def dev(self) -> list[list[float]]:
        """The mean over seeds ``[image K][text K]``, by which the best pair is selected."""
        means: list[list[float]] = self.by_seed.mean(axis=0).tolist()
        return means

    @property
    def gpo(self) -> float:
        """The mean of GPO over seeds."""
        return float(np.mean(self.gpo_by_seed))

    @property
    def best(self) -> tuple[int, int]:
        """K of images and of words with the highest mean."""
        row, column = np.unravel_index(int(np.argmax(self.dev)), (len(self.image_ks), len(self.text_ks)))
        return self.image_ks[row], self.text_ks[column]

    @property
    def highest(self) -> float:
        return max(map(max, self.dev))

    def to_json(self) -> dict[str, Any]:
        return {
            "experiment": "k-max-search",
            "quick": self.quick,
            "seeds": list(self.seeds),
            "protocol": PROTOCOL,
            "augmentation": self.augmentation,
            "image_ks": [_json_k(k) for k in self.image_ks],
            "text_ks": [_json_k(k) for k in self.text_ks],
            "dev_rsum": self.dev,
            "gpo_dev_rsum": self.gpo,
            "by_seed": [
                {"seed": seed, "dev_rsum": values.tolist(), "gpo_dev_rsum": gpo}
                for seed, values, gpo in zip(self.seeds, self.by_seed, self.gpo_by_seed, strict=True)
            ],
            "best": {
                "image": _json_k(self.best[0]),
                "text": _json_k(self.best[1]),
                "dev_rsum": self.highest,
            },
        }

    def summary(self) -> str:
        """Return the best pair, GPO, and how rsum was measured, in one line."""
        pair = f"{k_name(self.best[0])} for images and {k_name(self.best[1])} for words"
        seeds = "one seed" if len(self.seeds) == 1 else f"mean of {len(self.seeds)} seeds"
        how = f"augmentation {self.augmentation}; {seeds}; {PROTOCOL}"
        return f"GPO: {self.gpo:.1f}. Best pair: {pair}, {self.highest:.1f}. {how[0].upper()}{how[1:]}."

    def markdown(self) -> str:
        """Return a table with the K of images in rows and the K of words in columns."""
        heads = " | ".join(f"words {k_name(k)}" for k in self.text_ks)
        lines = [f"| rsum on dev | {heads} |", "|---|" + "--:|" * len(self.text_ks)]
        for k, values in zip(self.image_ks, self.dev, strict=True):
            lines.append(f"| images {k_name(k)} | " + " | ".join(f"{value:.1f}" for value in values) + " |")
        return "\n".join(lines) + f"\n\n{self.summary()}\n"

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / "table.md", self.markdown())
        self.draw().savefig(self.folder / "search.png", dpi=130)
        write_json(self.folder / "result.json", self.to_json())

    def draw(self) -> Figure:
        """Plot the search as a heat map, with GPO in the title."""
        module: Any = require("matplotlib.figure", extra="plot", purpose="the plot of the search")
        figure: Figure = module.Figure(figsize=(5.6, 4.6), layout="constrained", facecolor="white")
        axis: Any = figure.subplots()
        axis.imshow(self.dev, cmap="YlGnBu", aspect="auto")
        middle = (self.highest + min(map(min, self.dev))) / 2
        for row, values in enumerate(self.dev):
            for column, value in enumerate(values):
                colour = "white" if value > middle else INK
                axis.text(column, row, f"{value:.1f}", ha="center", va="center", color=colour, fontsize=10)
        axis.set_xticks(range(len(self.text_ks)), [k_name(k) for k in self.text_ks])
        axis.set_yticks(range(len(self.image_ks)), [k_name(k) for k in self.image_ks])
        axis.set_xlabel("K of words", color=INK)
        axis.set_ylabel("K of images", color=INK)
        axis.set_title(f"K-max search, rsum on dev; GPO reaches {self.gpo:.1f}", color=INK, fontsize=11)
        return figure


def run(call: Call) -> SearchResult:
    """Run the whole search with every seed, and GPO beside it."""
    call.expect_all_rows("k-max-search")
    place = prepare(call)
    image_ks, text_ks = _image_ks(call, place), _text_ks(call)
    pairs = [_pair(place, (image, text), ()) for image in image_ks for text in text_ks]
    grid = Grid("k-max-search", "K-max search", (Variant(GPO, place.recipe), *pairs), changes=place.changes)
    seeds = call.chosen_seeds((SEED,))
    trained = train_grid(grid, seeds, call.runs_folder, jobs=call.jobs, report=call.report)
    dev = np.array([*map(_dev, trained)]).reshape(len(seeds), 1 + len(pairs))  # train_grid goes seed by seed
    result = SearchResult(
        image_ks,
        text_ks,
        seeds,
        dev[:, 1:].reshape(len(seeds), len(image_ks), len(text_ks)),
        tuple(dev[:, 0].tolist()),
        call.out,
        call.quick,
        augmentation_text(trained[0].recipe.augmentation.model_dump()),
    )
    result.save()
    return result


def search_k(call: Call, place: Place, sides: Sequence[str], common: Changes) -> BestK:
    """Return the K with the highest rsum on dev, with the first seed of the call.

    Average and max are among them: the best simple pooling of the paper's tab:intro. Runs are shared with the
    experiment ``k-max-search`` where the settings are equal.

    Args:
        call: the K to search, and the seeds.
        place: the recipe and its data.
        sides: ``image``, ``text`` or both; the other side keeps its pooling.
        common: changes of the rest of the model and of its training: a search holds for its own setting alone.
    """
    image_ks: tuple[int | None, ...] = _image_ks(call, place) if "image" in sides else (None,)
    text_ks: tuple[int | None, ...] = _text_ks(call) if "text" in sides else (None,)
    pairs = [(image, text) for image in image_ks for text in text_ks]
    variants = tuple(_pair(place, pair, common) for pair in pairs)
    grid = Grid("k-search", "Simple poolings", variants, changes=place.changes)
    seeds = call.chosen_seeds((SEED,))[:1]
    trained = train_grid(grid, seeds, call.runs_folder, jobs=call.jobs, report=call.report)
    return BestK(*pairs[int(np.argmax([*map(_dev, trained)]))])


def _pair(place: Place, ks: tuple[int | None, int | None], common: Changes) -> Variant:
    searched = {side: k for side, k in zip(("image", "text"), ks, strict=True) if k is not None}
    changes = (change for side, k in searched.items() for change in k_pooling(side, k))
    return Variant(" + ".join(map(k_name, searched.values())), place.recipe, (*changes, *common))


def _image_ks(call: Call, place: Place) -> tuple[int, ...]:
    """Return the K of images: those of the call, or the default ones in proportion to the elements of an image."""
    elements = place.elements()
    usual = IMAGE_KS if elements is None else tuple(max(1, round(k * elements / CELLS)) for k in IMAGE_KS)
    chosen = call.image_ks or (QUICK_KS if call.quick else usual)
    if elements is None:
        return every_k(chosen)
    same = [k for k in chosen if k >= elements]
    if same and call.image_ks:
        call.report.note(f"K = {', '.join(map(str, same))} of {elements} elements is the average: left out")
    return every_k([k for k in chosen if k < elements])


def _text_ks(call: Call) -> tuple[int, ...]:
    return every_k(call.text_ks or (QUICK_KS if call.quick else TEXT_KS))


def _dev(trained: TrainedSeed) -> float:
    return float(trained.result.best["rsum"])


def _json_k(k: int) -> int | str:
    return "all" if k == ALL else k
