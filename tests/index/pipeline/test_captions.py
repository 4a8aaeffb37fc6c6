"""Captions of a folder are searchable and follow their file."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from tests.index.pipeline.support import counts, ids_of, model, new_collection, save_picture
from tests.support_models import bigru_config, build, grid_config

from vse.index.pipeline import index_folder
from vse.models.vse_model import VSEModel


def write_captions(root, rows):
    with (root / "captions.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("path", "caption"), *rows])


@pytest.fixture
def root(tmp_path):
    """Two images, one of them with two captions."""
    folder = tmp_path / "photos"
    save_picture(folder, "a.png", 1)
    save_picture(folder, "b.png", 2)
    write_captions(folder, [("a.png", "a dog runs"), ("a.png", "snow")])
    return folder


@pytest.fixture
def collection(tmp_path):
    with new_collection(tmp_path / "index.vse") as made:
        yield made


def captions_of(collection):
    return {file.path: file.captions for file in collection.files() if file.captions}


def best(collection, text):
    """Return the captions for a text, best first."""
    return collection.search_captions(model().encode_texts([text])[0], 10)


def test_indexed_captions_are_searched(collection, root):
    """A caption finds itself with score 1 and leads to its file."""
    index_folder(collection, model(), root)
    found, item, score = best(collection, "a dog runs")[0]
    assert (found, item) == ("a dog runs", ids_of(collection)["a.png"][0])
    assert score == pytest.approx(1, abs=1e-5)
    assert len(best(collection, "snow")) == 2


def test_new_captions_keep_embedding_and_id(collection, root):
    """New captions are encoded and found; the image is neither read nor encoded, and keeps its id."""
    index_folder(collection, model(), root)
    before = ids_of(collection)
    write_captions(root, [("a.png", "snow"), ("b.png", "two cats sleep"), ("b.png", "the man")])
    report = index_folder(collection, model(), root)
    assert (counts(report), report.images) == ({"touched": 2}, 0)
    assert ids_of(collection) == before
    assert captions_of(collection) == {"a.png": ("snow",), "b.png": ("two cats sleep", "the man")}
    assert best(collection, "two cats sleep")[0][0] == "two cats sleep"
    assert {caption for caption, *_ in best(collection, "snow")} == {"snow", "two cats sleep", "the man"}
    assert counts(index_folder(collection, model(), root)) == {"unchanged": 2}


def test_lost_captions_cost_nothing(collection, root):
    """Deleting the caption file removes its captions without encoding any image."""
    index_folder(collection, model(), root)
    before = ids_of(collection)
    (root / "captions.csv").unlink()
    report = index_folder(collection, model(), root)
    assert (report.touched, report.images) == (1, 0)
    assert captions_of(collection) == {}
    assert ids_of(collection) == before


def test_a_file_of_captions_that_cannot_be_read(collection, root):
    """A corrupt caption file is a problem and the known captions stay; an invalid row is skipped."""
    index_folder(collection, model(), root)
    (root / "captions.csv").write_bytes(b"\xff\xfe broken \x00")
    report = index_folder(collection, model(), root)
    assert counts(report) == {"unchanged": 2, "problems": 1}
    assert captions_of(collection) == {"a.png": ("a dog runs", "snow")}
    write_captions(root, [("a.png", "snow"), ("", "nobody")])
    assert counts(index_folder(collection, model(), root)) == {"touched": 1, "unchanged": 1, "problems": 1}
    assert captions_of(collection) == {"a.png": ("snow",)}


def test_a_file_that_moves_with_its_captions(collection, root):
    """If the rows follow, the file keeps its ids and the captions their embeddings."""
    index_folder(collection, model(), root)
    before = ids_of(collection)
    (root / "a.png").rename(root / "c.png")
    write_captions(root, [("c.png", "a dog runs"), ("c.png", "snow")])
    assert counts(index_folder(collection, model(), root)) == {"moved": 1, "unchanged": 1}
    assert ids_of(collection)["c.png"] == before["a.png"]
    assert best(collection, "snow")[0][:2] == ("snow", before["a.png"][0])


def test_moved_file_with_new_captions_keeps_its_id(collection, root):
    """Renaming a file and writing other captions for it does not encode the image."""
    index_folder(collection, model(), root)
    before = ids_of(collection)
    (root / "a.png").rename(root / "c.png")
    write_captions(root, [("c.png", "two cats sleep")])
    report = index_folder(collection, model(), root)
    assert (counts(report), report.images) == ({"moved": 1, "unchanged": 1}, 0)
    assert best(collection, "two cats sleep")[0][:2] == ("two cats sleep", before["a.png"][0])


def test_captions_of_unknown_words_are_kept(collection, root):
    write_captions(root, [("a.png", "xylophone zebra")])
    assert counts(index_folder(collection, model(), root)) == {"new": 2}
    assert captions_of(collection) == {"a.png": ("xylophone zebra",)}


def test_a_model_without_a_vocabulary(root, tmp_path):
    """Captions are kept without embeddings, and a note reports it."""
    speaking = build(grid_config(), bigru_config())
    mute = VSEModel(speaking.image_encoder, speaking.text_encoder, speaking.config).eval()
    with new_collection(tmp_path / "mute.vse", mute) as collection:
        report = index_folder(collection, mute, root)
        assert counts(report) == {"new": 2}
        assert any("no vocabulary" in note for note in report.notes)
        assert captions_of(collection) == {"a.png": ("a dog runs", "snow")}
        assert collection.search_captions(np.eye(16, dtype=np.float32)[0], 5) == []
