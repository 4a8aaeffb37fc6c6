"""Several collections in one service, collections of own vectors, vectors as queries, cursors, totals, request ids."""

from __future__ import annotations

import json
import logging
import re

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.service.support import API, Home, application, assert_problem, id_of, make_home, run

from vse.index import import_embeddings
from vse.service import ServiceSettings, create_app
from vse.service.state import Reloader, load_collection

WIDTH = 5
VECTORS = np.random.default_rng(3).standard_normal((30, WIDTH))


@pytest.fixture(scope="module")
def external(tmp_path_factory):
    """A collection of embeddings that are computed elsewhere."""
    folder = tmp_path_factory.mktemp("external")
    np.save(folder / "vectors.npy", VECTORS)
    rows = [{"id": f"doc {number}", "title": f"Document {number}", "taken": 86400.0 * number} for number in range(30)]
    (folder / "rows.json").write_text(json.dumps(rows))
    import_embeddings(folder / "own.vse", [folder / "vectors.npy", folder / "rows.json"], model="my encoder")
    return folder / "own.vse"


@pytest.fixture(scope="module")
def several(home, external, models, tmp_path_factory):
    """The shared collection, own vectors, and another collection of the same name as the first."""
    other = make_home(tmp_path_factory.mktemp("other"), models / "newer")
    places = [home.index, external, other.index]
    app = create_app([Reloader(lambda place=place: load_collection(str(place))) for place in places], ServiceSettings())
    with TestClient(app, "http://127.0.0.1:8080", client=("127.0.0.1", 50000)) as client:
        client.other = other
        yield client


def of(name: str) -> str:
    return f"{API}/collections/{name}"


def test_collections_are_listed_with_distinct_names(several, home):
    """In the order given; each knows its name and how many there are."""
    found = several.get(f"{API}/collections").json()["collections"]
    assert [each["name"] for each in found] == ["photos.vse", "own.vse", "photos.vse-2"]
    assert [each["files"] for each in found] == [7, 30, 7]
    for each in found:
        about = several.get(f"{each['url']}/collection").json()
        assert (about["name"], about["collections"], about["files"]) == (each["name"], 3, each["files"])
    assert several.get(f"{API}/collection").json()["name"] == "photos.vse"
    assert_problem(several.get(f"{of('none.vse')}/search?q=a"), 404, "'none.vse'", f"{API}/collections")


def test_routes_of_each_collection_answer_about_it(several, home):
    """Search, items, thumbnails and exports; the unprefixed ones are about the first."""
    first = several.get(f"{API}/search?q=a dog").json()["results"]
    assert several.get(f"{of('photos.vse')}/search?q=a dog").json()["results"][0]["id"] == first[0]["id"]
    other = several.get(f"{of('photos.vse-2')}/search?q=a dog").json()["results"]
    assert [each["score"] for each in other] != [each["score"] for each in first]
    for result in (first[0], other[0]):
        assert several.get(result["thumbnail"]).headers["content-type"] == "image/jpeg"
    assert other[0]["thumbnail"].startswith(f"{of('photos.vse-2')}/items/")
    details = several.get(f"{of('photos.vse-2')}/items/{other[0]['id']}").json()
    assert details["root"] == str(several.other.photos)
    assert several.get(details["preview"]).status_code == 200
    exported = several.post(f"{of('own.vse')}/export", json={"ids": [1], "format": "json"}).json()
    assert exported["items"][0]["path"] == "doc 0"


def test_a_collection_shows_no_files_of_another_ones_folders(home, models, tmp_path):
    """Folders are confirmed for one index: another one in the same service that names them shows nothing."""
    copy = Home(tmp_path, models / "old")
    run("collection", "export", home.index, tmp_path / "out")
    run("collection", "import", copy.index, tmp_path / "out")
    places = [home.index, copy.index]
    app = create_app([Reloader(lambda place=place: load_collection(str(place))) for place in places], ServiceSettings())
    with TestClient(app, "http://127.0.0.1:8080", client=("127.0.0.1", 50000)) as client:
        item = id_of(client, "a.png")
        assert client.get(f"{API}/items/{item}/original").status_code == 200
        for route in ("original", "thumbnail", "preview"):
            assert_problem(client.get(f"{of('photos.vse-2')}/items/1/{route}"), 403, "was not indexed on")
        assert {each["missing"] for each in client.get(f"{of('photos.vse-2')}/items").json()["results"]} == {True}
        ids = {"ids": [1, 2], "format": "zip"}
        assert client.post(f"{of('photos.vse-2')}/export", json=ids).status_code in (403, 404)
        assert client.post(f"{API}/export", json=ids).status_code == 200


