"""A small collection, the application in this process, and the service in its own process."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from starlette.testclient import TestClient
from tests.index.scan.support import exif_of, gps_of
from tests.inputs.video.clips import write_clip

from vse.cli.main import main
from vse.service import Limits, ServiceSettings, create_app
from vse.service.state import Reloader, load_collection

API = "/api/v1"
KEY = "a-key-of-many-letters"
CAMERA = "Leica-GPS-Secret"
CAPTIONS = """path,caption
a.png,a dog runs in the snow
b.jpg,two cats sleep on a red chair
sea/c.png,the man rides a horse
"""
PROGRAM = """
import json, sys
from vse.service import Limits, ServiceSettings
from vse.service.server import run_service
where, options = sys.argv[1], json.loads(sys.argv[2])
limits = Limits(**options.pop("limits", {}))
run_service(where, ServiceSettings(port=0, limits=limits, **options), ready=lambda address: print(address, flush=True))
"""


@dataclass(frozen=True)
class Home:
    """A folder of images, its index, and the model."""

    folder: Path
    model: Path

    @property
    def photos(self) -> Path:
        return self.folder / "photos"

    @property
    def index(self) -> Path:
        return self.folder / "photos.vse"

    def search(self, *arguments: object) -> dict[str, Any]:
        """The output of ``vse search INDEX … --json``."""
        return run("search", self.index, *arguments)

    def indexed(self) -> None:
        """Index what has changed."""
        report = run("index", self.photos, "--into", self.index, "--model", self.model)
        assert [each["problems"] for each in report["folders"]] == [[]]


def run(*arguments: object) -> dict[str, Any]:
    """Run a command, which must succeed, and return its JSON output."""
    out, narration = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(narration):
        assert main([*map(str, arguments), "--json"]) == 0, narration.getvalue()
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def make_home(folder: Path, model: Path) -> Home:
    """Six images, one of them twice and one rotated by its EXIF data; a video; three captions."""
    home = Home(folder, model)
    (home.photos / "sea").mkdir(parents=True)
    for seed, name in enumerate(("a.png", "sea/c.png", "sea/d.png", "e.png")):
        Image.fromarray(painted(seed)).save(home.photos / name)
    shutil.copy(home.photos / "a.png", home.photos / "copy.png")
    notes = exif_of({0x0112: 6, 0x010F: CAMERA}, {0x9003: "2024:05:17 12:00:00"}, gps_of((48, 8, 0), (11, 34, 0)))
    Image.fromarray(rotated_image()).save(home.photos / "b.jpg", exif=notes, quality=95)
    write_clip(home.photos / "clip.mp4", seconds=12, rate=5)
    (home.photos / "captions.csv").write_text(CAPTIONS)
    home.indexed()
    return home


def painted(seed: int, height: int = 300, width: int = 500) -> NDArray[np.uint8]:
    """A different image for every seed: two ramps and noise."""
    rows, columns = np.mgrid[:height, :width]
    noise = np.random.default_rng(seed).random((height, width))
    layers = np.stack([rows * 255 / height, columns * 255 / width, noise * 255], axis=-1)
    return np.roll(layers, seed, axis=-1).astype(np.uint8)


def rotated_image() -> NDArray[np.uint8]:
    """300 × 500 as stored: red on the left, blue on the right; displayed upright, red is on top."""
    stored = np.zeros((300, 500, 3), np.uint8)
    stored[:, :250], stored[:, 250:] = (220, 30, 30), (30, 30, 220)
    return stored


@contextmanager
def application(index: Path, **settings: Any) -> Iterator[TestClient]:
    """A client of the application in this process; ``limits`` are arguments of Limits, ``peer`` is its address."""
    limits = Limits(**settings.pop("limits", {}))
    peer = settings.pop("peer", "127.0.0.1")
    reloader = Reloader(lambda: load_collection(str(index)))
    app = create_app(reloader, ServiceSettings(limits=limits, **settings))
    with TestClient(app, "http://127.0.0.1:8080", raise_server_exceptions=False, client=(peer, 50000)) as client:
        yield client


def id_of(client: TestClient | httpx2.Client, name: str) -> int:
    """The id of the first item of the file with this name."""
    results = client.get(f"{API}/items", params={"k": 200}).json()["results"]
    return min(each["id"] for each in results if each["name"] == name)


def assert_problem(response: httpx2.Response, status: int, *words: str) -> str:
    """Check that a response is an RFC 9457 problem whose detail contains ``words``, and return the detail."""
    assert response.status_code == status, response.text[:500]
    assert response.headers["content-type"] == "application/problem+json"
    found = response.json()
    assert set(found) == {"type", "title", "status", "detail"}
    assert found["status"] == status
    assert found["title"]
    assert "\n" not in found["detail"]
    for word in words:
        assert word in found["detail"]
    return str(found["detail"])


def soon(holds: Callable[[], bool]) -> bool:
    """Whether the condition becomes true within ten seconds."""
    end = time.monotonic() + 10
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@dataclass
class Served:
    """A service in its own process."""

    process: subprocess.Popen[str]
    address: str
    log: Path
    client: httpx2.Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = httpx2.Client(base_url=self.address, timeout=30, trust_env=False)

    @property
    def port(self) -> int:
        match = re.search(r":(\d+)/", self.address)
        assert match
        return int(match[1])

    def peak_memory(self) -> int:
        """Peak resident memory in bytes."""
        return self._status("VmHWM")

    def memory(self) -> int:
        return self._status("VmRSS")

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(re.search(rf"{name}:\s+(\d+) kB", text)[1])  # type: ignore[index]

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def lines(self) -> list[dict[str, Any]]:
        """The log so far; every line is JSON."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@contextmanager
def service(index: Path, folder: Path, **options: Any) -> Iterator[Served]:
    """The service on a free port, with ``limits`` if given."""
    log = folder / "service.log"
    command = [sys.executable, "-c", PROGRAM, str(index), json.dumps(options)]
    with started(command, log) as process:
        assert process.stdout
        address = process.stdout.readline().strip()
        assert address, log.read_text()
        served = Served(process, address, log)
        with served.client:
            yield served


@contextmanager
def started(command: list[str], log: Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed after the test, with stderr in a file."""
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
