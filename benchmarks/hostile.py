"""Measure what hostile files cost: an index beside them, and text search while they are uploaded.

    python benchmarks/hostile.py [--photos DIR] [--uploads 8] [--queries 300] [--json]

Two JPEGs of 49 megapixels and less than 1 MB: one repeats its last scan 5,000 times, the other 85 times, which is
within the limit and takes seconds. Both are indexed beside 40 images (of DIR, or generated). Then a service is asked
for texts, first alone, then while ``--uploads`` clients upload these two files over and over. The most memory of all
processes together is reported for both.

Latencies depend on what else the machine does: the ratio is that of one run.
"""

from __future__ import annotations

import argparse
import http.client
import io
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIDE, PHOTOS = 7000, 40
SCANS = {"refused.jpg": 5000, "slow.jpg": 85}
WORDS = ("dog", "beach", "red car", "two people", "street at night", "food on a table", "a cat", "snow", "boats")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, help="folder of JPEG files")
    parser.add_argument("--uploads", type=int, default=8)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vse-hostile-") as place:
        folder = Path(place) / "photos"
        write_files(folder, options.photos)
        result = {"index": index(folder, Path(place) / "index.vse"), "service": {}}
        result["service"] = serve(Path(place) / "index.vse", folder, options.uploads, options.queries)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        for part, values in result.items():
            print(part, *(f"  {name}: {value}" for name, value in values.items()), sep="\n")
    return 0


def write_files(folder: Path, photos: Path | None) -> None:
    folder.mkdir()
    given = sorted(photos.rglob("*.jpg"))[:PHOTOS] if photos is not None else []
    for path in given:
        shutil.copy(path, folder)
    generator = np.random.default_rng(0)
    for number in range(len(given), PHOTOS):
        pixels = Image.fromarray(generator.integers(0, 256, (12, 16, 3), np.uint8)).resize((1024, 768))
        pixels.save(folder / f"{number:03}.jpg", quality=90)
    stream = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE), (90, 120, 40)).save(stream, "JPEG", progressive=True, quality=50)
    whole = stream.getvalue()
    scan = whole[whole.rindex(b"\xff\xda") : -2]
    for name, count in SCANS.items():
        (folder / name).write_bytes(whole[:-2] + scan * count + b"\xff\xd9")


def index(folder: Path, into: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "vse", "index", str(folder), "--into", str(into), "--model", "photo", "--json"]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process, \
            Memory(process.pid) as memory:  # fmt: skip
        output = process.communicate()[0]
    found = json.loads(output)
    report = found["folders"][0] if "folders" in found else found
    return {
        "new": report["new"],
        "problems": {each["path"]: each["reason"] for each in report["problems"]},
        "seconds": round(time.perf_counter() - began, 1),
        "peak_megabytes": memory.peak // 1_000_000,
    }


def serve(where: Path, folder: Path, uploads: int, queries: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "vse", "serve", str(where), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process, \
            Memory(process.pid) as memory:  # fmt: skip
        try:
            said = "".join(itertools.takewhile(lambda line: line.rstrip() != "}", process.stdout or ())) + "}"
            address = str(json.loads(said)["address"]).removeprefix("http://").rstrip("/")
            ask(address, 20)
            quiet = ask(address, queries)
            stop, statuses = threading.Event(), Counter[str]()
            bodies = [body_of(folder / name) for name in SCANS]
            clients = [
                threading.Thread(target=upload, args=(address, bodies, number, stop, statuses))
                for number in range(uploads)
            ]
            for client in clients:
                client.start()
            time.sleep(2)
            loaded = ask(address, queries)
            stop.set()
            for client in clients:
                client.join()
            after = ask(address, queries)
            photo = post(address, body_of(next(folder.glob("*[0-9].jpg"))), "127.0.0.1")
        finally:
            process.terminate()
    p99 = {"quiet": percentile(quiet, 99), "uploads": percentile(loaded, 99), "after": percentile(after, 99)}
    return {
        "p50_ms": {"quiet": percentile(quiet, 50), "uploads": percentile(loaded, 50), "after": percentile(after, 50)},
        "p99_ms": p99,
        "p99_ratio": round(p99["uploads"] / p99["quiet"], 2),
        "uploads": dict(statuses),
        "ordinary_upload_afterwards": photo,
        "peak_megabytes": memory.peak // 1_000_000,
    }


def ask(address: str, count: int) -> list[float]:
    """Return the seconds of each of ``count`` text searches, one after the other; none may fail."""
    connection, seconds = http.client.HTTPConnection(address, timeout=60), []
    for number in range(count):
        began = time.perf_counter()
        text = f"{WORDS[number % len(WORDS)]} {time.perf_counter_ns()}".replace(" ", "+")
        connection.request("GET", f"/api/v1/search?q={text}&k=20")
        response = connection.getresponse()
        response.read()
        seconds.append(time.perf_counter() - began)
        if response.status != http.client.OK:
            raise SystemExit(f"a text search was answered with {response.status}")
        time.sleep(0.01)
    return seconds


def upload(address: str, bodies: list[bytes], number: int, stop: threading.Event, statuses: Counter[str]) -> None:
    while not stop.is_set():
        for body in bodies:
            statuses[post(address, body, f"127.0.0.{1 + number % 4}")] += 1  # a client may have four at a time


def post(address: str, body: bytes, source: str) -> str:
    connection = http.client.HTTPConnection(address, timeout=60, source_address=(source, 0))
    try:
        connection.request("POST", "/api/v1/search", body, {"Content-Type": "multipart/form-data; boundary=x"})
        response = connection.getresponse()
        found = json.loads(response.read())
        return f"{response.status} {found.get('detail', '')}"[:90].strip()
    finally:
        connection.close()


def body_of(path: Path) -> bytes:
    head = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.jpg"\r\nContent-Type: image/jpeg\r\n\r\n'
    return head + path.read_bytes() + b"\r\n--x--\r\n"


def percentile(seconds: list[float], share: int) -> float:
    return round(1000 * float(np.percentile(seconds, share)), 1)


class Memory:
    """The most resident memory of a process and its children together, sampled in a thread."""

    def __init__(self, pid: int) -> None:
        self.peak = 0
        self._pid, self._stop = pid, threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._stop.wait(0.05):
            total = 0
            for pid in (self._pid, *self._children()):
                try:
                    total += int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1]) * page
                except (OSError, IndexError):
                    continue
            self.peak = max(self.peak, total)

    def _children(self) -> list[int]:
        found = []
        for task in Path(f"/proc/{self._pid}/task").glob("*/children"):
            try:
                found += [int(pid) for pid in task.read_text("utf-8").split()]
            except OSError:
                continue
        return found


if __name__ == "__main__":
    sys.exit(main())
