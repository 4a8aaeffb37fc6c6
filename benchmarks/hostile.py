"""Measure what hostile files cost: an index beside them, and text search while they are uploaded.

    python benchmarks/hostile.py [--photos DIR] [--uploads 8] [--queries 300] [--json]
    python benchmarks/hostile.py --cgroup 2000 [--bombs 24]

Two JPEGs of 49 megapixels and less than 1 MB: one repeats its last scan 5,000 times, the other 85 times, which is
within the limit and takes seconds. Both are indexed beside 40 images (of DIR, or generated). Then a service is asked
for texts, first alone, then while ``--uploads`` clients upload these two files over and over. The most memory of all
processes together is reported for both.

With ``--cgroup`` the images, the two JPEGs and ``--bombs`` PNG and TIFF files of 144 and 169 megapixels are indexed in
a memory cgroup of so many megabytes, without swap, and nothing else is measured. The kernel reports the peak, with the
pages of files that were read, and how many processes it killed. It needs the right to make a cgroup (root, or a
delegated one).

Latencies depend on what else the machine does: the ratio is that of one run.
"""

from __future__ import annotations

import argparse
import contextlib
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
from collections.abc import Sequence
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
    parser.add_argument("--cgroup", type=int, metavar="MEGABYTES", help="index in a memory cgroup of this size")
    parser.add_argument("--bombs", type=int, default=24, help="PNG and TIFF files of 144 and 169 megapixels")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vse-hostile-") as place:
        folder = Path(place) / "photos"
        write_files(folder, options.photos)
        result: dict[str, Any] = {}
        if options.cgroup is not None:
            write_bombs(folder, options.bombs)
            with Cgroup(options.cgroup * 1_000_000) as group:
                result["index in a cgroup"] = {
                    **index(folder, Path(place) / "index.vse", group.command),
                    **group.told(),
                }
        else:
            result["index"] = index(folder, Path(place) / "index.vse")
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


def write_bombs(folder: Path, count: int) -> None:
    """Write files of one colour: PNG and TIFF in turn, 12,000 and 13,000 pixels wide and high."""
    for number in range(count):
        ending, side = ("png", "tif")[number % 2], (12_000, 13_000)[number // 2 % 2]
        path = folder / f"bomb{number:02}.{ending}"
        if number >= 4:
            shutil.copy(folder / f"bomb{number % 4:02}.{ending}", path)
        elif ending == "png":
            Image.new("RGB", (side, side), (90, 120, 40)).save(path, compress_level=1)
        else:
            Image.new("RGB", (side, side), (90, 120, 40)).save(path, compression="tiff_adobe_deflate")


class Cgroup:
    """A memory cgroup below that of this process, in version 1 or 2."""

    def __init__(self, limit: int) -> None:
        lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines()]
        found = {name: path.strip("/") for _, names, path in lines for name in names.split(",")}
        root, self._second = Path("/sys/fs/cgroup"), "memory" not in found
        self._place = (root if self._second else root / "memory") / found.get("memory", found.get("", ""))
        self._place /= f"vse-hostile-{os.getpid()}"
        self._limit = limit
        self.command = ["sh", "-c", f'echo $$ > "{self._place}/cgroup.procs" && exec "$@"', "sh"]

    def __enter__(self) -> Cgroup:
        limits = {"memory.max": self._limit, "memory.swap.max": 0}
        if not self._second:
            limits = {"memory.limit_in_bytes": self._limit, "memory.swappiness": 0}
        try:
            self._place.mkdir()
            for name, value in limits.items():
                (self._place / name).write_text(str(value), encoding="ascii")
        except OSError as error:
            self.__exit__()
            again = f"systemd-run --user --scope -p MemoryMax={self._limit} -p MemorySwapMax=0 python {sys.argv[0]}"
            raise SystemExit(
                f"a memory cgroup cannot be made here ({error}): run it as root, or without --cgroup in one that is "
                f"limited already: {again}"
            ) from None
        return self

    def told(self) -> dict[str, int]:
        """Return the peak in megabytes and how many processes the kernel killed."""
        peak = "memory.peak" if self._second else "memory.max_usage_in_bytes"
        events = "memory.events" if self._second else "memory.oom_control"
        killed = dict(line.split() for line in (self._place / events).read_text("ascii").splitlines())["oom_kill"]
        used = int((self._place / peak).read_text("ascii"))
        return {"cgroup_peak_megabytes": used // 1_000_000, "killed_by_the_kernel": int(killed)}

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._place.rmdir()


def index(folder: Path, into: Path, within: Sequence[str] = ()) -> dict[str, Any]:
    command = [
        *within,
        sys.executable,
        "-m",
        "vse",
        "index",
        str(folder),
        "--into",
        str(into),
        "--model",
        "photo",
        "--json",
    ]
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
