"""Results of training: a run, an ensemble, the demo, the list of recipes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from vse.demo.result import DemoResult
    from vse.training.ensemble import EnsembleResult
    from vse.training.recipes import RecipeList
    from vse.training.result import TrainingResult


def render_training(result: TrainingResult, console: Console) -> None:
    """Draw the figures of the best model, and where it is."""
    best = result.best
    dev = best.get("dev", {})
    table = Table(title=f"{result.name}: best on dev after epoch {best.get('epoch', 0) + 1}", title_justify="left")
    for column in ("", "R@1", "R@5", "R@10", "median rank"):
        table.add_column(column, justify="left" if not column else "right")
    seen = "video" if best.get("videos") else "image"
    for key, label in (("i2t", f"{seen} → text"), ("t2i", f"text → {seen}")):
        if key in dev:
            side = dev[key]
            table.add_row(label, *(f"{side[name]:.1f}" for name in ("r1", "r5", "r10")), f"{side['median_rank']:g}")
    console.print(table)
    console.print(
        f"rsum {best.get('rsum', 0):.1f}; {result.epochs} epochs, {result.steps} steps in {result.seconds:.0f} s, "
        f"{100 * result.waiting:.1f} % of it waiting for data"
    )
    console.print(f"model: {result.model}", soft_wrap=True, markup=False)


def render_ensemble(result: EnsembleResult, console: Console) -> None:
    """Draw every member, the mean of their scores, and the command that evaluates it."""
    for member in result.members:
        render_training(member, console)
    console.print(f"{result.name}, mean of the scores: rsum on dev {result.together.get('rsum', 0):.1f}", markup=False)
    models = " ".join(str(member.model) for member in result.members)
    console.print(f"evaluate it with: vse eval {models} --ensemble --data DIR", soft_wrap=True, markup=False)


def render_recipes(recipes: RecipeList, console: Console) -> None:
    """Draw the names of the recipes, each with its summary."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name in recipes.names:
        table.add_row(Text(name), Text(recipes.about(name)))
    console.print(table)


def render_demo(result: DemoResult, console: Console) -> None:
    """Draw the figures of both methods, explain the curves, and list what was written."""
    from vse.demo.result import COLUMNS

    scenes, captions = result.gallery
    seeds = len(result.methods[0].seeds)
    console.print(
        f"Held out: {scenes} scenes with {captions} captions, in combinations that none of the "
        f"{result.training} training scenes has. Mean of {seeds} seed{'s' if seeds > 1 else ''}."
    )
    table = Table()
    table.add_column("")
    for way in ("image → text", "text → image"):
        for _, label in COLUMNS:
            table.add_column(f"{way}\n{label}", justify="right")
    for method in result.methods:
        figures = (f"{method.mean(way, key):.1f}" for way in ("i2t", "t2i") for key, _ in COLUMNS)
        table.add_row(method.label, *figures)
    console.print(table)
    for line in result.explanation():
        console.print(line, markup=False)
    photos = () if result.photos is None else (f"photographs: {result.collection}   (vse serve {result.collection})",)
    for line in (
        f"curves: {result.curves_plot}",
        f"training: {result.training_plot}",
        f"model: {result.model}   (vse inspect {result.model})",
        f"scenes: {result.scenes}   (vse serve {result.scenes})",
        *photos,
    ):
        console.print(line, soft_wrap=True, markup=False)
