"""The paper's fig:viz_gpo: the pooling that VSE∞ has learned for pictures and for words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vse.curves import PoolingCurve, curves_of
from vse.curves_plot import plot_curves
from vse.experiments.call import Call
from vse.experiments.grid.plan import Grid, Variant
from vse.experiments.grid.runs import train_grid
from vse.experiments.photo_table import prepare
from vse.files import write_json
from vse.storage import load_model

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class CoefficientsResult:
    """The curves of one trained model."""

    curves: tuple[PoolingCurve, ...]
    model: Path
    folder: Path

    def to_json(self) -> dict[str, Any]:
        return {
            "experiment": "coefficients",
            "model": str(self.model),
            "curves": [curve.to_json() for curve in self.curves],
        }

    def render(self, console: Console) -> None:
        for curve in self.curves:
            nearest = "no curve" if curve.nearest is None else curve.nearest.label
            console.print(f"{curve.tower}, {curve.size} elements: {nearest}", highlight=False)
        console.print(f"The picture is {self.folder / 'coefficients.png'}", soft_wrap=True)


def run(call: Call) -> CoefficientsResult:
    """Of the first seed."""
    place = prepare(call)
    grid = Grid("coefficients", "Learned poolings", (Variant("VSE∞", place.recipe),), changes=place.changes)
    seeds = call.chosen_seeds((0,))
    trained = train_grid(grid, seeds[:1], call.runs_folder, jobs=call.jobs, report=call.report)
    model = trained[0].result.model
    result = CoefficientsResult(tuple(curves_of(load_model(model))), model, call.out)
    call.out.mkdir(parents=True, exist_ok=True)
    plot_curves(result.curves, call.out / "coefficients.png")
    write_json(call.out / "result.json", result.to_json())
    return result
