"""Serving while the collection changes: no request fails, and responses follow the changes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time

import pytest
from PIL import Image
from tests.service.support import API, application, assert_problem, id_of, painted, run, service

from vse.errors import InputError
from vse.service.server import loader

CHANGES = """
import sys, time
from pathlib import Path
from PIL import Image
from vse.cli.main import main
photos, index, model = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
while True:
    for names in (("x", "y"), ("y", "z"), ()):
        for name in "xyz":
            (photos / f"{name}.png").unlink(missing_ok=True)
        for name in names:
            Image.new("RGB", (60, 40), (hash(name) % 255, 9, 9)).save(photos / f"{name}.png")
        assert main(["index", str(photos), "--into", index, "--model", model]) == 0
        print("changed", flush=True)
"""


def test_requests_succeed_during_indexing(own, tmp_path):
    """While another process adds and removes files, 200 requests of all kinds are answered, none with 5xx."""
    command = [sys.executable, "-c", CHANGES, str(own.photos), str(own.index), str(own.model)]
    with service(own.index, tmp_path) as served:
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        counts, statuses = set(), []
        try:
            assert writer.stdout
            writer.stdout.readline()
            for number in range(40):
                found = served.client.get(f"{API}/search", params={"q": "snow", "k": 50, "group": number % 2 == 0})
                listed = served.client.get(f"{API}/items", params={"k": 50})
                counts.add(len(listed.json()["results"]))
                newest = max(each["id"] for each in listed.json()["results"])
                responses = [found, listed, served.client.get(f"{API}/items/{newest}/thumbnail")]
                responses.append(served.client.get(f"{API}/search", params={"like": newest}))
                responses.append(served.client.get(f"{API}/collection"))
                statuses += [response.status_code for response in responses]
            assert writer.poll() is None
        finally:
            writer.kill()
            writer.wait()
            writer.stdout.close()
    assert len(statuses) == 200
    assert set(statuses) <= {200, 404}
    assert statuses.count(200) > 150
    assert len(counts) > 1


def test_indexed_file_is_found_without_restart(own):
    """By the next request; a removed one is not found."""
    with application(own.index) as client:
        before = client.get(f"{API}/collection").json()["files"]
        Image.fromarray(painted(11, 60, 80)).save(own.photos / "new.png")
        own.indexed()
        assert client.get(f"{API}/collection").json()["files"] == before + 1
        item = id_of(client, "new.png")
        results = client.get(f"{API}/search", params={"q": "snow", "k": 50}).json()["results"]
        assert item in [each["id"] for each in results]
        (own.photos / "new.png").unlink()
        own.indexed()
        assert_problem(client.get(f"{API}/items/{item}"), 404, str(item))


def test_service_switches_model_after_an_upgrade(own, models, tmp_path):
    """Requests succeed throughout; later ones use the new model, and older query ids are unknown."""
    with service(own.index, tmp_path) as served:
        first = served.client.get(f"{API}/search", params={"q": "snow", "k": 50}).json()
        statuses, names, done = [], [], threading.Event()

        def ask() -> None:
            while not done.is_set():
                response = served.client.get(f"{API}/search", params={"q": "snow", "k": 50})
                statuses.append(response.status_code)
                names.append(served.client.get(f"{API}/collection").json()["model"]["name"])

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            command = [sys.executable, "-m", "vse", "collection", "upgrade", str(own.index)]
            subprocess.run([*command, "--model", str(models / "newer")], check=True, capture_output=True)
            time.sleep(0.5)
        finally:
            done.set()
            thread.join()
        assert set(statuses) == {200}
        assert names[0] == "old"
        assert names[-1] == "newer"
        assert names == sorted(names, reverse=True)  # it does not change back
        later = served.client.get(f"{API}/search", params={"q": "snow", "k": 50}).json()
        expected = own.search("snow", "-k", 50)
        pairs = [(each["id"], pytest.approx(each["score"], abs=1e-6)) for each in expected["results"]]
        assert [(each["id"], each["score"]) for each in later["results"]] == pairs
        assert later["results"] != first["results"]
        assert_problem(
            served.client.get(f"{API}/search", params={"query": first["query_id"]}), 404, "send the query again"
        )


def test_upgrade_to_a_missing_model_gets_503(own, models, monkeypatch):
    """With the reason but not the path, until the model is back; /healthz reports it too."""
    monkeypatch.setattr("vse.service.state.RETRY_SECONDS", 0.0)
    shutil.copytree(models / "newer", own.folder / "moving")
    with application(own.index) as client:
        run("collection", "upgrade", own.index, "--model", own.folder / "moving")
        (own.folder / "moving").rename(own.folder / "away")
        for path in (f"{API}/search?q=snow", f"{API}/items", "/healthz", "/metrics"):
            response = client.get(path)
            detail = assert_problem(response, 503, "cannot be loaded", "moving")
            assert str(own.folder) not in detail
            assert "retry-after" in response.headers
        (own.folder / "away").rename(own.folder / "moving")
        assert client.get(f"{API}/search?q=snow").status_code == 200
        assert client.get(f"{API}/collection").json()["model"]["name"] == "moving"


def test_deleted_index_gets_503(own):
    """With the reason; the page still loads. Restored or rebuilt, the index is served again."""
    with application(own.index) as client:
        assert client.get(f"{API}/search?q=snow").status_code == 200
        own.index.rename(own.folder / "away")
        for path in (f"{API}/search?q=snow", f"{API}/items", f"{API}/items/1/thumbnail", "/healthz", "/metrics"):
            detail = assert_problem(client.get(path), 503, "photos.vse is not a collection")
            assert str(own.folder) not in detail
        assert client.get("/").status_code == 200
        (own.folder / "away").rename(own.index)
        assert client.get(f"{API}/search?q=snow").status_code == 200
        shutil.rmtree(own.index)
        assert_problem(client.get(f"{API}/search?q=dog"), 503)
        (own.photos / "e.png").unlink()
        own.indexed()
        assert client.get(f"{API}/collection").json()["files"] == 6
        assert len(client.get(f"{API}/search?q=dog&type=image").json()["results"]) == 5


def test_rebuilt_index_is_served(own):
    """Deleted and rebuilt with other files at the same path: all responses are about the new one, at once."""
    with application(own.index) as client:
        assert len(client.get(f"{API}/search?q=snow&k=50").json()["results"]) > 2
        shutil.rmtree(own.index)
        for path in own.photos.rglob("*"):
            if path.is_file() and path.name != "a.png":
                path.unlink()
        own.indexed()
        assert client.get(f"{API}/collection").json()["files"] == 1
        found = client.get(f"{API}/search?q=snow&k=50").json()["results"]
        assert [each["name"] for each in found] == ["a.png"]
        assert [each["name"] for each in client.get(f"{API}/items").json()["results"]] == ["a.png"]


def test_upgrade_replaces_the_model_option(own, models):
    """After an upgrade the model of the collection is used instead of the one given at start."""
    open_it = loader(str(own.index), str(own.model))
    first = open_it()
    assert first.source == str(own.model)
    run("collection", "upgrade", own.index, "--model", models / "newer")
    assert first.collection.superseded
    second = open_it()
    assert second.source == str(models / "newer")
    first.collection.close()
    second.collection.close()
    with pytest.raises(InputError, match="holds embeddings of"):
        loader(str(own.index), str(own.model))()
