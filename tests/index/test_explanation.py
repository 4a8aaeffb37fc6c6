"""Explanations match the embeddings in the collection, for either runtime, and note stale files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.index.test_evidence import onnx_model, torch_model
from tests.inputs.video.clips import write_clip
from tests.support_models import picture

from vse.errors import InputError
from vse.index.explanation import CHANGED, GONE, explain, explain_item, picture_name
from vse.index.item_search import search
from vse.index.pipeline import index_folder
from vse.index.query import Query
from vse.index.results import SearchResults
from vse.index.store import EmbeddedCollection

QUERY = Query(("a dog runs in the snow",), exclude=("two cats",))


def indexed(home, model):
    """Index images and a video of two moments through the real pipeline."""
    root = home / "photos"
    root.mkdir(parents=True)
    for seed in range(3):
        Image.fromarray(picture(seed, 60 + 10 * seed, 90)).save(root / f"{seed}.png")
    write_clip(root / "clip.mkv", seconds=8.0, rate=5)
    index = home / "photos.vse"
    made = EmbeddedCollection.create(index, model=model.fingerprint(), model_source="here", dimensions=model.embed_size)
    report = index_folder(made, model, root)
    assert report.problems == ()
    return made


@pytest.fixture
def collection(tmp_path):
    with indexed(tmp_path, torch_model()) as made:
        yield made


@pytest.mark.parametrize("runtime", [torch_model, onnx_model])
def test_evidence_adds_up_to_the_scores_that_are_shown(tmp_path, runtime):
    """Within 1e-5 for every image and moment, even after JSON, and without a note."""
    model = runtime()
    with indexed(tmp_path, model) as made:
        results = search(made, QUERY, 10, model=model)
        told = json.loads(json.dumps(explain(made, model, results).to_json(), allow_nan=False))
    kinds = []
    for result in told["results"]:
        found = result["evidence"]
        assert (found["file"], found["replaced"], found["note"]) == (None, False, None)
        if result["kind"] == "image":
            assert np.shape(found["cells"]) == torch_model().image_encoder.backbone.grid(96, 96)
            total = np.sum(found["cells"])
        else:
            seconds, shares = np.transpose(found["frames"])
            assert result["start"] <= seconds.min() < seconds.max() <= result["end"]
            total = shares.sum()
        assert total == pytest.approx(result["score"], abs=1e-5)
        kinds.append(result["kind"])
    assert sorted(kinds) == ["image"] * 3 + ["video"] * 2


def test_evidence_files_are_numbered_and_replaced(collection, tmp_path):
    """One image per result, named by its number, in a folder created on demand; a second run overwrites them."""
    results = search(collection, QUERY, 3, offset=2, model=torch_model())
    first = explain(collection, torch_model(), results, tmp_path / "new" / "maps")
    names = [
        f"{number:02}-{result.path.rpartition('/')[2][:-4]}.png" for number, result in enumerate(results.results, 3)
    ]
    assert [each.file for each in first.explanations] == [str(tmp_path / "new" / "maps" / name) for name in names]
    assert sorted(each.name for each in (tmp_path / "new" / "maps").iterdir()) == sorted(names)
    for each in first.explanations:
        with Image.open(each.file) as image:
            assert image.format == "PNG"
            assert image.size[0] > 60
    assert not any(each.replaced for each in first.explanations)
    again = explain(collection, torch_model(), results, tmp_path / "new" / "maps")
    assert all(each.replaced for each in again.explanations)


def test_files_that_are_gone_or_have_changed(collection, tmp_path):
    """They get a note, and the others are explained. A touched file counts as unchanged."""
    root = tmp_path / "photos"
    (root / "0.png").unlink()
    Image.fromarray(picture(9)).save(root / "1.png")
    (root / "2.png").touch()
    (root / "clip.mkv").write_bytes(b"")
    results = search(collection, QUERY, 10, model=torch_model())
    explained = explain(collection, torch_model(), results, tmp_path / "maps")
    notes = {
        result.path.rpartition("/")[2]: each.note
        for result, each in zip(results.results, explained.explanations, strict=True)
    }
    assert notes == {
        "0.png": "the file cannot be read (No such file or directory)",
        "1.png": CHANGED,
        "2.png": None,
        "clip.mkv": CHANGED,
    }
    assert len(list((tmp_path / "maps").iterdir())) == 1
    with pytest.raises(InputError, match="has changed"):
        explain_item(torch_model(), collection.items([2])[0], results.vector)


def test_removed_result_is_noted_in_explanation(collection):
    """A result removed by a concurrent writer gets a note; the others are explained."""
    results = search(collection, QUERY, 10, model=torch_model())
    collection.remove([(str(Path(results.results[1].path).parent), Path(results.results[1].path).name)])
    explained = explain(collection, torch_model(), results)
    gone = {result.id for result in results.results if result.path == results.results[1].path}
    for result, each in zip(results.results, explained.explanations, strict=True):
        assert each.note == (GONE if result.id in gone else None)


def test_a_model_that_computes_otherwise_is_noted(collection):
    """A note reports evidence that does not sum to the score."""
    results = search(collection, QUERY, 1, model=torch_model())
    other = torch_model().encode_texts(["a red chair"])[0]
    (found,) = explain(collection, torch_model(), SearchResults("", True, results.results, vector=other)).explanations
    assert found.note is not None
    assert f"{results.results[0].score:.3f}" in found.note


def test_files_that_cannot_be_written(collection, tmp_path):
    """The numbers stay, with a note: the folder is a file, or the image path is a folder."""
    (tmp_path / "file").touch()
    results = search(collection, QUERY, 1, model=torch_model())
    name = picture_name(1, results.results[0].path)
    (tmp_path / "maps" / name).mkdir(parents=True)
    for folder in (tmp_path / "file", tmp_path / "maps"):
        (found,) = explain(collection, torch_model(), results, folder).explanations
        assert found.total == pytest.approx(results.results[0].score, abs=1e-5)
        assert found.note is not None
        assert "cannot be written" in found.note
        assert found.file is None


def test_results_without_their_vector_are_an_error(collection):
    with pytest.raises(InputError, match="embedding"):
        explain(collection, torch_model(), SearchResults("", True, ()))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/b.jpg", "07-b.png"),
        ("a.b.tar.jpg", "07-a.b.tar.png"),
        ('x/a:b*"?<>|\\\n\t.jpg', "07-a_b_________.png"),
        ("ünï 写真.jpg", "07-ünï 写真.png"),
        ("写" * 80 + ".jpg", f"07-{'写' * 50}.png"),
        ("a/README", "07-README.png"),
        ("a.b/c", "07-c.png"),
        (".jpg", "07-.jpg.png"),
    ],
)
def test_evidence_file_names(path, name):
    """Based on the file's name, without characters that some systems reject, and not too long."""
    assert picture_name(7, path) == name
