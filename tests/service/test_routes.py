"""Responses equal those of the command and the index, for every kind of query."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from PIL import Image
from tests.service.support import API, Home, application, assert_problem, id_of, painted

from vse.index.open import open_collection

QUERIES = [
    ({"q": "a dog in the snow"}, ["a dog in the snow"]),
    ({"q": ["snow", "a red chair"], "weight": [1, 0.25]}, ["snow", "a red chair", "--weights", "1,0.25"]),
    ({"q": "snow", "not": ["a dog", "a horse"]}, ["snow", "--not", "a dog", "--not", "a horse"]),
    ({"like": [1, 2]}, ["--like", "1", "--like", "2"]),
    ({"like": 3, "q": "snow", "weight": [2, 1]}, ["snow", "--like", "3", "--weights", "2,1"]),
    ({"q": "snow", "k": 2, "offset": 2}, ["snow", "-k", "2", "--page", "2"]),
    ({"q": "snow", "folder": "sea"}, ["snow", "--folder", "sea"]),
    ({"q": "snow", "type": "video"}, ["snow", "--type", "video"]),
    ({"q": "snow", "after": "2024-05", "before": "2024-06"}, ["snow", "--after", "2024-05", "--before", "2024-06"]),
    ({"q": "snow", "near": "48.1,11.6", "within": 20}, ["snow", "--near", "48.1,11.6", "--within", "20"]),
    ({"q": "snow", "near": "0,0"}, ["snow", "--near", "0,0"]),
    ({"q": "a snow leopard"}, ["a snow leopard"]),
    ({"q": "snow", "name": "clip"}, ["snow", "--name", "clip"]),
    ({"q": "snow", "camera": "Leica"}, ["snow", "--camera", "leica gps"]),
    ({"q": "snow red chair two", "words": ["red chair", "two"]}, ['snow "red chair" "two"']),
    ({"q": "snow", "sort": "date"}, ["snow", "--sort", "date"]),
]


def assert_same(found: dict, expected: dict, photos) -> None:
    """Check that ids, scores, confidences, paths, pages and notes are those of the command."""
    for name in ("query", "exact", "offset", "more", "unknown", "cut"):
        assert found[name] == expected[name], name
    assert len(found["results"]) == len(expected["results"])
    for ours, theirs in zip(found["results"], expected["results"], strict=True):
        for name in ("id", "score", "confidence", "start", "end", "kind", "taken", "group"):
            assert ours[name] == pytest.approx(theirs[name], abs=1e-6), name
        path = PurePosixPath(theirs["path"]).relative_to(photos)
        assert (ours["folder"], ours["name"]) == (str(path.parent).removeprefix("."), path.name)


@pytest.mark.parametrize(("asked", "command"), QUERIES, ids=[str(asked) for asked, _ in QUERIES])
def test_search_equals_the_command(client, home, asked, command):
    """GET /search finds what ``vse search --json`` finds, with the same defaults except for k."""
    found = client.get(f"{API}/search", params={"k": 10, **asked})
    assert found.status_code == 200
    assert_same(found.json(), home.search(*command), home.photos)


def test_min_confidence_and_group_equal_the_command(client, home):
    """``min_confidence`` and ``group`` do what the options of the command do, and both have an effect."""
    everything = home.search("snow", "-k", "50")["results"]
    middle = sorted(each["confidence"] for each in everything)[len(everything) // 2]
    sure = client.get(f"{API}/search", params={"q": "snow", "min_confidence": middle, "k": 50}).json()
    assert_same(sure, home.search("snow", "--min-confidence", middle, "-k", "50"), home.photos)
    assert 0 < len(sure["results"]) < len(everything)
    joined = client.get(f"{API}/search", params={"q": "snow", "group": "true", "k": 50}).json()
    assert_same(joined, home.search("snow", "--group-duplicates", "-k", "50"), home.photos)
    assert any(each["group"] for each in joined["results"])


def test_upload_search_equals_the_command(client, home, tmp_path):
    """POST /search with images, text and items is ``vse search --image``; the order of weights is the same."""
    images = [home.photos / "sea" / "d.png", home.photos / "b.jpg"]
    files = [("image", (path.name, path.read_bytes())) for path in images]
    data = {"q": "snow", "not": "a dog", "like": "1", "weight": ["1", "2", "3", "4"], "k": "5"}
    found = client.post(f"{API}/search", files=files, data=data)
    command = ["snow", "--not", "a dog", "--like", "1", "--weights", "1,2,3,4", "-k", "5"]
    expected = home.search(*command, "--image", images[0], "--image", images[1])
    assert found.status_code == 200
    named = "snow, image of bytes, image of bytes, like 1, not a dog"  # file names are not kept
    assert_same(found.json(), {**expected, "query": named}, home.photos)
    assert home.search("--image", images[0])["results"][0]["path"] == str(images[0])


def test_unknown_words_are_reported(client):
    """Alone they give no results, which is not an error; excluded ones are dropped."""
    for words, unknown in (("qqqzzz", ["qqqzzz"]), ("\ufffd\ufffd", [])):
        nothing = client.get(f"{API}/search", params={"q": words}).json()
        assert (nothing["results"], nothing["more"], nothing["query_id"]) == ([], False, None)
        assert nothing["unknown"] == unknown
    found = client.get(f"{API}/search", params={"q": "snow", "not": ["a dog", "qqqzzz"]}).json()
    without = client.get(f"{API}/search", params={"q": "snow", "not": "a dog"}).json()
    assert found["results"] == without["results"]
    assert found["unknown"] == ["qqqzzz"]
    assert_problem(client.get(f"{API}/captions", params={"q": "qqqzzz"}), 422, "knows none of its words")


def test_results_name_the_texts_that_match(client, home):
    """A word that only a caption holds finds its file, even if the model does not know it; it has no evidence then."""
    found = client.get(f"{API}/search", params={"q": "two sleeping cats"}).json()
    assert (found["results"][0]["name"], found["results"][0]["matched"]) == ("b.jpg", ["caption"])
    named = client.get(f"{API}/search", params={"q": "leica", "min_confidence": 1}).json()
    assert named["results"] == []  # cameras are found by their filter
    alone = client.get(f"{API}/search", params={"q": "clip"}).json()
    assert [(each["name"], each["matched"]) for each in alone["results"]] == [("clip.mp4", ["name"])]
    assert alone["unknown"] == ["clip"]
    about = {"query": alone["query_id"]}
    assert client.get(f"{API}/search", params=about).json()["results"] == alone["results"]
    assert_problem(client.get(f"{API}/captions", params=about), 422, "knows none of its words")
    evidence = client.get(f"{API}/items/{alone['results'][0]['id']}/evidence", params=about)
    assert evidence.status_code == 422
    assert "no evidence" in evidence.json()["detail"]


def test_word_filters_of_items_and_bad_ones(client):
    """Browsing takes the same filters; a value without words, or a wrong order, is 422 in one line."""
    names = [
        each["name"]
        for each in client.get(f"{API}/items", params={"camera": "leica", "sort": "date"}).json()["results"]
    ]
    assert names == ["b.jpg"]
    words = client.get(f"{API}/items", params={"words": ["dog runs", "snow"]}).json()["results"]
    assert [each["name"] for each in words] == ["a.png"]
    for route in ("search", "items"):
        for bad in ({"name": "!!!"}, {"words": ["snow", "…"]}, {"sort": "size"}, {"camera": "x" * 300}):
            assert_problem(client.get(f"{API}/{route}", params={"q": "snow", **bad} if route == "search" else bad), 422)


def test_collection_counts_places_and_cameras(client):
    found = client.get(f"{API}/collection").json()
    assert [each["files"] for each in found["cameras"]] == [1]
    assert "Leica" in found["cameras"][0]["name"]
    assert all(set(each) == {"name", "files"} for each in (*found["places"], *found["cameras"]))


def test_query_id_replaces_a_query(client, home):
    """``query`` refers to an earlier query, alone: for pages, filters and captions, while it is cached."""
    first = client.get(f"{API}/search", params={"q": "snow", "not": "a dog", "k": 3}).json()
    more = client.get(f"{API}/search", params={"query": first["query_id"], "k": 3, "offset": 3, "type": "image"})
    expected = home.search("snow", "--not", "a dog", "--type", "image", "-k", "3", "--page", "2")
    assert_same(more.json(), expected, home.photos)
    assert more.json()["query_id"] == first["query_id"]
    captions = client.get(f"{API}/captions", params={"query": first["query_id"]}).json()
    assert captions["results"] == client.get(f"{API}/captions", params={"q": "snow", "not": "a dog"}).json()["results"]
    again = client.get(f"{API}/search", params={"q": "snow", "not": "a dog"}).json()
    assert again["query_id"] == first["query_id"]
    assert_problem(client.get(f"{API}/search", params={"query": "unknown"}), 404, "send the query again")
    both = client.get(f"{API}/search", params={"query": first["query_id"], "q": "snow"})
    assert_problem(both, 422, "omit q")


@pytest.mark.parametrize(
    ("asked", "command"), [({"q": "snow"}, ["snow"]), ({"like": 1, "k": 2}, ["--like", 1, "-k", 2])]
)
def test_captions_equal_the_command(client, home, asked, command):
    """GET /captions is ``vse search --captions``."""
    found, expected = client.get(f"{API}/captions", params=asked).json(), home.search(*command, "--captions")
    for name in ("query", "offset", "more", "unknown", "cut"):
        assert found[name] == expected[name]
    pairs = [(each["caption"], each["id"], pytest.approx(each["score"], abs=1e-6)) for each in expected["captions"]]
    assert [(each["caption"], each["id"], each["score"]) for each in found["results"]] == pairs
    assert pairs


def test_items_equal_the_index(client, home):
    """GET /items pages through the files as the index does; GET /items/ID returns what the index knows of one."""
    collection = open_collection(home.index)
    try:
        expected = [item.id for item in collection.recent(100)]
        pages = [client.get(f"{API}/items", params={"k": 3, "offset": offset}).json() for offset in (0, 3, 6, 9)]
        assert [each["id"] for page in pages for each in page["results"]] == expected
        assert [page["more"] for page in pages] == [len(expected) > end for end in (3, 6, 9, 12)]
        assert all(each["score"] is None for page in pages for each in page["results"])
        for item in collection.items(expected):
            found = client.get(f"{API}/items/{item.id}").json()
            file = item.file
            for name in ("kind", "size", "taken", "width", "height", "latitude", "longitude", "duration"):
                assert found[name] == getattr(file, name), name
            for name in ("camera", "place", "title", "description", "ocr"):
                assert found[name] == getattr(file, name), name
            assert (found["captions"], found["keywords"]) == (list(file.captions), list(file.keywords))
            assert (found["start"], found["end"]) == (item.start, item.end)
            assert f"{found['folder']}/{found['name']}".lstrip("/") == file.path
            assert found["available"] is True
            assert (found["media"] is not None) == (file.kind == "video")
    finally:
        collection.close()


def test_evidence_route_adds_up_to_the_score(client, home):
    """Over the cells of an image and the frames of a video."""
    found = client.get(f"{API}/search", params={"q": "a dog in the snow", "k": 50}).json()
    kinds = set()
    for result in found["results"]:
        parts = client.get(f"{API}/items/{result['id']}/evidence", params={"query": found["query_id"]}).json()
        assert parts["score"] == pytest.approx(result["score"], abs=2e-3)
        shares = [cell for row in parts["cells"] for cell in row] if "cells" in parts else []
        shares += [frame["share"] for frame in parts.get("frames", [])]
        assert sum(shares) == pytest.approx(parts["score"], abs=1e-3)
        kinds.add(parts["kind"])
    assert kinds == {"image", "video"}


def test_evidence_route_has_boxes_for_a_model_of_windows(models, tmp_path):
    """Each window with its share of the score, in parts of what the model sees; their spread over cells sums to it."""
    own = Home(tmp_path, models / "windows")
    own.photos.mkdir()
    Image.fromarray(painted(0)).save(own.photos / "a.png")
    own.indexed()
    with application(own.index) as client:
        found = client.get(f"{API}/search", params={"q": "a dog in the snow"}).json()
        (result,) = found["results"]
        parts = client.get(f"{API}/items/{result['id']}/evidence", params={"query": found["query_id"]}).json()
    assert len(parts["boxes"]) == 6
    for box in parts["boxes"]:
        assert 0 <= box["left"] < box["right"] <= 1
        assert 0 <= box["top"] < box["bottom"] <= 1
    assert sum(box["share"] for box in parts["boxes"]) == pytest.approx(result["score"], abs=2e-3)
    assert sum(map(sum, parts["cells"])) == pytest.approx(result["score"], abs=2e-3)


def test_collection_route_equals_the_index(client, home):
    """Counts as the index has them; of paths on this machine only the last part."""
    found = client.get(f"{API}/collection").json()
    assert (found["name"], found["model"]["name"]) == ("photos.vse", "old")
    assert (found["files"], found["images"], found["videos"], found["captions"]) == (7, 6, 1, 3)
    assert found["folders"] == [{"path": "sea", "files": 2}]
    assert str(home.folder) not in client.get(f"{API}/collection").text
    curves = client.get(f"{API}/model/curves").json()["curves"]
    assert {curve["tower"] for curve in curves} == {"image", "text"}
    assert id_of(client, "clip.mp4") > 0
