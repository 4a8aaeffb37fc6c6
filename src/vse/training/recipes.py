"""Find recipes by name, read them, and change single values."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from vse._util.strict import parse
from vse.errors import LONGEST_REASON, InputError, first_line, unknown_choice
from vse.training.recipe import EnsembleRecipe, Recipe

EXTENDS = "extends"
NAMED = ("pooling", "video_pooling", "sentence_pooling", "backbone")
MAX_DEPTH = 8  # levels of "extends"; more is a cycle


def recipes_folder() -> Path:
    """Return the folder of the bundled recipes: inside the package, or beside ``src`` in a source tree."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parents[1] / "recipes"


def toml_text(value: str | Path) -> str:
    """Return a text as a TOML string; JSON strings are TOML strings."""
    return json.dumps(str(value), ensure_ascii=False)


def list_recipes() -> list[str]:
    """Return the names of the bundled recipes, without those that only others extend (``base-…``)."""
    return sorted(path.stem for path in recipes_folder().glob("*.toml") if not path.stem.startswith("base-"))


def find_recipe(name: str | Path) -> Path:
    """Return the file of a recipe.

    Args:
        name: a path, or the name of a bundled recipe.

    Raises:
        InputError: If the recipe does not exist.
    """
    path = Path(name)
    if len(path.name) > LONGEST_REASON:
        raise InputError(f"no recipe has a name of {len(path.name)} characters, {path.name[:40]!r}…")
    if path.suffix == ".toml" and path.is_file():
        return path
    shipped = recipes_folder() / f"{name}.toml"
    if path.name == str(name) and shipped.is_file():
        return shipped
    if path.suffix == ".toml" or len(path.parts) > 1:
        raise InputError(f"{path}: no such recipe; 'vse train --list' names the bundled ones")
    close = get_close_matches(str(name), list_recipes(), n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise InputError(f"unknown recipe {str(name)!r}{hint}: 'vse train --list' names the bundled ones")


def read_recipe(name: str | Path, changes: Sequence[str] = ()) -> Recipe | EnsembleRecipe:
    """Read a recipe.

    Args:
        name: a path, or the name of a bundled recipe.
        changes: such as ``"schedule.epochs=3"``, applied one after the other. A value is read as TOML (``3``, ``0.1``,
            ``true``, ``[1, 2]``) and, where that fails, as text.

    Raises:
        InputError: the recipe is missing or invalid.
    """
    path = find_recipe(name)
    values = read_values(path)
    if "members" in values:
        if changes:
            raise InputError(f"{path}: an ensemble has no values of its own to set; change its members' recipes")
        return parse(EnsembleRecipe, values, str(path))
    recipe = parse(Recipe, values, str(path))
    if not changes:
        return recipe
    before = deepcopy(values)
    for change in changes:
        apply_change(values, change)
    try:
        return parse(Recipe, values, "--set")
    except InputError as error:
        # All changes together are invalid. Name the first one that is invalid after those before it. Values that are
        # invalid only until a later change (fewer epochs, then fewer decay epochs) do not get here.
        for change in changes:
            apply_change(before, change)
            parse(Recipe, before, f"--set {_shown(change)}")
        raise error from None


AS_RELEASED = (
    'loss.same_image="negatives"',
    'augmentation.image="released"',
    'augmentation.text="released"',
    "data.dev_captions=5000",
    "released.padded_norm=true",
    "released.partial_batch=true",
    "released.scaled_loss=true",
    "released.special_words=true",
)


def released_changes(name: str | Path) -> tuple[str, ...]:
    """Return the changes by which a recipe of the paper trains as the authors' code does.

    Grid models warm up by scaling the loss, region models not at all. An ensemble has no values to change.

    Raises:
        InputError: the recipe is missing or invalid, or is not one of images and captions.
    """
    recipe = read_recipe(name)
    if isinstance(recipe, EnsembleRecipe):
        raise InputError(f"{name}: an ensemble has no values of its own to set; train its members with --as-released")
    towers = recipe.model.kind == "vse" and recipe.model.token_source != "start"
    if not towers or recipe.model.item_input not in {"region", "grid"}:
        raise InputError(f"{name}: the authors' code trains image models of regions or grid cells, not this one")
    warm_up = () if recipe.model.item_input == "grid" else ("schedule.warmup_epochs=0",)
    return AS_RELEASED + warm_up


def read_values(path: Path, depth: int = 0) -> dict[str, Any]:
    """Return the tables of a recipe file, merged over those of the file it ``extends`` (beside it, or bundled)."""
    if depth > MAX_DEPTH:
        raise InputError(f"{path}: extends itself by way of others")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
    except (ValueError, RecursionError) as error:  # also numbers and nesting beyond Python's limits
        raise InputError(f"{path}: not TOML ({first_line(error)})") from None
    base = values.pop(EXTENDS, None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise InputError(f"{path}: {EXTENDS!r} is {base!r}, expected the name of a recipe")
    candidates = (path.parent / f"{base}.toml", recipes_folder() / f"{base}.toml")
    below = next((each for each in candidates if each.is_file()), None)
    if below is None:
        known = {each.stem for folder in {path.parent, recipes_folder()} for each in folder.glob("*.toml")}
        raise InputError(f"{path}: {EXTENDS!r}: {unknown_choice('recipe', base, sorted(known - {path.stem}))}")
    under = read_values(below, depth + 1)
    if "members" not in under:
        _check_base(under, below)
    return merged(under, values)


def _check_base(values: dict[str, Any], path: Path) -> None:
    """Report what is invalid in a base file as an error of that file; missing values are not errors of a base."""
    try:
        parse(Recipe, values, str(path))
    except InputError as error:
        if "is missing" not in str(error):
            raise


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return ``over`` merged over ``under``, table by table.

    A table of another ``kind`` replaces the one below, and so does a pooling or backbone of another name, since their
    options differ. A model of another ``system`` takes none of the options below.
    """
    result = dict(under)
    if "system" in over and over["system"] != under.get("system"):
        result.pop("options", None)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(value, dict) and key in NAMED and isinstance(below, str):
            below = {"name": below}
        if isinstance(value, dict) and isinstance(below, dict):
            tag = "name" if key in NAMED else "kind"
            other = tag in value and tag in below and value[tag] != below[tag]
            result[key] = value if other else merged(below, value)
        else:
            result[key] = value
    return result


def apply_change(values: dict[str, Any], change: str) -> None:
    """Set one value in place, given as ``a.b.c=value``."""
    key, equals, text = change.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not equals or not all(parts):
        raise InputError(f"--set {_shown(change)}: expected KEY=VALUE, such as schedule.epochs=3")
    place = values
    if parts[-1] == "name" and len(parts) > 1 and parts[-2] in NAMED:  # another pooling has other options
        parts = parts[:-1]
    for part in parts[:-1]:
        inner = place.get(part)
        if isinstance(inner, str):  # the short form of something named, such as pooling = "gpo"
            inner = {"name": inner}
        elif not isinstance(inner, dict):
            inner = {}
        place[part] = inner
        place = inner
    place[parts[-1]] = _value(text.strip())


def _value(text: str) -> Any:
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return found["value"] if len(found) == 1 else text


def _shown(change: str) -> str:
    """Shorten a change for a message of one line."""
    return " ".join(change.split())[:LONGEST_REASON]


@dataclass(frozen=True)
class RecipeList:
    """Names of recipes with their summaries."""

    names: Sequence[str]

    def about(self, name: str) -> str:
        """Return the summary of a recipe."""
        return str(read_values(find_recipe(name)).get("about", ""))

    def to_json(self) -> dict[str, Any]:
        return {"recipes": {name: self.about(name) for name in self.names}}
