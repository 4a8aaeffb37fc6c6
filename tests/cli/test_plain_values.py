"""Commands receive the values of typer's own conversion, and pydantic is loaded only for values that need it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer

from vse.cli.main import keep_plain


def received(arguments: list[str], *, plain: bool) -> Any:
    """The parameters of a command with one of each kind, or the parser's error."""
    app, found = typer.Typer(add_completion=False, rich_markup_mode=None), {}

    @app.callback()
    def root() -> None:
        pass

    @app.command()
    def take(
        first: str,
        rest: Annotated[list[str] | None, typer.Argument()] = None,
        several: Annotated[list[str] | None, typer.Option()] = None,
        numbers: Annotated[list[int] | None, typer.Option()] = None,
        count: Annotated[int, typer.Option(min=1)] = 10,
        share: float | None = None,
        half: float = 0.5,
        choice: Annotated[Literal["a", "b"], typer.Option()] = "a",
        place: Path | None = None,
        home: Path = Path("here"),
        flag: bool = False,
        text: str | None = None,
        shouted: Annotated[str, typer.Option(parser=str.upper)] = "quiet",
    ) -> None:
        found.update(locals())

    command = typer.main.get_command(app)
    if plain:
        keep_plain(command)
    try:
        with command.make_context("vse", ["take", *arguments]) as context:
            command.invoke(context)
    except typer.TyperException as error:
        return error.format_message()
    return {name: (type(value), value) for name, value in found.items() if name != "found"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["a"],
        ["a", "b", "c"],
        ["", "b"],
        ["a", "--several", "x", "--several", "y"],
        ["a", "--numbers", "3", "--numbers", "4"],
        ["a", "--count", "3", "--share", "0.25", "--half", "1"],
        ["a", "--choice", "b", "--place", "x/y", "--home", "there", "--flag", "--text", "t", "--shouted", "loud"],
        [],
        ["a", "--count", "0"],
        ["a", "--count", "x"],
        ["a", "--numbers", "3", "--numbers", "x"],
        ["a", "--share", "x"],
        ["a", "--choice", "c"],
        ["a", "--nonsense"],
        ["a", "--text"],
    ],
)
def test_lazy_conversion_equals_typer(arguments):
    """Types, values and errors, for options that are given or not."""
    assert received(arguments, plain=True) == received(arguments, plain=False)


@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [(["a text"], False), (["a text", "--not", "b", "--folder", "c"], False), (["-k", "3"], True)],
)
def test_search_for_text_loads_no_pydantic(arguments, loaded, tmp_path):
    """A number needs it. Modules of other commands are not imported."""
    code = "import sys; from vse.cli.main import main; main(sys.argv[1:]); print(*sys.modules)"
    command = [sys.executable, "-c", code, "search", str(tmp_path / "none.vse"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    assert ("pydantic" in modules) == loaded
    assert "vse.cli.search" in modules
    assert not {"vse.cli.train", "vse.cli.index", "rich", "torch"} & set(modules)
