"""Models and a collection shared by the tests of the service, created once for all processes of a run."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.service.support import Home, Served, application, make_home, service

EXPORT = """
import json
import sys
from pathlib import Path
from tests.support_models import build, grid_config
from vse.models.coefficients import Coefficients
from vse.convert.onnx_export import export_onnx
windows = json.loads(sys.argv[4])
model = build(grid_config(image_size=96, **({} if windows is None else {"windows": windows})), seed=int(sys.argv[3]))
export_onnx(model, Path(sys.argv[1]) / sys.argv[2], confidence=Coefficients(-1.0, 0.7, 0.5, 0.4, "a test"))
"""
MODELS = {"old": None, "newer": None, "windows": 6}
"""Names of the exports, and how many windows their image tower pools; None pools cells."""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the exports of :data:`MODELS`, with their own coefficients.

    Other processes create them, so that the tests load no torch.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "service-models"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            command = [sys.executable, "-c", EXPORT, str(folder)]
            named = [[*command, name, str(seed), json.dumps(MODELS[name])] for seed, name in enumerate(MODELS)]
            makers = [subprocess.Popen(each, cwd=Path(__file__).parents[2]) for each in named]
            assert [maker.wait() for maker in makers] == [0] * len(makers)
            (folder / "made").touch()
    return folder


@pytest.fixture(scope="session")
def home(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A collection that no test changes."""
    return make_home(tmp_path_factory.mktemp("home"), models / "old")


@pytest.fixture
def own(models: Path, tmp_path: Path) -> Home:
    """A collection for one test, whose files it may change."""
    return make_home(tmp_path / "own", models / "old")


@pytest.fixture(scope="module")
def client(home: Home) -> Iterator[TestClient]:
    """The application over the shared collection."""
    with application(home.index) as made:
        yield made


@pytest.fixture(scope="module")
def served(home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The service over the shared collection, in its own process."""
    with service(home.index, tmp_path_factory.mktemp("served")) as made:
        yield made
