"""The paper's fig:grid_search: K-max with every pair of K for images and words, against GPO.

Max (K = 1) and average (K = all) are always in the grid: the best simple pooling may be either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

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
IMAGE_KS, TEXT_KS = (5, 20, 40), (3, 5, 10)
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
    """The pair with the highest rsum on dev."""

    image: int
    text: int


@dataclass(frozen=True)
class SearchResult:
    """Rsum on dev ``[image K][text K]`` of the search, and of GPO, for one seed."""

    image_ks: tuple[int, ...]
    text_ks: tuple[int, ...]
    dev: list[list[float]]
    gpo: float
    folder: Path
    quick: bool
    augmentation: str = ""

    @property
    def best(self) -> BestK:
        row, column = np.unravel_index(int(np.argmax(self.dev)), (len(self.image_ks), len(self.text_ks)))
        return BestK(self.image_ks[row], self.text_ks[column])

    @property
    def highest(self) -> float:
        return max(map(max, self.dev))

    def to_json(self) -> dict[str, Any]:
        return {
            "experiment": "k-max-search",
            "quick": self.quick,
            "seed": SEED,
            "protocol": PROTOCOL,
            "augmentation": self.augmentation,
            "image_ks": [_json_k(k) for k in self.image_ks],
            "text_ks": [_json_k(k) for k in self.text_ks],
            "dev_rsum": self.dev,
            "gpo_dev_rsum": self.gpo,
            "best": {
                "image": _json_k(self.best.image),
                "text": _json_k(self.best.text),
                "dev_rsum": self.highest,
            },
        }

    def summary(self) -> str:
        """Return the best pair, GPO, and how rsum was measured, in one line."""
        pair = f"{k_name(self.best.image)} for images and {k_name(self.best.text)} for words"
        how = f"augmentation {self.augmentation}; one seed; {PROTOCOL}"
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
    """Run the whole search, and GPO beside it."""
    call.expect_all_rows("k-max-search")
    result = _search(call, prepare(call))
    result.save()
    return result


def search_k(call: Call, place: Place) -> BestK:
    """Return the best pair on dev; the runs are shared with the experiment ``k-max-search``."""
    return _search(call, place).best


def search_image_k(call: Call, place: Place, common: Changes) -> int:
    """Return the K of images with the highest rsum on dev where ``common`` changes the rest of the model.

    Average and max are among them: the best simple pooling of the paper's tab:intro.
    """
    ks = _image_ks(call)
    grid = Grid(
        "image-k-search",
        "Simple poolings of images",
        tuple(Variant(k_name(k), place.recipe, (*k_pooling("image", k), *common)) for k in ks),
        changes=place.changes,
    )
    trained = train_grid(grid, (SEED,), call.runs_folder, jobs=call.jobs, report=call.report)
    return ks[int(np.argmax([*map(_dev, trained)]))]


def _image_ks(call: Call) -> tuple[int, ...]:
    return every_k(call.image_ks or (QUICK_KS if call.quick else IMAGE_KS))


def _text_ks(call: Call) -> tuple[int, ...]:
    return every_k(call.text_ks or (QUICK_KS if call.quick else TEXT_KS))


def _search(call: Call, place: Place) -> SearchResult:
    image_ks, text_ks = _image_ks(call), _text_ks(call)
    variants = [
        Variant(
            f"{k_name(image)} + {k_name(text)}", place.recipe, (*k_pooling("image", image), *k_pooling("text", text))
        )
        for image in image_ks
        for text in text_ks
    ]
    grid = Grid("k-max-search", "K-max search", (Variant(GPO, place.recipe), *variants), changes=place.changes)
    trained = train_grid(grid, (SEED,), call.runs_folder, jobs=call.jobs, report=call.report)
    gpo, *others = map(_dev, trained)
    width = len(text_ks)
    dev = [others[start : start + width] for start in range(0, len(others), width)]
    augmentation = augmentation_text(trained[0].recipe.augmentation.model_dump())
    return SearchResult(image_ks, text_ks, dev, gpo, call.out, call.quick, augmentation)


def _dev(trained: TrainedSeed) -> float:
    return float(trained.result.best["rsum"])


def _json_k(k: int) -> int | str:
    return "all" if k == ALL else k
