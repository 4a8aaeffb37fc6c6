"""A model without evidence for images and without coefficients: null, typed problems, and what the service declares."""

from __future__ import annotations

import shutil
from contextlib import closing

import pytest
from tests.service.support import API, application, assert_problem, id_of, make_home
from tests.support_foreign import foreign_copy

from vse.service.state import load_collection


@pytest.fixture(scope="module")
def plain(models, tmp_path_factory):
    """A collection of a foreign model."""
    folder = tmp_path_factory.mktemp("plain")
    return make_home(folder, foreign_copy(models / "old", folder / "clip"))


@pytest.fixture(scope="module")
def plain_client(plain):
    with application(plain.index) as made:
        yield made


def test_collection_declares_capabilities(client, plain_client):
    """With and without evidence and confidence."""
    every = {"images": True, "texts": True, "videos": True, "evidence": True, "features": False, "confidence": True}
    every |= {"relevance": False, "rerank": False}
    assert client.get(f"{API}/collection").json()["model"]["capabilities"] == every
    found = plain_client.get(f"{API}/collection").json()
    assert found["model"]["capabilities"] == every | {"evidence": False, "confidence": False}
    assert found["searches_text"] is True


def test_search_without_coefficients_has_scores_and_null_confidence(client, plain_client):
    """Ids and scores are those of the same towers with coefficients; the order does not change."""
    ours, theirs = (each.get(f"{API}/search", params={"q": "a dog"}).json() for each in (client, plain_client))
    assert ours["results"]
    assert all(0 <= each["confidence"] <= 1 for each in ours["results"])
    assert {each["confidence"] for each in theirs["results"]} == {None}
    assert [each["name"] for each in ours["results"]] == [each["name"] for each in theirs["results"]]
    assert [each["score"] for each in theirs["results"]] == pytest.approx([each["score"] for each in ours["results"]])


@pytest.mark.parametrize("least", [0, 0.5])
def test_min_confidence_without_coefficients_is_a_typed_problem(plain_client, plain, least):
    """For texts and for uploaded images."""
    given = {"q": "a dog", "min_confidence": least}
    files = {"image": (plain.photos / "a.png").read_bytes()}
    for response in (
        plain_client.get(f"{API}/search", params=given),
        plain_client.post(f"{API}/search", data=given, files=files),
    ):
        assert_problem(response, 422, "vse calibrate MODEL --data DIR", "confidence")
        assert response.json()["type"] == "urn:vse:problem:no-confidence"


def test_evidence_of_an_image_is_a_typed_problem_without_it(plain_client):
    """Never a sum that does not add up."""
    query = plain_client.get(f"{API}/search", params={"q": "a dog"}).json()["query_id"]
    url = f"{API}/items/{id_of(plain_client, 'a.png')}/evidence"
    response = plain_client.get(url, params={"query": query})
    assert_problem(response, 422, "evidence", "vse inspect")
    assert response.json()["type"] == "urn:vse:problem:no-evidence"
    assert_problem(plain_client.get(url, params={"query": "expired"}), 404)


def test_evidence_of_a_video_needs_no_ability_of_the_model(plain_client):
    """A moment is the mean of its frames, whatever the model."""
    found = plain_client.get(f"{API}/search", params={"q": "a dog", "type": "video"}).json()
    for result in found["results"]:
        url = f"{API}/items/{result['id']}/evidence"
        parts = plain_client.get(url, params={"query": found["query_id"]}).json()
        assert parts["kind"] == "video"
        assert sum(frame["share"] for frame in parts["frames"]) == pytest.approx(result["score"], abs=1e-4)


def test_calibrated_foreign_model_has_confidence(plain, models, tmp_path):
    """Coefficients beside the model count, whoever trained it."""
    calibrated = shutil.copytree(plain.model, tmp_path / "clip")
    shutil.copy(models / "old" / "confidence.json", calibrated)
    loaded = load_collection(str(plain.index), str(calibrated))
    with closing(loaded.collection):
        assert loaded.coefficients is not None
        assert loaded.coefficients.source == "a test"
        assert not loaded.model.capabilities.evidence
