"""``vse experiment`` and ``vse demo``: the calls of the library, and the output."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import vse.experiments.plan as _call  # noqa: F401  the fixture takes the package away, not this module
from vse.cli.main import main
from vse.cli.render import RICH
from vse.progress import ProgressReporter


class Result:
    """A result of an experiment."""

    def to_json(self):
        return {"rmse": 0.5, "name": "Größe"}


@pytest.fixture
def calls(monkeypatch):
    """The keyword arguments the library was called with; experiments and demo are replaced by a recorder."""
    seen = []

    def run(call=None, **arguments):
        arguments = arguments if call is None else vars(call)
        seen.append(arguments)
        progress = arguments.get("report") or arguments["progress"]
        progress.start(2, "working")
        progress.advance(2)
        return Result()

    recorder = ModuleType("recorder")
    recorder.run = run
    recorder.render = lambda result, console: console.print("a table")
    registry = ModuleType("vse.experiments")
    registry.EXPERIMENTS = {
        "curve": SimpleNamespace(summary="A curve.", target="recorder:run", trains=False),
        "table": SimpleNamespace(summary="A table.", target="recorder:run", trains=True),
    }
    monkeypatch.setitem(sys.modules, "recorder", recorder)
    monkeypatch.setitem(RICH, "Result", "recorder:render")
    monkeypatch.setitem(sys.modules, "vse.experiments", registry)
    monkeypatch.setitem(sys.modules, "vse.demo", recorder)
    return seen


def test_experiment_defaults(calls):
    """Without options an experiment runs in full into runs/NAME, with its own seeds and jobs."""
    assert main(["experiment", "curve"]) == 0
    (arguments,) = calls
    assert isinstance(arguments.pop("report"), ProgressReporter)
    assert arguments == {"quick": False, "out": Path("runs/curve"), "seeds": None, "jobs": None}


def test_experiment_receives_options(calls, tmp_path):
    """Every option is converted."""
    options = ["--quick", "--out", str(tmp_path), "--seeds", "3, 1", "--jobs", "2"]
    assert main(["experiment", "curve", *options]) == 0
    (arguments,) = calls
    del arguments["report"]
    assert arguments == {"quick": True, "out": tmp_path, "seeds": (3, 1), "jobs": 2}


def test_experiment_receives_data_and_changes(calls):
    """The changes of recipes keep their order."""
    options = ["--data", "d", "--features", "f", "--set", "a=1", "--set", "b=2", "--recipe", "r", "--runs", "t"]
    assert main(["experiment", "table", *options, "--seeds", "3,1", "--jobs", "2", "--quick", "--out", "o"]) == 0
    given = {"data": Path("d"), "features": Path("f"), "changes": ("a=1", "b=2"), "recipe": "r", "runs": Path("t")}
    given |= {"seeds": (3, 1), "jobs": 2, "quick": True, "out": Path("o")}
    assert given.items() <= calls[0].items()


@pytest.mark.parametrize("option", ["--data", "--features", "--set", "--recipe", "--runs"])
def test_experiment_without_dataset_refuses_data_options(calls, capsys, option):
    """They are an error rather than ignored."""
    assert main(["experiment", "curve", option, "a=1"]) == 2
    assert f"{option}: the experiment 'curve' takes no dataset" in capsys.readouterr().err
    assert not calls


def test_demo_writes_to_its_own_folder(calls):
    """The demo's default folder is vse-demo."""
    assert main(["demo", "--no-page"]) == 0
    assert calls[0]["out"] == Path("vse-demo")
    assert isinstance(calls[0]["progress"], ProgressReporter)


@pytest.mark.parametrize("command", [["demo", "--no-page"], ["experiment", "curve"]])
def test_results_on_stdout_progress_on_stderr(calls, capsys, command):
    """With ``--json`` stdout is exactly one ASCII object."""
    assert main(command) == 0
    output = capsys.readouterr()
    assert output.out == "a table\n"
    assert "working" in output.err
    assert main([*command, "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out) == Result().to_json()
    assert output.out.isascii()
    assert "working" in output.err


def test_json_with_nan_is_an_error(calls, capsys, monkeypatch):
    """NaN is not JSON."""
    monkeypatch.setattr(Result, "to_json", lambda self: {"rmse": float("nan")})
    assert main(["demo", "--json"]) == 1
    assert capsys.readouterr().out == ""
