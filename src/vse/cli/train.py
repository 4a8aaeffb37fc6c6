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
    show_recipe: Annotated[bool, typer.Option("--show", help="Print the complete recipe as JSON and exit.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="List the bundled recipes and exit.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train a model from a recipe.

    The same command resumes a run that was interrupted or killed. Under torchrun, several processes train together.
    """
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
