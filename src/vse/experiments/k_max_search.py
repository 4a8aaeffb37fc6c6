"""The paper's fig:grid_search: K-max with every pair of K for images and words, against GPO."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vse._util.atomic import write_json, write_text
from vse.errors import require
from vse.experiments.grid.compare import TrainedSeed, train_grid
from vse.experiments.image_table import Place, pooling, prepare
from vse.experiments.plan import Call, Grid, Variant
from vse.pooling.plot import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IMAGE_KS, TEXT_KS = (5, 20, 40), (1, 3, 8)
QUICK_KS = (1, 4)
SEED = 0
GPO = "GPO"


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
            "image_ks": list(self.image_ks),
            "text_ks": list(self.text_ks),
            "dev_rsum": self.dev,
            "gpo_dev_rsum": self.gpo,
            "best": {"image": self.best.image, "text": self.best.text, "dev_rsum": self.highest},
        }

    def markdown(self) -> str:
        """Return a table with the K of images in rows and the K of words in columns."""
        heads = " | ".join(f"words {k}" for k in self.text_ks)
        lines = [f"| rsum on dev | {heads} |", "|---|" + "--:|" * len(self.text_ks)]
        for k, values in zip(self.image_ks, self.dev, strict=True):
            lines.append(f"| images {k} | " + " | ".join(f"{value:.1f}" for value in values) + " |")
        summary = (
            f"GPO: {self.gpo:.1f}. Best pair: {self.best.image} and {self.best.text}, {self.highest:.1f}. One seed."
        )
        return "\n".join(lines) + f"\n\n{summary}\n"

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
        axis.set_xticks(range(len(self.text_ks)), [str(k) for k in self.text_ks])
        axis.set_yticks(range(len(self.image_ks)), [str(k) for k in self.image_ks])
        axis.set_xlabel("K of words", color=INK)
        axis.set_ylabel("K of images", color=INK)
        axis.set_title(f"K-max search, rsum on dev; GPO reaches {self.gpo:.1f}", color=INK, fontsize=11)
        return figure


def run(call: Call) -> SearchResult:
    """Run the whole search, and GPO beside it."""
    result = _search(call, prepare(call))
    result.save()
    return result


def search_k(call: Call, place: Place) -> BestK:
    """Return the best pair on dev; the runs are shared with the experiment ``k-max-search``."""
    return _search(call, place).best


def _search(call: Call, place: Place) -> SearchResult:
    image_ks, text_ks = (QUICK_KS, QUICK_KS) if call.quick else (IMAGE_KS, TEXT_KS)
    pairs = [(image, text) for image in image_ks for text in text_ks]
    variants = [
        Variant(
            f"{image}-max + {text}-max",
            place.recipe,
            (*pooling("image", "k-max", k=image), *pooling("text", "k-max", k=text)),
        )
        for image, text in pairs
    ]
    grid = Grid("k-max-search", "K-max search", (Variant(GPO, place.recipe), *variants), changes=place.changes)
    trained = train_grid(grid, (SEED,), call.runs_folder, jobs=call.jobs, report=call.report)
    gpo, *others = map(_dev, trained)
    width = len(text_ks)
    dev = [others[start : start + width] for start in range(0, len(others), width)]
    return SearchResult(image_ks, text_ks, dev, gpo, call.out, call.quick)


def _dev(trained: TrainedSeed) -> float:
    return float(trained.result.best["rsum"])
