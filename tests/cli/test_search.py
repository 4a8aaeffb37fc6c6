"""``vse search`` and ``vse collection`` with an exported model and images on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from tests.index.test_evidence import exported_folder
from tests.support_models import build, picture
from tests.systems.support_pairs import reranking_model

from vse.cli.main import main
from vse.index.query import combine
from vse.index.store import EmbeddedCollection
from vse.index.types import Entry, MediaFile, Moment
from vse.models.onnx import OnnxModel

ABSENT = ("torch", "transformers", "timm", "scipy", "matplotlib", "nltk", "safetensors", "huggingface_hub")
PROGRAM = """
import json, sys
from vse.cli.main import main
code = main(sys.argv[1:])
print(json.dumps({"code": code, "loaded": sorted(sys.modules)}), file=sys.stderr)
"""


def media(root: Path, name: str, **values: object) -> MediaFile:
    plain = {"kind": "image", "size": 1, "modified": 1, "digest": name, "width": 50, "height": 30}
    return MediaFile(str(root), name, **{**plain, **values})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A collection of an export: six images, one twice, and a video of two moments."""
    home = tmp_path_factory.mktemp("search")
    photos = home / "photos"
    (photos / "sea").mkdir(parents=True)
    model = OnnxModel.load(exported_folder(), threads=1)
    names = ["a.png", "b.png", "sea/c.png", "sea/d.png", "e.png", "copy.png"]
    for number, name in enumerate(names):
        Image.fromarray(picture(number % 5)).save(photos / name)
    vectors = model.encode_images([photos / name for name in names])
    entries = [
        Entry(media(photos, name, taken=86400.0 * 365 * number), (Moment(vectors[number]),))
        for number, name in enumerate(names)
    ]
    entries.append(
        Entry(media(photos, "f.mp4", kind="video"), (Moment(-vectors[0], 0.0, 1.0), Moment(-vectors[1], 1.0, 2.0)))
    )
    index = home / "photos.vse"
    with EmbeddedCollection.create(
        index, model=model.fingerprint(), model_source=str(model.folder), dimensions=model.embed_size
    ) as collection:
        collection.add(entries)
    return SimpleNamespace(home=home, photos=photos, index=index, model=model, names=names, vectors=vectors)


def reported(capsys, *arguments: object) -> dict:
    """The JSON object of a successful call."""
    assert main([*map(str, arguments), "--json"]) == 0
    output = capsys.readouterr()
    assert output.out.isascii()
    assert output.err == ""
    return json.loads(output.out)


def error_line(capsys, code: int, *arguments: object) -> str:
    """The error line of a failed call."""
    assert main([*map(str, arguments)]) == code
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert line.startswith("vse: error: ")
    return line


def paths(found: dict) -> list[str]:
    return [Path(result["path"]).name for result in found["results"]]


def test_search_command_ranks_by_sentence(place, capsys):
    """All items by score; the JSON has its documented keys."""
    found = reported(capsys, "search", place.index, "a dog runs in the snow", "-k", 20, "--all-moments")
    assert found["query"] == "a dog runs in the snow"
    assert found["exact"] is True
    assert len(found["results"]) == 8
    for result in found["results"]:
        assert {"id", "path", "score", "confidence", "start", "end"} <= result.keys()
    text = place.model.encode_texts(["a dog runs in the snow"])[0]
    best = float(np.max(np.concatenate([place.vectors, -place.vectors[:2]]) @ text))
    assert found["results"][0]["score"] == pytest.approx(best, abs=1e-5)
    scores = [result["score"] for result in found["results"]]
    assert scores == sorted(scores, reverse=True)


def test_search_command_by_image_and_like(place, capsys):
    """The image itself is the best result; by id the others are found, without the model."""
    found = reported(capsys, "search", place.index, "--image", place.photos / "b.png", "-k", 1)
    assert paths(found) == ["b.png"]
    assert found["results"][0]["score"] == pytest.approx(1, abs=1e-4)
    again = reported(capsys, "search", place.index, "--like", found["results"][0]["id"], "-k", 7, "--model", "nowhere")
    assert sorted(paths(again)) == ["a.png", "c.png", "copy.png", "d.png", "e.png", "f.mp4"]
    (video,) = (result for result in again["results"] if result["path"].endswith("f.mp4"))
    assert video["moments"] == 2


