"""``vse train``: train a recipe, or resume a run that stopped."""

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
        typer.Argument(metavar="RECIPE", help="A name from --list, or a TOML file.", show_default=False),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder of the run; a stopped run is resumed [default: runs/RECIPE]."),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a value, such as optimizer.lr=1e-3; may be repeated."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The dataset; short for --set data.path=DIR.")
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(metavar="PLACE", help="Stored image or frame features; short for --set data.features=PLACE."),
    ] = None,
    as_released: Annotated[
        bool,
        typer.Option(
            "--as-released", help="Train as the authors' code does where it differs from the paper (see the docs)."
        ),
    ] = False,
    show_recipe: Annotated[bool, typer.Option("--show", help="Print the complete recipe as JSON and exit.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="List the bundled recipes and exit.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train a model from a recipe.

    The same command resumes a run that was interrupted or killed. Under torchrun, several processes train together.
    """
    require("torch", "train", "vse train")

    if listing:
        from vse.training.recipes import RecipeList, list_recipes

        show(RecipeList(list_recipes()), as_json=as_json)
        return
    if recipe is None:
        raise UsageError("name a recipe, or see them with 'vse train --list'")
    from vse.training.distributed import ranks_of_environment
    from vse.training.ensemble import changes_with, read_changed, train_recipe
    from vse.training.recipes import released_changes

    wanted = [*(released_changes(recipe) if as_released else ()), *(changes or ())]
    if show_recipe:
        print_json(read_changed(recipe, changes_with(wanted, data, features)).model_dump(mode="json"))
        return
    with progress_on_stderr() as progress:
        result = train_recipe(recipe, into, data=data, features=features, changes=wanted, progress=progress)
    if ranks_of_environment().first:
        show(result, as_json=as_json)
