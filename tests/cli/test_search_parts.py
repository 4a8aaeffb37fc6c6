"""``vse search`` with captions, weights, places, folders and evidence."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from tests.cli.search_support import error_line, reported, saved_folder
from tests.index.scan.support import exif_of, gps_of
from tests.inputs.video.clips import write_clip
from tests.support_models import CAPTIONS, build, grid_config, picture

import vse
from vse.cli.main import main
from vse.index.query import combine

PLACES = {"munich.jpg": (48.137, 11.575), "trip/augsburg.jpg": (48.371, 10.898), "suva.jpg": (-18.141, 178.442)}


def degrees(value: float) -> tuple[float, float, float]:
    whole = int(abs(value))
    return float(whole), float(int((abs(value) - whole) * 60)), (abs(value) * 60) % 1 * 60


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Images with places, with captions or neither, and a video, indexed by the command."""
    home = tmp_path_factory.mktemp("parts")
    photos = home / "photos"
    (photos / "trip").mkdir(parents=True)
    for seed, (name, (north, east)) in enumerate(PLACES.items()):
        gps = gps_of(degrees(north), degrees(east), ("N" if north > 0 else "S", "E"))
        Image.fromarray(picture(seed)).save(photos / name, exif=exif_of(gps=gps))
    for seed in range(3, 7):
        Image.fromarray(picture(seed)).save(photos / f"{seed}.png")
    write_clip(photos / "clip.mp4", seconds=8.0, rate=5)
    rows = [{"path": f"{seed}.png", "caption": caption} for seed, caption in zip(range(3, 7), CAPTIONS, strict=True)]
    (photos / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    index = home / "photos.vse"
    reported("index", photos, "--into", index, "--model", saved_folder())
    return SimpleNamespace(home=home, photos=photos, index=index, model=vse.load(saved_folder()))


def names(found: dict) -> set[str]:
    return {result["path"].rpartition("/")[2] for result in found["results"]}


class TestCaptions:
    """``--captions``."""

    def test_search_command_captions_of_image(self, place):
        """Every caption by its score with the image, and the file it came with."""
        found = reported("search", place.index, "--image", place.photos / "munich.jpg", "--captions")
        scores = place.model.encode_texts(CAPTIONS) @ place.model.encode_images([place.photos / "munich.jpg"])[0]
        order = np.argsort(-scores)
        assert [each["caption"] for each in found["captions"]] == [CAPTIONS[row] for row in order]
        assert [each["path"] for each in found["captions"]] == [str(place.photos / f"{row + 3}.png") for row in order]
        assert [each["score"] for each in found["captions"]] == pytest.approx(scores[order].tolist(), abs=1e-5)

    def test_search_captions_by_text_and_id(self, place, capsys):
        """A caption finds itself; an id needs no model; pages continue each other."""
        found = reported("search", place.index, CAPTIONS[1], "--captions", "-k", 1)
        assert found["captions"][0]["caption"] == CAPTIONS[1]
        assert found["captions"][0]["score"] == pytest.approx(1, abs=1e-5)
        like = ("search", place.index, "--like", found["captions"][0]["id"], "--captions", "--model", "nowhere")
        whole = reported(*like)["captions"]
        pages = [reported(*like, "-k", 3, "--page", page) for page in (1, 2)]
        assert [each for page in pages for each in page["captions"]] == whole
        assert main(["search", str(place.index), CAPTIONS[1], "--captions", "-k", "2"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[:2] for line in lines[:1]] == [["1.", "1.000"]]
        assert lines[0].endswith(f"{CAPTIONS[1]}  ({place.photos}/4.png)")
        assert lines[2:] == ["more with --page 2"]

    def test_search_command_without_captions(self, place, tmp_path, capsys):
        """The error says how to add captions."""
        (tmp_path / "photos").mkdir()
        Image.fromarray(picture(1)).save(tmp_path / "photos" / "a.png")
        reported("index", tmp_path / "photos", "--into", tmp_path / "i.vse", "--model", saved_folder())
        line = error_line(capsys, 1, "search", tmp_path / "i.vse", "snow", "--captions")
        assert "holds no captions" in line
        assert "captions.csv" in line

    @pytest.mark.parametrize(
        "options", [("--folder", "trip"), ("--type", "image"), ("--evidence", "e"), ("--group-duplicates",)]
    )
    def test_search_command_captions_refuses_image_options(self, place, capsys, options):
        """Options for images are an error."""
        assert "--captions" in error_line(capsys, 2, "search", place.index, "snow", "--captions", *options)


def test_search_command_weights(place):
    """Weights apply to texts, then images, then ids."""
    parts = ("a dog", "--image", place.photos / "3.png", "--like", 2)
    found = reported("search", place.index, *parts, "--weights", "1,0.5,0.25", "-k", 3)
    vectors = [place.model.encode_texts(["a dog"])[0], place.model.encode_images([place.photos / "3.png"])[0]]
    everything = reported("search", place.index, "a dog", "-k", 20)["results"]
    (second,) = (result["path"] for result in everything if result["id"] == 2)
    vectors.append(place.model.encode_images([second])[0])
    query = combine(np.stack(vectors), [1, 0.5, 0.25])
    for result in found["results"]:
        if result["kind"] == "image":
            score = float(place.model.encode_images([result["path"]])[0] @ query)
            assert result["score"] == pytest.approx(score, abs=1e-4)
    heavy = reported("search", place.index, *parts, "--weights", "1,1000,1", "-k", 1)
    assert names(heavy) == {"3.png"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--near", "48.14,11.58"), {"munich.jpg"}),
        (("--near", "48.14,11.58", "--within", "50"), {"munich.jpg"}),
        (("--near", "48.14,11.58", "--within", "80"), {"munich.jpg", "augsburg.jpg"}),
        (("--near", "-18,-179.9", "--within", "300"), {"suva.jpg"}),  # across the date line
        (("--near", "90,0", "--within", "7000"), {"munich.jpg", "augsburg.jpg"}),
        (("--near", "0,0", "--within", "1"), set()),
        (("--near", "48.14,11.58", "--within", "80", "--folder", "trip"), {"augsburg.jpg"}),
    ],
)
def test_search_command_filters_by_place(place, options, expected):
    """Images with EXIF coordinates near the place; items without coordinates are not found."""
    assert names(reported("search", place.index, "snow", *options)) == expected


def test_search_folder_as_absolute_path(place, capsys):
    """An absolute path equals the path below the indexed folder; one that is not indexed is an error."""
    relative = reported("search", place.index, "snow", "--folder", "trip")
    assert names(relative) == {"augsburg.jpg"}
    for same in (place.photos / "trip", f"{place.photos}/./trip/", "./trip", "trip/"):
        assert reported("search", place.index, "snow", "--folder", same)["results"] == relative["results"]
    for everything in (place.photos, f"{place.photos}/trip/..", "", ".", "./"):
        assert len(names(reported("search", place.index, "snow", "--folder", everything))) == 8
    for outside in (place.home, "/", f"{place.photos}/..", f"{place.photos}2"):
        assert str(place.photos) in error_line(capsys, 2, "search", place.index, "snow", "--folder", outside)
    for above in ("..", "trip/../.."):
        line = error_line(capsys, 2, "search", place.index, "snow", "--folder", above)
        assert f"{above!r} leads out of what was indexed" in line


def test_search_command_suggests_folder(place, capsys):
    """An unknown folder is an error that names existing ones."""
    query = ("search", place.index, "snow", "--folder")
    assert error_line(capsys, 1, *query, "tripp").endswith("no file lies in folder 'tripp': did you mean 'trip'?")
    line = error_line(capsys, 1, *query, place.photos / "trip" / "2031")
    assert line.endswith(f"no file lies in folder '{place.photos}/trip/2031': the nearest that holds files is 'trip'")
    assert main([*map(str, query), "trip", "--type", "video"]) == 0
    assert capsys.readouterr().out == "nothing found with --folder: leave it out for 2 results\n"


def test_search_folder_in_two_roots(tmp_path):
    """An absolute path selects one root, a relative one both."""
    for seed, name in enumerate(("one/trip/a.png", "one/b.png", "two/trip/c.png", "two/d.png")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(seed)).save(tmp_path / name)
    index = tmp_path / "both.vse"
    reported("index", tmp_path / "one", tmp_path / "two", "--into", index, "--model", saved_folder())
    for folder, expected in (
        (tmp_path / "one" / "trip", {"a.png"}),
        (tmp_path / "two" / "trip", {"c.png"}),
        (tmp_path / "one", {"a.png", "b.png"}),
        (f"{tmp_path}/two/", {"c.png", "d.png"}),
        ("trip", {"a.png", "c.png"}),
        (".", {"a.png", "b.png", "c.png", "d.png"}),
    ):
        assert names(reported("search", index, "snow", "--folder", folder)) == expected


class TestEvidence:
    """``--evidence``."""

    def test_search_command_writes_evidence(self, place, tmp_path):
        """The evidence adds up to the score, and its image is in the folder."""
        found = reported(
            "search", place.index, "a dog", "snow", "--weights", "2,1", "--all-moments", "--evidence", tmp_path / "e"
        )
        assert len(found["results"]) == 9
        for number, result in enumerate(found["results"], 1):
            shown = result["evidence"]
            parts = np.array(shown["cells"]) if result["kind"] == "image" else np.array(shown["frames"])[:, 1]
            assert parts.sum() == pytest.approx(result["score"], abs=1e-5)
            assert shown["file"].startswith(f"{tmp_path}/e/{number:02}-")
            assert (shown["note"], shown["replaced"]) == (None, False)
        assert len(list((tmp_path / "e").iterdir())) == 9

    def test_search_command_evidence_of_like_query(self, place, tmp_path, capsys):
        """The model is loaded for the evidence; text names the files, and stdout holds nothing else."""
        arguments = ["search", str(place.index), "--like", "2", "-k", "2", "--evidence", str(tmp_path / "e")]
        assert main(arguments) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 5
        assert lines[2].startswith(f"   1.  evidence: {tmp_path}/e/01-")
        assert lines[4] == "more with --page 2"
        assert main(arguments) == 0
        assert capsys.readouterr().out.count("(replaced)") == 2

    def test_search_without_results_creates_no_evidence_folder(self, place, tmp_path):
        """Only written images need one."""
        found = reported("search", place.index, "snow", "--near", "0,0", "--evidence", tmp_path / "e")
        assert found["results"] == []
        assert not (tmp_path / "e").exists()


def test_search_command_suggests_upgrade_for_other_model(place, tmp_path, capsys):
    """The error has the complete command."""
    other = build(grid_config(), seed=5).save(tmp_path / "other")
    line = error_line(capsys, 1, "search", place.index, "snow", "--model", other)
    assert line.endswith(f"vse collection upgrade {place.index} --model {other}")