def test_own_vectors_are_searched_by_vector_and_item(external):
    """The best is the vector itself; the query can be named again, filtered, and continued."""
    with application(external) as client:
        asked = {"vector": (VECTORS[7] * 12).tolist(), "k": 10}
        found = client.post(f"{API}/search/vector", json=asked).json()
        assert found["results"][0]["name"] == "doc 7"
        assert found["results"][0]["score"] == pytest.approx(1, abs=1e-5)
        assert found["results"][0]["missing"] is True
        again = client.get(f"{API}/search", params={"query": found["query_id"], "k": 10}).json()
        assert again["results"] == found["results"]
        late = client.post(f"{API}/search/vector", json={**asked, "after": "1970-01-20"}).json()
        assert {each["date"] >= "1970-01-20" for each in late["results"]} == {True}
        like = client.get(f"{API}/search", params={"like": found["results"][0]["id"]}).json()
        assert [each["id"] for each in like["results"]][:3] == [each["id"] for each in found["results"]][1:4]


def test_own_vectors_cannot_be_searched_by_text(external):
    """A typed problem says what works instead; the collection declares it."""
    with application(external) as client:
        about = client.get(f"{API}/collection").json()
        assert about["external"] is True
        assert about["searches_text"] is False
        assert about["model"]["name"] == "my encoder"
        assert not any(about["model"]["capabilities"].values())
        image = {"image": b"GIF89a"}
        for response in (
            client.get(f"{API}/search?q=a dog"),
            client.get(f"{API}/captions?q=a dog"),
            client.post(f"{API}/embed", json={"texts": ["a dog"]}),
            client.post(f"{API}/embed/images", files=image),
        ):
            assert_problem(response, 422, "computed elsewhere", "/search/vector")
            assert response.json()["type"] == "urn:vse:problem:no-model"
        query = client.get(f"{API}/search?like=1").json()["query_id"]
        assert client.get(f"{API}/items/2/evidence", params={"query": query}).status_code == 422
        assert client.get(f"{API}/model/curves").json() == {"curves": []}
        assert client.get(f"{API}/items").json()["total"] == 30


@pytest.mark.parametrize(
    ("vector", "reason"),
    [
        ([0.0] * WIDTH, "zero"),
        ([1.0] * (WIDTH + 1), "expected (5,)"),
        ([], "vector"),
        (["a"] * WIDTH, "vector"),
        (None, "vector"),
    ],
)
def test_invalid_vectors_are_problems(external, vector, reason):
    """Another width, no direction, no numbers."""
    with application(external) as client:
        assert_problem(client.post(f"{API}/search/vector", json={"vector": vector}), 422, reason)
        body = f'{{"vector": [{", ".join(["NaN"] * WIDTH)}]}}'
        headers = {"content-type": "application/json"}
        assert_problem(client.post(f"{API}/search/vector", content=body, headers=headers), 422, "finite")