def test_search_command_excludes(place, capsys):
    """The query is the text minus a part of the excluded one."""
    found = reported(capsys, "search", place.index, "a dog", "--not", "two cats", "--not", "snow", "-k", 8)
    wanted, *excluded = place.model.encode_texts(["a dog", "two cats", "snow"])
    vector = combine(wanted[None], None, np.stack(excluded))
    assert found["query"] == "a dog, not two cats, not snow"
    assert found["results"]
    for result in found["results"]:
        if result["kind"] == "image":
            score = float(place.vectors[result["id"] - 1] @ vector)
            assert result["score"] == pytest.approx(score, abs=1e-5)


def test_search_command_filters_and_pages(place, capsys):
    """Folder, dates and type limit what is found; page 2 continues page 1."""
    query = ("search", place.index, "snow")
    assert set(paths(reported(capsys, *query, "--folder", "sea"))) == {"c.png", "d.png"}
    assert set(paths(reported(capsys, *query, "--type", "video"))) == {"f.mp4"}
    assert set(paths(reported(capsys, *query, "--after", "1971", "--before", "1973-06-01"))) == {
        "b.png",
        "c.png",
        "d.png",
    }
    whole = reported(capsys, *query, "-k", 8)["results"]
    pages = [reported(capsys, *query, "-k", 3, "--page", page) for page in (1, 2, 3)]
    assert [result for page in pages for result in page["results"]] == whole
    assert [page["more"] for page in pages] == [True, True, False]


def test_search_command_confidence_and_duplicates(place, capsys):
    """Results below the confidence are left out; duplicates are grouped on request."""
    query = ("search", place.index, "--image", place.photos / "a.png", "-k", 8)
    whole = reported(capsys, *query)["results"]
    bound = whole[2]["confidence"]
    kept = reported(capsys, *query, "--min-confidence", bound)["results"]
    assert [r["id"] for r in kept] == [r["id"] for r in whole if r["confidence"] >= bound]
    grouped = reported(capsys, *query, "--group-duplicates")["results"]
    assert grouped[0]["id"] == 1
    assert 6 in grouped[0]["group"]
    assert 6 not in [result["id"] for result in grouped]


def test_search_command_prints_lines(place, capsys):
    """A line per result and unknown words on stdout, nothing on stderr."""
    assert main(["search", str(place.index), "a zebra in the snow", "-k", "2"]) == 0
    output = capsys.readouterr()
    lines = output.out.splitlines()
    assert lines[0] == "words the model does not know: zebra"
    assert [line.split()[0] for line in lines[1:]] == ["1.", "2.", "more"]
    assert lines[3] == "more with --page 2"
    assert output.err == ""
    assert main(["search", str(place.index), "snow", "-k", "4", "--page", "2"]) == 0
    assert "more" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "nothing to search for"),
        (("--not", "people"), 2, "nothing to search for"),
        (("",), 1, "empty"),
        (("zebra",), 1, "knows none of its words"),
        (("a" * 2001,), 1, "2,001 characters"),
        (("snow", "--type", "audio"), 2, "'image', 'video'"),
        (("snow", "--after", "May"), 2, "--after 'May'"),
        (("snow", "--before", "2024-13"), 2, "2024-13"),
        (("snow", "--after", "2024", "--before", "2023"), 2, "swap them"),
        (("snow", "--after", "2024-02", "--before", "2024-01-31"), 2, "swap them"),
        (("snow", "--after", "9999", "--before", "9999"), 2, "swap them"),
        (("snow", "--after", "2024", "--before", "2024"), 2, "where it ends: for all of 2024 write --before 2025"),
        (("snow", "--after", "2024-12-24", "--before", "2024"), 2, "for all of 2024 write --before 2025"),
        (("snow", "--after", "2024-12", "--before", "2024-12"), 2, "for all of 2024-12 write --before 2025-01"),
        (("snow", "--after", "2024-2", "--before", "2024-2"), 2, "for all of 2024-2 write --before 2024-03"),
        (("snow", "--after", "2024-02-28", "--before", "2024-02-28"), 2, "write --before 2024-02-29"),
        (("snow", "--min-confidence", "2"), 2, "--min-confidence 2"),
        (("snow", "-k", "0"), 2, "-k"),
        (("snow", "--page", "0"), 2, "--page"),
        (("--like", "999"), 1, "no item has id 999"),
        (("--image", "nowhere.png"), 1, "nowhere.png"),
    ],
)
def test_search_usage_errors_are_one_line(place, capsys, arguments, code, words):
    """With the exit code and the value."""
    assert words in error_line(capsys, code, "search", place.index, *arguments)


