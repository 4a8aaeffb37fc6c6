"""``vse search`` with a model that has neither evidence for images nor coefficients."""

from __future__ import annotations

import re
import shutil

import pytest
from PIL import Image
from tests.cli.search_support import error_line, reported
from tests.index.test_evidence import exported_folder
from tests.inputs.video.clips import write_clip
from tests.support_foreign import foreign_copy
from tests.support_models import picture

import vse
from vse.cli.main import main
from vse.errors import InputError
from vse.index.query import Query
from vse.models.coefficients import FILE, shipped_coefficients
from vse.models.protocols import NO_EVIDENCE


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A folder with the model ``clip``, three images, a video and the collection ``photos.vse``."""
    home = tmp_path_factory.mktemp("plain")
    (home / "photos").mkdir()
    for number in range(3):
        Image.fromarray(picture(number)).save(home / "photos" / f"{number}.png")
    write_clip(home / "photos" / "clip.mp4", seconds=4, rate=5)
    foreign_copy(exported_folder(), home / "clip")
    reported("index", home / "photos", "--into", home / "photos.vse", "--model", home / "clip")
    return home


def test_search_without_coefficients_prints_rank_and_score(plain, capsys):
    """No percentage in the text, null in the JSON."""
    found = reported("search", plain / "photos.vse", "a dog")["results"]
    assert [each["confidence"] for each in found] == [None] * len(found)
    assert main(["search", str(plain / "photos.vse"), "a dog"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(found)
    for number, (line, each) in enumerate(zip(lines, found, strict=True), 1):
        assert re.match(rf" +{number}\.  {each['score']:.3f}  +{each['id']}  ", line), line
        assert "%" not in line


def test_min_confidence_without_coefficients_names_calibrate(plain, capsys):
    """One line; the same from Python, for any query."""
    line = error_line(capsys, 1, "search", plain / "photos.vse", "a dog", "--min-confidence", "0.3")
    assert "'vse calibrate MODEL --data DIR'" in line
    with vse.open_collection(plain / "photos.vse") as collection:
        for query in ("a dog", Query(like=(1,))):
            with pytest.raises(InputError, match="vse calibrate MODEL --data DIR"):
                vse.search(collection, query, cutoff=0.0)
        given = vse.search(collection, "a dog", cutoff=0.0, coefficients=shipped_coefficients())
        assert given.results[0].confidence is not None


def test_coefficients_of_a_calibrated_foreign_model_are_used(plain, tmp_path):
    """A folder with ``confidence.json`` gives a confidence again."""
    calibrated = shutil.copytree(plain / "clip", tmp_path / "calibrated")
    shutil.copy(vse.__path__[0] + f"/models/{FILE}", calibrated)
    call = ("search", plain / "photos.vse", "a dog", "--model", calibrated, "--min-confidence", "0")
    assert all(0 <= each["confidence"] <= 1 for each in reported(*call)["results"])


def test_evidence_without_ability_is_one_line(plain, tmp_path, capsys):
    """Images have a note in the JSON and share one line in the text; nothing is drawn."""
    call = ("search", plain / "photos.vse", "a dog", "--type", "image", "--evidence", tmp_path / "why")
    evidence = [each["evidence"] for each in reported(*call)["results"]]
    assert evidence == [{"file": None, "replaced": False, "note": NO_EVIDENCE}] * 3
    assert main([*map(str, call)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3:] == [f"no evidence: {NO_EVIDENCE}"]
    assert not (tmp_path / "why").exists()


def test_evidence_of_videos_is_drawn_beside_images_without(plain, tmp_path):
    """The contributions of frames add up to the score with any model."""
    found = reported("search", plain / "photos.vse", "a dog", "--evidence", tmp_path / "why")["results"]
    for each in found:
        if each["kind"] == "video":
            total = sum(share for _, share in each["evidence"]["frames"])
            assert total == pytest.approx(each["score"], abs=1e-4)
        else:
            assert each["evidence"]["note"] == NO_EVIDENCE
    assert len(list((tmp_path / "why").iterdir())) == sum(each["kind"] == "video" for each in found) > 0


def test_inspect_lists_what_a_model_can_do(plain, capsys):
    """Inputs, evidence and confidence, for a model of another library and for one of ours."""
    assert main(["inspect", str(plain / "clip")]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"takes +│ images, texts, video files +│", shown)
    assert re.search(r"evidence +│ frames of videos; none for images +│", shown)
    assert re.search(r"confidence +│ none: results have ranks and scores", shown)
    assert main(["inspect", str(exported_folder())]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"evidence +│ cells of images, frames of videos +│", shown)
    assert re.search(r"confidence +│ default", shown)
