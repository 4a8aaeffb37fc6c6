"""A served collection moves from one public model to another and back: requests go on, ids stay."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.service.support import API, Served, run, service, soon

MAKE = """
import sys
from pathlib import Path
import vse
from tests.models.published import save_transformers, save_transformers_js
from vse.convert.onnx_export import export_onnx
folder = Path(sys.argv[1])
save_transformers(folder / "clip", seed=1)
export_onnx(vse.load(folder / "clip"), folder / "export")
save_transformers_js(folder / "pair", seed=2)
save_transformers(folder / "siglip", "siglip")
"""
WIDTHS = {"export": 12, "pair": 12, "clip": 12, "siglip": 16}
FILES = 60
QUERY = {"q": "a dog in the snow", "k": 100}


@pytest.fixture(scope="module")
def public_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CLIP as torch, as an export and as an ONNX pair of other weights, and a wider SigLIP, made in another process."""
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("public")
    subprocess.run([sys.executable, "-c", MAKE, str(folder)], check=True, cwd=Path(__file__).parents[2])
    return folder


@pytest.fixture(scope="module")
def many_photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many") / "photos"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for number in range(FILES):
        Image.fromarray(generator.integers(0, 255, (40, 50, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    return folder


class Asking(threading.Thread):
    """Sends searches and looks at the collection until told to stop."""

    def __init__(self, served: Served) -> None:
        super().__init__()
        self.served, self.stopping = served, threading.Event()
        self.statuses: list[int] = []
        self.answers: list[dict[str, Any]] = []
        self.collections: list[dict[str, Any]] = []

    def run(self) -> None:
        while not self.stopping.is_set():
            found = self.served.client.get(f"{API}/search", params=QUERY)
            about = self.served.client.get(f"{API}/collection")
            like = self.served.client.get(f"{API}/search", params={"like": 1, "k": 5})
            self.statuses += [response.status_code for response in (found, about, like)]
            self.answers.append(found.json())
            self.collections.append(about.json())


@contextmanager
def asking(served: Served) -> Iterator[Asking]:
    thread = Asking(served)
    thread.start()
    try:
        yield thread
    finally:
        thread.stopping.set()
        thread.join()


def scores_by_id(answer: dict[str, Any]) -> dict[int, float]:
    return {each["id"]: round(each["score"], 4) for each in answer["results"]}


def upgraded(index: Path, model: Path) -> None:
    """The real command, in its own process."""
    command = [sys.executable, "-m", "vse", "collection", "upgrade", str(index), "--model", str(model)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_served_collection_moves_between_public_models(public_models, many_photos, tmp_path):
    """Every answer is 200 and of a model of that time; the items keep their ids all the way and back."""
    first, *others = ("export", "siglip", "pair")
    index = tmp_path / "photos.vse"
    run("index", many_photos, "--into", index, "--model", public_models / first)
    expected = {}
    with service(index, tmp_path) as served:
        expected[first] = scores_by_id(run("search", index, QUERY["q"], "-k", 100))
        assert len(expected[first]) == FILES
        before = first
        for goal in (*others, first):
            with asking(served) as asked:
                assert soon(lambda asked=asked: len(asked.answers) > 2)
                upgraded(index, public_models / goal)
                seen = len(asked.answers)
                assert soon(lambda asked=asked, seen=seen: len(asked.answers) > seen + 2)
            expected[goal] = scores_by_id(run("search", index, QUERY["q"], "-k", 100))
            assert set(asked.statuses) == {200}
            answers = [scores_by_id(answer) for answer in asked.answers]
            for answer in answers:
                assert any(answer == pytest.approx(expected[each], abs=2e-4) for each in (before, goal))
            assert answers[-1] == pytest.approx(expected[goal], abs=2e-4)
            assert all(answer.keys() == expected[first].keys() for answer in answers)
            assert asked.collections[-1]["model"]["name"] == goal
            dimensions = [each["model"]["dimensions"] for each in asked.collections]
            assert dimensions[-1] == WIDTHS[goal]
            assert set(dimensions) <= {WIDTHS[before], WIDTHS[goal]}
            before = goal
        verified = run("collection", "verify", index)
        assert verified["problems"] == []


def test_capabilities_follow_the_model_of_a_running_service(own, public_models, tmp_path):
    """From a model with evidence and confidence to CLIP, which has neither, and back: no restart, no stale answer."""
    with service(own.index, tmp_path) as served:
        before = served.client.get(f"{API}/collection").json()
        assert before["model"]["capabilities"]["evidence"]
        upgraded(own.index, public_models / "clip")
        during = served.client.get(f"{API}/collection").json()
        assert not during["model"]["capabilities"]["evidence"]
        found = served.client.get(f"{API}/search", params=QUERY).json()
        assert all(each.get("confidence") is None for each in found["results"])
        upgraded(own.index, own.model)
        after = served.client.get(f"{API}/collection").json()
        assert after["model"] == before["model"]
        found = served.client.get(f"{API}/search", params=QUERY).json()
        assert all(each["confidence"] is not None for each in found["results"])
