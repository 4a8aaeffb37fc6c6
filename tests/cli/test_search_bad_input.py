"""Invalid input of ``vse search``: one line and the right exit code."""

from __future__ import annotations

import math
import os

import pytest
from PIL import Image
from tests.cli.search_support import error_line, reported, saved_folder
from tests.cli.test_index_bad_input import png_bomb
from tests.inputs.pictures import encoded, gradient
from tests.support_models import picture

from vse.cli.main import main
from vse.index.query import MAX_CHARACTERS

COUNT = 12
MEGABYTE = "snow " * 200_000
LONGEST_LINE = 500


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """An index of a few images."""
    home = tmp_path_factory.mktemp("search")
    (home / "photos").mkdir()
    for seed in range(COUNT):
        Image.fromarray(picture(seed)).save(home / "photos" / f"{seed:02}.png")
    arguments = ["index", home / "photos", "--into", home / "photos.vse", "--model", saved_folder()]
    assert main([*map(str, arguments)]) == 0
    return home / "photos.vse"


@pytest.fixture(scope="module")
def queries(tmp_path_factory):
    """Query files that are not images."""
    folder = tmp_path_factory.mktemp("queries")
    (folder / "text.jpg").write_text("only a note")
    (folder / "empty.jpg").touch()
    (folder / "bomb.png").write_bytes(png_bomb())
    (folder / "truncated.jpg").write_bytes(encoded(gradient(200, 300), "JPEG")[:2000])
    (folder / "folder.jpg").mkdir()
    os.mkfifo(folder / "pipe.jpg")
    (folder / "loop.jpg").symlink_to("loop.jpg")
    (folder / "two\nlines.jpg").write_text("only a note")
    return folder


def short(line: str) -> str:
    """The line, checked to be short."""
    assert len(line) < LONGEST_LINE
    return line


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("",), 1, "empty"),
        ((" \n\t ",), 1, "empty"),
        (("snow", "--not", ""), 1, "empty"),
        ((MEGABYTE,), 1, "1,000,000 characters, at most 2,000"),
        (("snow", "--not", MEGABYTE), 1, "1,000,000 characters"),
        (("x" * 10**6,), 1, "1,000,000 characters"),
        (("snow \udcff",), 1, "not UTF-8"),
        (("\U0001f3d6",), 1, "knows none of its words"),
        (("\0",), 1, "knows none of its words"),
        (("snow", "-k", 0), 2, "-k"),
        (("snow", "-k", -1), 2, "-k"),
        (("snow", "-k", "many"), 2, "many"),
        (("snow", "--page", 0), 2, "--page"),
        (("snow", "--min-confidence", math.nan), 2, "--min-confidence nan"),
        (("--like", 10**18), 1, "no item has id"),
        (("--like", 10**30), 1, "id 1000"),
        (("--like", -1), 1, "id -1"),
        (("snow", "--type", "x" * 10**6), 2, "--type"),
        (("snow", "--after", "9" * 10**6), 2, "--after"),
        (("snow", "--folder", "/elsewhere"), 2, "--folder '/elsewhere'"),
    ],
)
def test_search_command_refuses_invalid_queries(index, capsys, arguments, code, words):
    """The value, what was expected, and nothing else."""
    assert words in short(error_line(capsys, code, "search", index, *arguments))


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ("nan,1", "'nan' is not a positive number"),
        ("inf,1", "'inf'"),
        ("0,1", "'0'"),
        ("1,-2", "--not"),
        ("1;2", "'1;2'"),
        ("", "''"),
        ("1", "1 weights for 2 texts, images and ids"),
        ("1,2,3", "3 weights for 2"),
        ("1," * 10**5, "''"),
    ],
)
def test_search_refuses_invalid_weights(index, capsys, weights, words):
    """One positive number for each part of the query."""
    assert words in short(error_line(capsys, 2, "search", index, "snow", "a dog", "--weights", weights))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--near", "Munich"), "LATITUDE,LONGITUDE"),
        (("--near", "48.1"), "LATITUDE,LONGITUDE"),
        (("--near", "48.1,11.5,500"), "LATITUDE,LONGITUDE"),
        (("--near", "91,0"), "-90 to 90"),
        (("--near", "0,181"), "-180 to 180"),
        (("--near", "nan,0"), "-90 to 90"),
        (("--near", "48.1,11.5", "--within", "0"), "0.0 km"),
        (("--near", "48.1,11.5", "--within", "nan"), "nan km"),
        (("--within", "5"), "--near"),
        (("--near", "1" * 10**6), "--near"),
    ],
)
def test_search_refuses_invalid_places(index, capsys, options, words):
    """Two numbers in degrees, and positive kilometres."""
    assert words in short(error_line(capsys, 2, "search", index, "snow", *options))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("text.jpg", "no known format"),
        ("empty.jpg", "empty"),
        ("bomb.png", "100000 x 100000 pixels"),
        ("truncated.jpg", "truncated"),
        ("folder.jpg", "a folder"),
        ("pipe.jpg", "not a regular file"),
        ("loop.jpg", "loop.jpg"),
        ("gone.jpg", "no such file"),
        ("two\nlines.jpg", "two\\nlines.jpg"),
        ("n" * 300, "too long"),
    ],
)
def test_search_names_invalid_query_image(index, queries, capsys, name, words):
    """With the reason; a pipe is not read, a decompression bomb not decoded."""
    line = error_line(capsys, 1, "search", index, "--image", queries / name)
    assert words in line
    assert "not an image that can be read" in line


@pytest.mark.parametrize("options", [("-k", 10**9), ("-k", 10**30), ("-k", 10**9, "--group-duplicates")])
def test_search_k_above_number_of_items(index, capsys, options):
    """All items, in the order of a short page."""
    everything = reported("search", index, "snow", *options)
    first = reported("search", index, "snow", "-k", 5, *options[2:])
    assert not everything["more"]
    assert sum(1 + len(result["group"]) for result in everything["results"]) == COUNT
    assert [result["id"] for result in everything["results"][:5]] == [result["id"] for result in first["results"]]


@pytest.mark.parametrize("page", [3, 10**12, 10**30])
def test_search_page_after_the_last(index, capsys, page):
    """It is empty, and says so."""
    assert reported("search", index, "snow", "--page", page)["results"] == []
    assert main(["search", str(index), "snow", "--page", str(page)]) == 0
    assert capsys.readouterr().out == "no more results\n"


def test_search_reports_truncated_query(index, capsys):
    """Within the limit a long text is searched by its beginning, reported in text and JSON."""
    text = ("snow " * MAX_CHARACTERS)[:MAX_CHARACTERS]
    found = reported("search", index, text, "-k", 1)
    assert found["cut"] == [text]
    assert len(found["results"]) == 1
    assert main(["search", str(index), text, "-k", "1"]) == 0
    assert capsys.readouterr().out.startswith("truncated by the model: snow snow")


@pytest.mark.parametrize("where", ["", "nowhere.vse", "x" * 300, "\0"])
def test_search_names_missing_index(capsys, where):
    """Before anything is loaded."""
    error_line(capsys, 1, "search", where, "snow")


def test_search_refuses_evidence_below_a_file(index, queries, capsys):
    """Before anything is loaded."""
    line = error_line(capsys, 2, "search", index, "snow", "--evidence", queries / "text.jpg" / "maps")
    assert "is a file, expected a folder" in line