def test_embeddings_search_like_their_text_and_image(client, home):
    """A text or image encoded by the service finds as a vector what it finds itself."""
    texts = ["a dog", "snow"]
    found = client.post(f"{API}/embed", json={"texts": texts}).json()
    about = client.get(f"{API}/collection").json()["model"]
    assert (found["model"], found["dimensions"]) == (about["fingerprint"], about["dimensions"])
    vectors = np.array(found["embeddings"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    for text, vector in zip(texts, vectors, strict=True):
        by_text = client.get(f"{API}/search", params={"q": text}).json()["results"]
        by_vector = client.post(f"{API}/search/vector", json={"vector": vector.tolist()}).json()["results"]
        assert sorted(each["id"] for each in by_text) == sorted(each["id"] for each in by_vector)
    files = [("image", (home.photos / name).read_bytes()) for name in ("a.png", "e.png")]
    found = client.post(f"{API}/embed/images", files=files).json()
    assert len(found["embeddings"]) == 2
    best = client.post(f"{API}/search/vector", json={"vector": found["embeddings"][1]}).json()["results"][0]
    assert best["name"] == "e.png"
    assert best["score"] == pytest.approx(1, abs=1e-4)


def test_embed_limits(client):
    """Texts, characters, images and pixels are limited."""
    assert_problem(client.post(f"{API}/embed", json={"texts": ["a"] * 33}), 422, "at most 32")
    assert_problem(client.post(f"{API}/embed", json={"texts": []}), 422, "at least 1")
    assert_problem(client.post(f"{API}/embed", json={"texts": ["a" * 2001]}), 422, "at most 2000")
    assert_problem(client.post(f"{API}/embed/images", files=[("image", b"x")] * 5), 422, "at most 4")
    assert_problem(client.post(f"{API}/embed/images", files=[("image", b"no image")]), 422, "image 1")


def pages(client, path: str, first: dict, **parameters: object) -> list[dict]:
    """The first page and those that its cursors lead to."""
    found = [first]
    while found[-1]["cursor"] is not None:
        found.append(client.get(path, params={"cursor": found[-1]["cursor"], **parameters}).json())
        assert len(found) < 100
    return found


def test_cursors_continue_search_and_browsing(external):
    """All results, each once, with the filter of the first page; the last page knows the total."""
    with application(external) as client:
        filters = {"after": "1970-01-06", "k": 4}
        browsed = pages(client, f"{API}/items", client.get(f"{API}/items", params=filters).json())
        names = [each["name"] for page in browsed for each in page["results"]]
        assert names == [f"doc {number}" for number in range(29, 4, -1)]
        assert [page["offset"] for page in browsed] == list(range(0, 25, 4))
        assert [page["total"] for page in browsed] == [*[None] * 6, 25]
        body = {"vector": VECTORS[0].tolist(), **filters}
        found = pages(client, f"{API}/search", client.post(f"{API}/search/vector", json=body).json())
        ids = [each["id"] for page in found for each in page["results"]]
        assert len(ids) == len(set(ids)) == 25
        assert found[-1]["total"] == 25
        whole = client.post(f"{API}/search/vector", json={**body, "k": 50}).json()
        assert [each["id"] for each in whole["results"]] == ids
        wider = pages(client, f"{API}/items", client.get(f"{API}/items", params=filters).json(), k=20)
        assert [len(page["results"]) for page in wider] == [4, 20, 1]


def test_cursors_continue_text_and_image_searches(client, home):
    """Excluded texts and uploaded images need not be sent again."""
    first = client.get(f"{API}/search", params={"q": ["a dog"], "not": "snow", "k": 2, "all_moments": True}).json()
    found = [each["id"] for page in pages(client, f"{API}/search", first) for each in page["results"]]
    whole = client.get(f"{API}/search", params={"q": ["a dog"], "not": "snow", "all_moments": True}).json()
    assert found == [each["id"] for each in whole["results"]]
    image = {"image": (home.photos / "a.png").read_bytes()}
    first = client.post(f"{API}/search", data={"k": 3}, files=image).json()
    assert sum(len(page["results"]) for page in pages(client, f"{API}/search", first)) > 3


@pytest.mark.parametrize(
    "cursor", ["x", "eyJvZmZzZXQiOiAtMX0", "e30" * 2000, "W10", "bnVsbA", "eyJjdXJzb3IiOiAiYSJ9", "é"]
)
def test_invalid_cursors_are_problems(client, cursor):
    """Nothing that a client makes up is an error of the service."""
    for path in ("search", "items"):
        assert_problem(client.get(f"{API}/{path}", params={"cursor": cursor}), 422, "cursor")
    known = client.get(f"{API}/items?k=2").json()["cursor"]
    assert_problem(client.get(f"{API}/items", params={"cursor": known, "type": "video"}), 422, "omit type")


def test_request_ids(client, caplog):
    """A sane id of the client is kept, another replaced; log and response have the same."""
    caplog.set_level(logging.INFO, "vse.service")
    given = ["abc-1_2.3", "", "a b", "x" * 65, "a\tb"]
    found = [client.get("/healthz", headers={"X-Request-ID": each}).headers["x-request-id"] for each in given]
    found += [client.get("/nowhere").headers["x-request-id"]]
    assert found[0] == "abc-1_2.3"
    assert all(re.fullmatch("[0-9a-f]{16}", each) for each in found[1:])
    logged = [json.loads(record.getMessage())["request_id"] for record in caplog.records]
    assert logged == found


def test_serve_command_serves_several(home, external, monkeypatch, capsys):
    """In the order given; an index named twice, or a model for several, is an error."""
    from vse.cli.main import main

    asked = []
    monkeypatch.setattr("vse.service.server.run_service", lambda where, *rest, **options: asked.append(where))
    assert main(["serve", str(home.index), str(external)]) == 0
    assert asked == [[str(home.index), str(external)]]
    assert main(["serve", str(home.index), str(home.index)]) == 2
    assert main(["serve", str(home.index), str(external), "--model", "x"]) == 2
    assert "for a single index" in capsys.readouterr().err
