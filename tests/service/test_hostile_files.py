"""A corpus of hostile files through indexing, thumbnails and uploads: refused or used, and nothing else suffers."""

from __future__ import annotations

import time

import pytest
from tests.hostile.bounds import LIMIT, measured
from tests.hostile.corpus import write_corpus
from tests.service.support import API, application, run

PARENT = 200_000_000
"""Bytes that indexing the corpus, or serving it, may take in the process itself."""


@pytest.fixture
def corpus(own):
    """The hostile files, inside the folder of a collection."""
    return write_corpus(own.photos / "hostile")


def test_hostile_corpus_through_index_thumbnails_and_uploads(own, corpus):
    """Every file is indexed or listed with its reason; no request is a 500, slow, or takes the service along."""
    with measured() as indexing:
        report = run("index", own.photos, "--into", own.index, "--model", own.model)["folders"][0]
    indexing.check(parent=PARENT)
    listed = {problem["path"].removeprefix("hostile/") for problem in report["problems"]}
    with application(own.index) as client, measured() as serving:
        found = client.get(f"{API}/items", params={"folder": "hostile", "k": 200}).json()["results"]
        indexed = {each["name"]: each for each in found}
        assert indexed.keys() | listed == corpus.keys()
        assert {"scans.jpg", "bomb.png", "empty.jpg", "text.png"} <= listed
        assert "whole.mp4" in indexed
        for name, path in corpus.items():
            began = time.monotonic()
            answers = [client.post(f"{API}/search", files={"image": path.read_bytes()})]
            if name in indexed:
                answers.append(client.get(indexed[name]["thumbnail"]))
                answers.append(client.get(f"{API}/items/{indexed[name]['id']}/preview"))
            assert {answer.status_code for answer in answers} <= {200, 404, 422}, (name, answers[-1].text[:200])
            assert time.monotonic() - began < LIMIT, name
        assert client.get(f"{API}/search", params={"q": "snow"}).json()["results"]
    serving.check(parent=PARENT)
