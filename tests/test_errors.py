"""Contracts of the errors: what they are, what they say, and how a missing library is reported."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pytest

from vse.errors import InputError, MissingDependencyError, UsageError, VSEError, require, unknown_choice


@pytest.fixture
def importable(tmp_path, monkeypatch):
    """A function that makes a module of the given name and source importable."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, source: str) -> None:
        (tmp_path / f"{name}.py").write_text(source)

    return write


@pytest.mark.parametrize(
    ("error", "builtin", "exit_code"),
    [
        (VSEError, Exception, 1),
        (InputError, ValueError, 1),
        (UsageError, Exception, 2),
        (MissingDependencyError, ImportError, 1),
    ],
)
def test_every_error_is_ours_and_the_builtin_a_caller_expects(error, builtin, exit_code):
    """An error can be caught as VSEError or as its builtin kind, and knows its exit code."""
    assert issubclass(error, VSEError)
    assert issubclass(error, builtin)
    assert error.exit_code == exit_code


@pytest.mark.parametrize("error", [VSEError, InputError, UsageError, MissingDependencyError])
def test_errors_survive_the_way_between_processes(error):
    """An error raised in a worker process arrives with its type and message."""
    copy = pickle.loads(pickle.dumps(error("k = 0: expected at least 1")))
    assert type(copy) is error
    assert str(copy) == "k = 0: expected at least 1"


def test_require_returns_the_module():
    """A module that is there is returned, dotted names too."""
    assert require("json", "train", "a test") is json
    assert require("json.decoder", "train", "a test") is json.decoder


def test_require_tells_how_to_install_what_is_absent():
    """The line names what needs the module, the module and the command that brings it."""
    with pytest.raises(MissingDependencyError) as caught:
        require("no_such_library.part", "train", "vse.pooling")
    message = str(caught.value)
    install = 'pip install ".[train]" (or make setup) in a clone'
    assert message == f"vse.pooling needs no_such_library, which is not installed: {install}"
    assert caught.value.name == "no_such_library.part"


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("import its_missing_part", "No module named 'its_missing_part'"),
        ("from json import no_such_name", "cannot import name 'no_such_name'"),
        ("raise OSError('libfoo.so: cannot open')", "OSError: libfoo.so: cannot open"),
        ("raise RuntimeError('operator does not exist')", "RuntimeError: operator does not exist"),
    ],
)
def test_require_does_not_call_a_broken_library_absent(importable, source, cause):
    """A library that is there but fails to load is reported with its cause, not with advice to install it."""
    importable("broken_library", source)
    with pytest.raises(MissingDependencyError) as caught:
        require("broken_library", "train", "vse.pooling")
    message = str(caught.value)
    assert "broken_library, which is installed but cannot be imported" in message
    assert cause in message
    assert "pip install" not in message
    assert "\n" not in message


def test_require_knows_a_library_too_old_for_the_part_asked_for(importable):
    """A library without the submodule asked for is installed, and the message does not deny it."""
    importable("flat_library", "")
    with pytest.raises(MissingDependencyError, match=r"flat_library\.part, which is installed but"):
        require("flat_library.part", "train", "vse.pooling")


def test_unknown_choice_names_value_set_and_closest():
    """A closed choice reports the value, every valid one and, if one is near, which was meant."""
    message = unknown_choice("pooling", "kmax", ["avg", "max", "k-max"])
    assert message == "unknown pooling 'kmax': expected one of 'avg', 'max', 'k-max' (did you mean 'k-max'?)"
    assert unknown_choice("pooling", "zzz", ["avg"]) == "unknown pooling 'zzz': expected one of 'avg'"


@pytest.mark.parametrize("module", ["vse", "vse.errors", "vse.progress"])
def test_the_bottom_imports_the_standard_library_only(module):
    """These modules can be imported by anything at no cost and without any dependency."""
    code = f"import sys; before = set(sys.modules); import {module}; print(*(set(sys.modules) - before))"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    roots = {name.partition(".")[0] for name in output.split()}
    assert roots - set(sys.stdlib_module_names) <= {"vse"}
