"""``vse search`` with a model that has relevance: grades, the default cut-off, and messages when it leaves nothing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from PIL import Image
from tests.cli.search_support import error_line, reported
from tests.service.page.colour_model import COLOURS, write_colour_model

from vse.cli.main import main


def draw(path: Path, *shares: tuple[str, float]) -> None:
    """An image of vertical stripes, each of a colour and a share of the width."""
    image, left = Image.new("RGB", (96, 96)), 0
    for name, share in shares:
        right = left + round(96 * share)
        image.paste(COLOURS[name], (left, 0, right, 96))
        left = right
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three red images, one that is half red, four green ones, indexed with a model of colours."""
    home = tmp_path_factory.mktemp("graded")
    for number in range(3):
        draw(home / "photos" / "red" / f"{number}.png", ("red", 1))
    draw(home / "photos" / "red" / "half.png", ("red", 0.5), ("green", 0.5))
    for number in range(4):
        draw(home / "photos" / "green" / f"{number}.png", ("green", 1))
    model = write_colour_model(home / "colours", graded=True)
    reported("index", home / "photos", "--into", home / "photos.vse", "--model", model)
    return home / "photos.vse"


def lines_of_search(capsys, *arguments: object) -> list[str]:
    assert main(["search", *map(str, arguments)]) == 0
    return capsys.readouterr().out.splitlines()


def test_results_have_words_instead_of_numbers(index, capsys):
    """Rank, grade, id and file; what matches less is left out, and --all shows it."""
    lines = lines_of_search(capsys, index, "a red circle")
    assert [re.match(r" +\d\.  (\w+) +\d+  ", line)[1] for line in lines[:-1]] == ["strong"] * 3 + ["weak"]
    assert lines[-1] == "results that match less are left out: --all shows them"
    assert not re.search(r"0\.\d|%", "".join(line.split("/")[0] for line in lines))
    lines = lines_of_search(capsys, index, "a red circle", "--all")
    assert [line.split()[1] for line in lines] == ["strong"] * 3 + ["weak"] + ["unlikely"] * 4


def test_json_has_relevance_and_confidence(index):
    """The numbers, with the same cut-off as the text."""
    found = reported("search", index, "a red circle")["results"]
    assert len(found) == 4
    assert all(each["relevance"] >= 0.1 and each["confidence"] is not None for each in found)
    assert [each["grade"] for each in found] == ["strong"] * 3 + ["weak"]


def test_min_relevance_replaces_default_cutoff(index):
    """A higher one keeps fewer, 0 keeps everything; a minimum confidence stands alone."""
    query = ("search", index, "a red circle")
    assert len(reported(*query, "--min-relevance", 0.5)["results"]) == 3
    assert len(reported(*query, "--min-relevance", 0)["results"]) == 8
    assert len(reported(*query, "--min-confidence", 0)["results"]) == 8


def test_nothing_matches_is_said_for_absent_things(index, capsys):
    """With the way to see the closest anyway; the JSON has the reason."""
    assert lines_of_search(capsys, index, "a blue circle") == [
        "Nothing here matches 'a blue circle'; --all shows the closest anyway"
    ]
    assert reported("search", index, "a blue circle")["empty_reason"]["condition"] == "relevance"
    assert len(lines_of_search(capsys, index, "a blue circle", "--all")) == 8


def test_search_names_the_condition_that_leaves_nothing(index, capsys):
    """A filter, an exclusion; with the number of results without it."""
    line = lines_of_search(capsys, index, "a red circle", "--folder", "green")[-1]
    assert line == "nothing found with --folder: leave it out for 4 results"
    line = lines_of_search(capsys, index, "a red circle", "--not", "a red circle and a green one", "--all")[-1]
    assert line == "everything found shows what --not excludes: leave it out for 8 results"


def test_not_drops_what_is_excluded(index):
    """An image that is half green is not found when green is excluded."""
    files = [each["path"] for each in reported("search", index, "a red circle", "--not", "green")["results"]]
    assert sorted(Path(each).name for each in files) == ["0.png", "1.png", "2.png"]


def test_query_by_item_is_not_cut_off(index, capsys):
    """It has no relevance; the confidence is shown as before."""
    lines = lines_of_search(capsys, index, "--like", 1)
    assert len(lines) == 7
    assert all("%" in line for line in lines)


def test_contradicting_minima_are_refused(index, capsys):
    """One line each."""
    assert "--all leaves nothing out" in error_line(capsys, 2, "search", index, "x", "--all", "--min-relevance", "0.2")
    assert "--min-relevance 2.0: expected" in error_line(capsys, 2, "search", index, "x", "--min-relevance", "2")
    assert "--captions finds captions" in error_line(capsys, 2, "search", index, "x", "--captions", "--all")


def test_bundled_model_matches_photographs(shared_data, tmp_path, capsys):
    """Dogs are found by what they are, a submarine and a query in German are not."""
    flickr, folder = shared_data / "flickr8k", tmp_path / "photos"
    folder.mkdir()
    captions: dict[str, list[str]] = {}
    for line in (flickr / "Flickr8k.token.txt").read_text().splitlines():
        name, _, caption = line.partition("\t")
        captions.setdefault(name.split("#")[0], []).append(caption.lower())
    dev = (flickr / "Flickr_8k.devImages.txt").read_text().split()
    dogs = [name for name in dev if sum("dog" in each.split() for each in captions[name]) == 5][:6]
    others = [name for name in dev if not any("dog" in each for each in captions[name])][:10]
    for name in (*dogs, *others):
        shutil.copy(flickr / "images" / name, folder)
    reported("index", folder, "--into", tmp_path / "photos.vse")
    found = [Path(each["path"]).name for each in reported("search", tmp_path / "photos.vse", "dog")["results"]]
    assert found
    assert set(found) <= set(dogs)
    assert reported("search", tmp_path / "photos.vse", "a submarine")["results"] == []
    without = reported("search", tmp_path / "photos.vse", "an animal", "--not", "dog", "--all")["results"]
    assert not {Path(each["path"]).name for each in without} & set(found)
    lines = lines_of_search(capsys, tmp_path / "photos.vse", "zwei Hunde im Schnee")
    assert lines[0] == '"zwei Hunde im Schnee" looks German, and the model understands English only'
