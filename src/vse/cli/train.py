"""``vse train``: train a recipe, or continue where it stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vse.cli.console import print_json, progress_on_stderr, show
from vse.cli.options import JsonOption
from vse.errors import UsageError, require


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(metavar="RECIPE", help="A name of --list, or a TOML file.", show_default=False),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The run's folder; a run that stopped goes on here [default: runs/RECIPE]."),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one value, such as optimizer.lr=1e-3; repeat it."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The data set; short for --set data.path=DIR.")
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(
            metavar="PLACE", help="Stored features, or a video's frames; short for --set data.features=PLACE."
        ),
    ] = None,
    show_recipe: Annotated[bool, typer.Option("--show", help="Print the complete recipe as JSON and stop.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="Name the recipes that come with vse.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train a model. Killed at any moment, the same command continues; under torchrun, several processes share it."""
    require("torch", "train", "vse train")
    from vse.training.recipe import EnsembleRecipe
    from vse.training.recipes import find_recipe, list_recipes, read_recipe, read_values, toml_text

    if listing:
        from vse.training.recipes import RecipeList

        show(RecipeList(list_recipes()), as_json=as_json)
        return
    if recipe is None:
        raise UsageError("name a recipe, or see them with 'vse train --list'")
    places = [f"data.path={toml_text(data)}"] if data else []
    places += [f"data.features={toml_text(features)}"] if features else []
    all_changes = [*places, *(changes or [])]
    ensemble = "members" in read_values(find_recipe(recipe))
    wanted = read_recipe(recipe, [] if ensemble else all_changes)
    if show_recipe:
        print_json(wanted.model_dump(mode="json"))
        return
    name = Path(recipe).stem
    folder = into or Path("runs") / name
    from vse.training.distributed import ranks_of_environment
    from vse.training.ensemble import EnsembleResult, train_ensemble
    from vse.training.result import TrainingResult
    from vse.training.train import train as run

    result: TrainingResult | EnsembleResult
    with progress_on_stderr() as progress:
        if isinstance(wanted, EnsembleRecipe):
            beside = find_recipe(recipe).parent
            result = train_ensemble(wanted, folder, name=name, beside=beside, changes=all_changes, progress=progress)
        else:
            result = run(wanted, folder, name=name, progress=progress)
    if ranks_of_environment().first:
        show(result, as_json=as_json)
