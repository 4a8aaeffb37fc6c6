"""``vse data check``: exit codes and output."""

from __future__ import annotations

import json

import pytest
from tests.data.support import features, write_image, write_precomp

from vse.cli.main import main


@pytest.fixture
def folder(tmp_path):
    """A valid dataset of region features."""
    return write_precomp(tmp_path / "data", "test", features(2), ["a", "b"])


def test_data_check_of_clean_data(folder, capsys):
    """Exit code 0, the report on stdout, progress on stderr."""
    assert main(["data", "check", str(folder)]) == 0
    output = capsys.readouterr()
    assert "layout precomp" in output.out
    assert "no errors" in output.out
    assert "reading features of test" in output.err


def test_data_check_prints_json(folder, capsys):
    """``--json`` prints exactly one ASCII object."""
    assert main(["data", "check", str(folder), "--json", "--layout", "precomp"]) == 0
    output = capsys.readouterr()
    assert output.out.isascii()
    report = json.loads(output.out)
    assert (report["ok"], report["layout"], report["splits"][0]["images"]) == (True, "precomp", 2)


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_data_check_with_errors_exits_with_1(folder, capsys, as_json):
    """The report is still printed."""
    write_precomp(folder, "test", features(2), ["a", ""])
    assert main(["data", "check", str(folder), *as_json]) == 1
    output = capsys.readouterr()
    assert "test_caps.txt:2: empty caption" in output.out
    assert "vse: error" not in output.err


def test_data_check_without_data_is_one_line(tmp_path, capsys):
    """On stderr, with exit code 1."""
    assert main(["data", "check", str(tmp_path)]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("vse: error: ")
    assert output.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["check", "--layout", "precmp", "."], ["check"], [], ["chek", "."]])
def test_data_check_usage_errors(arguments, capsys):
    """An unknown layout, no path, no command and an unknown command exit with 2."""
    assert main(["data", *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("vse: error: ")
    assert output.err.count("\n") == 1


def test_data_check_of_image_folder(tmp_path, capsys):
    """A folder without captions is a dataset too."""
    write_image(tmp_path / "photos/a.jpg")
    assert main(["data", "check", str(tmp_path / "photos")]) == 0
    assert "layout folder" in capsys.readouterr().out
