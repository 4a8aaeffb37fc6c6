"""Showing a result: one JSON object, plain lines as they are, or what it draws itself."""

from __future__ import annotations

import json
import subprocess
import sys

from vse.cli.console import show


class Drawn:
    """Draws itself."""

    def to_json(self):
        return {"a": [1, "ü"]}

    def render(self, console):
        console.print("[bold]drawn[/bold]")


class Plain(Drawn):
    """Has lines as well."""

    def lines(self):
        return ["[bold] is no markup", "x" * 300, "–"]


def test_json_is_one_object(capsys):
    """Whatever else the result can do."""
    for result in (Drawn(), Plain()):
        show(result, as_json=True)
        assert json.loads(capsys.readouterr().out) == {"a": [1, "ü"]}


def test_lines_are_written_as_they_are(capsys):
    """No markup, no wrapping."""
    show(Plain(), as_json=False)
    assert capsys.readouterr().out == "[bold] is no markup\n" + "x" * 300 + "\n–\n"


def test_what_has_no_lines_draws_itself(capsys):
    """With rich."""
    show(Drawn(), as_json=False)
    assert capsys.readouterr().out == "drawn\n"


def test_lines_need_no_rich():
    """Loading it takes longer than writing them."""
    code = (
        "import sys; from vse.cli.console import show; R = type('R', (), dict(to_json=dict, render=dict,"
        "lines=lambda self: ['a'])); show(R(), as_json=False); print('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "a\nFalse\n"
