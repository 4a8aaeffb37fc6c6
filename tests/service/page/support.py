"""A collection of generated scenes and videos, and the service over it in its own process."""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import build_opener

import av
from PIL import Image

from vse.data.scenes import render, sample_scene
from vse.data.scenes.sample import caption_scene
from vse.data.scenes.scene import PALETTE

SCENES = 52
MARKUP = "<img src=x onerror=alert(1)>.png"
ODD = 'ünï & "100 %" #1?.png'
LONG = f"{'a-name-that-goes-on-' * 8}end.png"
SHAPES = {"red": (240, 160), "green": (900, 225), "blue": (160, 640), "yellow": (1800, 1350), "purple": (60, 40)}
"""Width and height of the images of one colour: usual, wide, tall, large, small."""
CLIPS = {"lights.mp4": ("red", "green", "blue"), "sunset.webm": ("yellow", "purple")}
SHOWN_SECONDS = 4  # as long as a moment
CODECS = {
    ".mp4": ("libx264", {"preset": "ultrafast", "bf": "0"}),
    ".webm": ("libvpx-vp9", {"deadline": "realtime", "cpu-used": "8"}),
}
EXIF, TAKEN, MAKE = 0x8769, 0x9003, 0x010F
KEY = "a-key-of-many-letters"


def make_folder(folder: Path) -> Path:
    """Scenes with captions and dates, plain images of all aspect ratios, odd file names, and two videos."""
    rows = []
    for number in range(SCENES):
        scene = sample_scene(0, "test", number)
        year, part = (2023, "2023") if number % 2 else (2024, "2024/beach" if number % 4 else "2024")
        path = folder / part / f"scene-{number:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        render(scene, 128).save(path, quality=92, exif=taken(year, 1 + number % 12, 1 + number % 28))
        rows += [(path.relative_to(folder).as_posix(), text) for text in caption_scene(scene, 0, "test", number)[:2]]
    for colour in SHAPES:
        make_plain(folder, colour)
    for name in (MARKUP, ODD, LONG):
        Image.new("RGB", (120, 90), PALETTE["pink"]).save(folder / name)
    halves = Image.new("RGB", (300, 300), PALETTE["red"])
    halves.paste(PALETTE["green"], (150, 0, 300, 300))
    halves.save(folder / "red left green right.png")
    for name, colours in CLIPS.items():
        write_video(folder / name, colours)
    with (folder / "captions.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("path", "caption"), *rows])
    return folder


def make_plain(folder: Path, colour: str) -> None:
    """An image of one colour."""
    Image.new("RGB", SHAPES[colour], PALETTE[colour]).save(folder / f"plain {colour}.png")


def taken(year: int, month: int, day: int) -> Image.Exif:
    """EXIF data with a date."""
    exif = Image.Exif()
    exif[MAKE] = "vse"  # Pillow drops EXIF data with an empty first directory
    exif.get_ifd(EXIF)[TAKEN] = f"{year}:{month:02d}:{day:02d} 12:00:00"
    return exif


def write_video(path: Path, colours: tuple[str, ...], rate: int = 5, size: tuple[int, int] = (160, 120)) -> None:
    """A video that shows each colour for some seconds."""
    codec, options = CODECS[path.suffix]
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate, options=options)
        stream.width, stream.height = size
        stream.pix_fmt, stream.gop_size = "yuv420p", rate
        for colour in colours:
            for _ in range(rate * SHOWN_SECONDS):
                container.mux(stream.encode(av.VideoFrame.from_image(Image.new("RGB", size, PALETTE[colour]))))
        container.mux(stream.encode())


def vse(*arguments: object, **options: Any) -> dict[str, Any]:
    """Run a command and return its JSON output."""
    command = [sys.executable, "-m", "vse", *map(str, arguments), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, **options)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@dataclass
class Served:
    """A running service; ``get`` calls its API directly."""

    process: subprocess.Popen[str]
    address: str

    def get(self, path: str, *parameters: tuple[str, object]) -> Any:
        with build_opener().open(f"{self.address}api/v1/{path}?{urlencode(parameters)}", timeout=20) as response:
            return json.load(response)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


@contextmanager
def serving(*indexes: Path, port: int = 0, key: str | None = None, **variables: str) -> Iterator[Served]:
    """``vse serve`` until the block ends, with these environment variables."""
    command = [sys.executable, "-m", "vse", "serve", *map(str, indexes), "--port", str(port), "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **({"VSE_API_KEY": key} if key else {}), **variables}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    try:
        address = _first_object(process)["address"]
        _wait(address, process)
        yield Served(process, address)
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def _first_object(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The first JSON object that the process prints, on one line or several."""
    assert process.stdout
    text = ""
    for line in process.stdout:
        text += line
        if line.rstrip().endswith("}"):
            found: dict[str, Any] = json.loads(text)
            return found
    raise AssertionError(f"the service ended with {process.wait()}")


def _wait(address: str, process: subprocess.Popen[str]) -> None:
    """Wait until the service accepts connections."""
    host, _, port = address.removeprefix("http://").rstrip("/").partition(":")
    while process.poll() is None:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError(f"the service ended with {process.returncode}")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