def test_search_command_reranks_with_a_saved_model(place, capsys, tmp_path):
    """The first K images are in the order of SCAN's scores of the files, the others in that of the embeddings."""
    scan = reranking_model()
    scan.save(tmp_path / "scan")
    query = ("search", place.index, "a dog runs in the snow", "--type", "image", "-k", 20, "--all")
    plain = reported(capsys, *query)["results"]
    assert main([*map(str, query), "--rerank", str(tmp_path / "scan"), "--depth", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)  # progress is on stderr
    scores = scan.score_pairs([result["path"] for result in plain[:3]], ["a dog runs in the snow"])[:, 0]
    wanted = [plain[place]["path"] for place in np.argsort(-scores, kind="stable")]
    assert [result["path"] for result in found["results"]] == [*wanted, *(result["path"] for result in plain[3:])]
    assert ["rerank_score" in result for result in found["results"]] == [True] * 3 + [False] * (len(plain) - 3)
    assert found["reranking"]["scored"] == 3
    assert "scores pairs" not in error_line(capsys, 2, *query, "--depth", 3)
    assert "cannot re-rank" in error_line(capsys, 1, *query, "--rerank", place.model.folder)


def test_search_command_checks_model(place, capsys, tmp_path):
    """A moved model, another model and a missing collection are errors."""
    moved = tmp_path / "moved.vse"
    with EmbeddedCollection.create(
        moved, model=place.model.fingerprint(), model_source=str(tmp_path / "gone"), dimensions=place.model.embed_size
    ) as collection:
        collection.add([Entry(media(place.photos, "a.png"), (Moment(place.vectors[0]),))])
    assert "--model" in error_line(capsys, 1, "search", moved, "snow")
    assert paths(reported(capsys, "search", moved, "snow", "--model", exported_folder())) == ["a.png"]
    other = build(seed=5).save(tmp_path / "other")
    line = error_line(capsys, 1, "search", place.index, "snow", "--model", other)
    assert place.model.fingerprint() in line
    assert "no collection" in error_line(capsys, 1, "search", tmp_path, "snow")


def test_search_loads_only_light_install(place):
    """With an export, a search loads neither torch nor anything that the light install lacks."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "search", str(place.index), "snow", "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    report = json.loads(done.stderr.splitlines()[-1])
    assert report["code"] == 0, done.stderr
    loaded = {name.partition(".")[0] for name in report["loaded"]}
    assert not loaded & {*ABSENT, "av", "rich", "fastapi", "onnx"}
    assert {"numpy", "onnxruntime", "tokenizers", "sqlite3"} <= loaded
    assert json.loads(done.stdout)["results"]


class TestCollection:
    """``vse collection``."""

    def test_collection_info_prints_text_and_json(self, place, capsys):
        """Counts and the model, as text and JSON."""
        found = reported(capsys, "collection", "info", place.index)
        assert (found["files"], found["items"], found["model"]) == (7, 8, place.model.fingerprint())
        assert main(["collection", "info", str(place.index)]) == 0
        assert "7 files, 8 items" in capsys.readouterr().out

    def test_collection_duplicates_finds_copy(self, place, capsys):
        """The copy and its original, whatever the names."""
        assert main(["collection", "duplicates", str(place.index), "--threshold", "0.9999", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert {"a.png", "copy.png"} in [{Path(each["path"]).name for each in group} for group in found["groups"]]
        assert "--threshold 2" in error_line(capsys, 2, "collection", "duplicates", place.index, "--threshold", 2)

    def test_collection_remove_by_path(self, place, capsys, tmp_path):
        """Files and folders are removed by path; an unknown path is an error before anything is removed."""
        index = tmp_path / "own.vse"
        with EmbeddedCollection.create(index, model="m", model_source="m", dimensions=place.model.embed_size) as made:
            made.add(
                [
                    Entry(media(place.photos, name), (Moment(vector),))
                    for name, vector in zip(place.names, place.vectors, strict=True)
                ]
            )
        line = error_line(capsys, 1, "collection", "remove", index, place.photos / "a.png", place.photos / "nowhere")
        assert "nowhere" in line
        assert reported(capsys, "collection", "info", index)["files"] == 6
        found = reported(capsys, "collection", "remove", index, place.photos / "a.png", place.photos / "sea")
        assert (found["note"], found["files"]) == ("3 files removed", 3)
        assert (place.photos / "a.png").is_file()

    def test_collection_without_command_lists_them(self, capsys):
        """The error lists the commands."""
        assert "'verify'" in error_line(capsys, 2, "collection")


@pytest.fixture(scope="module")
def named(place):
    """The same images with captions, cameras and places."""
    index = place.home / "named.vse"
    about = {"model": place.model.fingerprint(), "model_source": str(place.model.folder)}
    with EmbeddedCollection.create(index, **about, dimensions=place.model.embed_size) as collection:
        details = {"a.png": {"camera": "Canon EOS 80D", "place": "Quito, Ecuador"}, "b.png": {"captions": ("red hat",)}}
        files = [
            media(place.photos, name, taken=86400.0 * 365 * at, **details.get(name, {}))
            for at, name in enumerate(place.names)
        ]
        collection.add([Entry(file, (Moment(vector),)) for file, vector in zip(files, place.vectors, strict=True)])
    return index


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["snow camera:canon"], ["a.png"]),
        (["snow", "--camera", "eos 80d"], ["a.png"]),
        (["snow", "--place", "quito"], ["a.png"]),
        (["snow place:Quito", "--place", "Paris"], ["a.png"]),
        (["snow", "--name", "c*"], ["copy.png", "sea/c.png"]),
        (["snow folder:sea name:d"], ["sea/d.png"]),
        (['a "red hat"'], ["b.png"]),
        (["snow after:1973 before:1975"], ["copy.png", "e.png"]),
        (["snow type:video"], []),
    ],
)
def test_typed_filters_and_options_restrict_the_search(place, named, capsys, arguments, names):
    """What is typed replaces an option of the same name."""
    found = reported(capsys, "search", named, *arguments)["results"]
    assert sorted(each["path"] for each in found) == [str(place.photos / name) for name in names]


def test_typed_words_and_exclusions(place, named, capsys):
    """A caption is found first and named as the reason; an excluded one is not found."""
    found = reported(capsys, "search", named, "a red hat")["results"]
    assert (found[0]["path"], found[0]["matched"]) == (str(place.photos / "b.png"), ["caption"])
    assert main(["search", str(named), "a red hat"]) == 0
    assert "b.png  (caption)" in capsys.readouterr().out
    rest = reported(capsys, "search", named, 'snow -"red hat"')["results"]
    assert len(rest) == len(place.names) - 1
    typed = reported(capsys, "search", named, "snow camera:", "--literal")
    assert (typed["query"], len(typed["results"])) == ("snow camera:", len(place.names))


def test_sort_by_date_on_the_command_line(place, named, capsys):
    found = reported(capsys, "search", named, "snow", "--sort", "date", "-k", 3)["results"]
    assert [each["path"] for each in found] == [str(place.photos / name) for name in place.names[:2:-1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["snow camera:"], "camera: has no value"),
        (["snow type:audio"], "type:audio: expected type:image or type:video"),
        (["snow after:soon"], "after 'soon': expected a date"),
        (["snow", "--name", "!!!"], "--name '!!!' has 0 words"),
        (["snow", "--sort", "size"], "--sort 'size'"),
        (["camera:canon"], "nothing to search for beside filters"),
        (["snow camera:canon", "--captions"], "--captions finds captions"),
    ],
)
def test_bad_typed_values_are_usage_errors(named, capsys, arguments, message):
    assert message in error_line(capsys, 2, "search", named, *arguments)
