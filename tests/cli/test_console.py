"""Showing a result: one JSON object, plain lines as they are, or tables drawn with rich."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace

import pytest

from vse.cli.console import show
from vse.cli.render import PLAIN, RICH


class Drawn:
    """A result with a rich renderer."""

    def to_json(self):
        return {"a": [1, "ü"]}


class Plain(Drawn):
    """A result of plain lines."""


@pytest.fixture(autouse=True)
def renderers(monkeypatch):
    """Renderers for both."""
    fake = SimpleNamespace(
        draw=lambda result, console: console.print("[bold]drawn[/bold]"),
        lines=lambda result: ["[bold] is no markup", "x" * 300, "–"],
    )
    monkeypatch.setitem(sys.modules, "fake", fake)
    monkeypatch.setitem(RICH, "Drawn", "fake:draw")
    monkeypatch.setitem(PLAIN, "Plain", "fake:lines")


def test_console_prints_one_json_object(capsys):
    """JSON does not depend on the renderer."""
    for result in (Drawn(), Plain()):
        show(result, as_json=True)
        assert json.loads(capsys.readouterr().out) == {"a": [1, "ü"]}


def test_console_prints_lines_unchanged(capsys):
    """No markup, no wrapping."""
    show(Plain(), as_json=False)
    assert capsys.readouterr().out == "[bold] is no markup\n" + "x" * 300 + "\n–\n"


def test_console_draws_tables_with_rich(capsys):
    """Markup takes effect."""
    show(Drawn(), as_json=False)
    assert capsys.readouterr().out == "drawn\n"


def test_console_prints_lines_without_rich():
    """Neither rich nor the other renderers are imported."""
    code = (
        "import sys; from vse.cli.console import show; from vse.cli.serve import Listening;"
        "show(Listening('a', 'b'), as_json=False);"
        "print('rich' in sys.modules, 'vse.cli.render.evaluation' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "a is at b   (Ctrl-C stops it)\nFalse False\n"


@pytest.mark.parametrize("name", sorted({**PLAIN, **RICH}))
def test_renderers_match_their_registered_class(name):
    """mypy checks that an annotation names a class; here it is compared with the registry."""
    module, _, function = {**PLAIN, **RICH}[name].partition(":")
    renderer = getattr(import_module(module, "vse.cli.render"), function)
    parameters = inspect.signature(renderer).parameters
    assert [each.annotation for each in parameters.values()] == ([name] if name in PLAIN else [name, "Console"])
    assert (name in PLAIN) != (name in RICH)
