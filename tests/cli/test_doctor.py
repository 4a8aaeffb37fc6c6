"""``vse doctor``: what it reports, its self-test and its exit code; and shell completion."""

from __future__ import annotations

import json

import pytest

import vse
from vse.cli.doctor import DoctorReport, self_test
from vse.cli.main import main
from vse.errors import MissingDependencyError


def test_doctor_tests_a_search(capsys):
    """The model is loaded, images and a text are encoded, indexed and found; the exit code is 0."""
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"]
    assert [check["name"] for check in report["checks"]] == ["model", "encode", "index", "search"]
    assert all(check["problem"] is None for check in report["checks"])
    assert report["versions"]["vse"].startswith(vse.__version__)
    assert "photo" in report["models"]
    assert "cpu" in report["devices"]


def test_doctor_fails_without_model(monkeypatch, capsys):
    """The first failure ends the self-test; it is shown in one line, and the exit code is 1."""

    def missing(*args, **options):
        raise MissingDependencyError("the model 'photo' is not installed: pip install it\nmore")

    monkeypatch.setattr("vse.models.sources.load_towers", missing)
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "FAILED  model: the model 'photo' is not installed: pip install it" in lines
    assert lines[-1] == "the self-test failed"
    assert [check.name for check in self_test()] == ["model"]


def test_doctor_without_test_is_ok():
    """A report without checks is not a failure."""
    assert DoctorReport({}, {}, [], {}, [], []).ok


@pytest.mark.parametrize(
    ("words", "position", "expected"), [("vse sear", "1", ["search"]), ("vse search --evid", "2", ["--evidence"])]
)
def test_shell_completes_commands_and_options(words, position, expected, monkeypatch, capsys):
    """A shell that asks gets the names that begin so, and no command runs."""
    monkeypatch.setenv("_VSE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", position)
    assert main([]) == 0
    assert capsys.readouterr().out.split() == expected
