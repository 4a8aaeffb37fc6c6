"""Half an hour of writers, a watcher, readers and the service on one collection, with kills and full disks.

    python benchmarks/soak.py
    python benchmarks/soak.py --minutes 5 --images 120 --seed 1

A folder of generated images changes all the time: files are added, replaced, renamed and deleted. ``vse index`` and
``vse index --watch`` take turns; a random part of them is killed (SIGKILL) or gets a disk that is full (a limit on the
size of files). Threads search the collection, others ask ``vse serve``, which is killed and started again. From time to
time changes pause and one ``vse index`` ends: what it acknowledged must be there ever after. At the end everything is
compared by brute force: the images of the folder are encoded again, and each query is ranked by all of them.

Prints operations, kills, faults and losses, as text or as JSON; the exit code is 1 if there was a fault or a loss.
A fault is an untyped error, an answer that is not a ranking by cosines, or a response 500.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import quote

import numpy as np
from PIL import Image, ImageDraw

import vse
from vse.errors import VSEError
from vse.index import open_collection
from vse.inputs.preprocessing import load_pixels

QUERIES = ("a red square", "a dog in the snow", "two people", "a green field", "the sea", "a car", "food", "night")
CHECK_SECONDS = 45.0
TOLERANCE = 2e-3  # of a cosine: batches of other sizes round differently in half precision


class Soak:
    """The folder, the collection and everything that uses them."""

    def __init__(self, place: Path, images: int, seed: int) -> None:
        self.root, self.index, self.limit = place / "photos", place / "photos.vse", images
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.stop, self.pause, self.paused = threading.Event(), threading.Event(), threading.Event()
        self.acknowledged: dict[str, int] = {}
        self.model = vse.load("photo", threads=1)
        self.queries = self.model.encode_texts(list(QUERIES))
        self.environment = {**os.environ, "VSE_HOME": str(place / "home"), "OMP_NUM_THREADS": "1"}
        self._guard = threading.Lock()
        self.root.mkdir()

    def count(self, what: str) -> None:
        with self._guard:
            self.counts[what] += 1

    def fault(self, what: str) -> None:
        with self._guard:
            self.faults.append(what[-600:])

    def save(self, name: str) -> None:
        generator = np.random.default_rng(self.random.randrange(2**32))
        image = Image.fromarray(generator.integers(0, 256, (6, 8, 3), np.uint8)).resize((160, 120))
        corners = sorted(generator.integers(0, 120, 2).tolist())
        ImageDraw.Draw(image).rectangle((corners[0], corners[0], corners[1], corners[1]), fill="red")
        image.save(self.root / f".{name}.part", "JPEG")
        (self.root / f".{name}.part").replace(self.root / name)

    def change_folder(self) -> None:
        """Add, replace, rename and delete files until the end."""
        while not self.stop.is_set():
            if self.pause.is_set():
                self.paused.set()
                time.sleep(0.05)
                continue
            self.paused.clear()
            names = [path.name for path in self.root.glob("[!.]*.jpg")]
            choice = self.random.random()
            if choice < 0.5 or len(names) < self.limit // 2:
                self.save(f"{self.random.randrange(self.limit):05}.jpg")
            elif choice < 0.8:
                (self.root / self.random.choice(names)).unlink()
            else:
                (self.root / self.random.choice(names)).replace(self.root / f"r{self.random.randrange(self.limit)}.jpg")
            self.count("changes of files")
            time.sleep(self.random.uniform(0.01, 0.2))

    def write(self) -> None:
        """Run one writer after the other, kill some, fill the disk of some, and check what was acknowledged."""
        checked = time.monotonic()
        while not self.stop.is_set():
            if time.monotonic() - checked > CHECK_SECONDS:
                self.acknowledge()
                checked = time.monotonic()
            watching = self.random.random() < 0.3
            full = self.random.choice((20_000, 200_000, 2_000_000)) if self.random.random() < 0.2 else None
            killed = self.random.random() < 0.6
            seconds = self.random.uniform(2, 12) if watching else self.random.uniform(0.3, 8)
            self.run_writer(watching=watching, full=full, kill_after=seconds if killed or watching else None)
            self.check_acknowledged()

    def run_writer(self, *, watching: bool = False, full: int | None = None, kill_after: float | None = None) -> bool:
        """Run ``vse index``; return whether it ended by itself and succeeded."""
        command = [sys.executable, "-m", "vse", "index", str(self.root), "--into", str(self.index), "--threads", "1"]

        process = subprocess.Popen(
            [*command, "--watch"] if watching else command,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=self.environment,
        )  # fmt: skip
        if full is not None:
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (full, resource.RLIM_INFINITY))
        timer = None
        if kill_after is not None:
            how = signal.SIGINT if watching and self.random.random() < 0.3 else signal.SIGKILL
            timer = threading.Timer(kill_after, process.send_signal, [how])
            timer.start()
        _, said = process.communicate()
        if timer is not None:
            timer.cancel()
        self.count("runs of --watch" if watching else "runs of index")
        if full is not None:
            self.count("runs with a full disk")
        if process.returncode == -signal.SIGKILL:
            self.count("kills")
        if "Traceback" in said or process.returncode not in {0, 1, 130, -signal.SIGKILL, -signal.SIGINT}:
            self.fault(f"vse index ended with {process.returncode}: {said}")
        return process.returncode == 0

    def acknowledge(self) -> None:
        """Let one run end while nothing changes; from now on its files must be there, unless they change."""
        self.pause.set()
        self.paused.wait()
        if self.run_writer():
            self.acknowledged = {path.name: path.stat().st_mtime_ns for path in self.root.glob("[!.]*.jpg")}
            self.count("checks")
        else:
            self.fault("an undisturbed run of index failed")
        self.pause.clear()

    def check_acknowledged(self) -> None:
        if not self.acknowledged:
            return
        try:
            with open_collection(self.index) as reader:
                there = {file.path: file for file in reader.files()}
        except VSEError as error:
            self.fault(f"the collection cannot be opened: {error}")
            return
        for name, modified in list(self.acknowledged.items()):
            try:
                same = (self.root / name).stat().st_mtime_ns == modified
            except OSError:
                same = False
            if not same:
                del self.acknowledged[name]
            elif name not in there:
                self.count("losses")
                self.fault(f"{name} was acknowledged and is lost")
                del self.acknowledged[name]

    def read(self) -> None:
        """Search the collection, opened again and again."""
        chosen = random.Random(threading.get_ident())
        while not self.stop.is_set():
            try:
                with open_collection(self.index) as reader:
                    for _ in range(chosen.randrange(1, 60)):
                        query = self.queries[chosen.randrange(len(QUERIES))]
                        hits = reader.search(query, 20)
                        if not ((np.abs(hits.scores) <= 1.01).all() and (np.diff(hits.scores) <= 0).all()):
                            self.fault(f"not a ranking by cosines: {hits.scores}")
                        self.count("searches")
                        time.sleep(0.005)
            except VSEError:  # there is none yet, or an item was removed meanwhile
                self.count("typed errors of readers")
                time.sleep(0.1)
            except Exception as error:  # noqa: BLE001 - what the soak looks for
                self.fault(f"reader: {type(error).__name__}: {error}")
                time.sleep(0.1)

    def serve(self) -> None:
        """Keep a service running, and kill it from time to time."""
        while not self.stop.is_set():
            if not (self.index / "collection.json").exists():
                time.sleep(0.5)
                continue
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
            command = [
                sys.executable,
                "-m",
                "vse",
                "serve",
                str(self.index),
                "--port",
                str(self.port),
                "--threads",
                "1",
            ]
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=self.environment
            )
            died = threading.Event()

            def drain(process: subprocess.Popen[str] = process, died: threading.Event = died) -> None:
                said = process.communicate()[1]
                if "Traceback" in said:
                    self.fault(f"service: {said}")
                died.set()

            threading.Thread(target=drain, daemon=True).start()
            until = time.monotonic() + self.random.uniform(10, 60)
            while time.monotonic() < until and not self.stop.is_set() and not died.is_set():
                time.sleep(0.2)
            if died.is_set():
                self.fault(f"the service ended by itself with {process.wait()}")
            else:
                process.kill()
                self.count("kills of the service")
            process.wait()

    def ask(self) -> None:
        """Send requests to the service; while it starts again nobody answers."""
        chosen = random.Random(threading.get_ident())
        while not self.stop.is_set():
            paths = (
                f"/api/v1/search?q={quote(chosen.choice(QUERIES))}",
                "/api/v1/collection",
                "/healthz",
                f"/api/v1/items/{chosen.randrange(1, 3000)}/thumbnail",
            )
            try:
                connection = http.client.HTTPConnection("127.0.0.1", getattr(self, "port", 1), timeout=20)
                path = chosen.choice(paths)
                connection.request("GET", path)
                response = connection.getresponse()
                content = response.read()
                connection.close()
                self.count(f"responses {response.status}")
                if response.status == 500:
                    self.fault(f"{path}: {content[:200]!r}")
            except (OSError, http.client.HTTPException):
                self.count("requests that nobody answered")
                time.sleep(0.2)
            time.sleep(0.01)

    def run(self, minutes: float) -> dict[str, object]:
        """Run everything for ``minutes``, then compare by brute force."""
        for number in range(self.limit // 2):
            self.save(f"{number:05}.jpg")
        works = (self.change_folder, self.write, self.serve, self.read, self.read, self.ask, self.ask)
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        time.sleep(minutes * 60)
        self.stop.set()
        for thread in threads:
            thread.join()
        self.check_acknowledged()
        self.compare()
        losses = self.counts.pop("losses", 0)
        return {"counts": dict(sorted(self.counts.items())), "faults": self.faults, "losses": losses}

    def compare(self) -> None:
        """Compare the collection with the folder, and its answers with a ranking by all images."""
        if not self.run_writer():
            self.fault("the last run of index failed")
            return
        names = sorted(path.name for path in self.root.glob("[!.]*.jpg"))
        pixels = [load_pixels(self.root / name, self.model.preprocessing) for name in names]
        expected = np.concatenate([self.model.embed_images(each[None]) for each in pixels])
        with open_collection(self.index) as reader:
            blocks = list(reader.all_vectors())
            ids, stored = np.concatenate([block[0] for block in blocks]), np.concatenate([block[1] for block in blocks])
            paths = [item.file.path for item in reader.items(ids.tolist())]
            if sorted(paths) != names:
                self.counts["losses"] += len(set(names) - set(paths))
                self.fault(f"{len(set(names) ^ set(paths))} files differ from the folder")
                return
            order = np.argsort(paths)
            if not np.allclose(stored[order], expected, atol=TOLERANCE):
                self.fault(f"embeddings differ by {np.abs(stored[order] - expected).max():.1e}")
            for query in self.queries:
                hits = reader.search(query, len(names), exact=True)
                scores = np.sort(stored @ query)[::-1]
                if not np.allclose(hits.scores, scores, atol=1e-5) or len(hits.ids) != len(names):
                    self.fault("a search differs from brute force")
                self.count("searches compared by brute force")
            if not reader.verify().ok:
                self.fault("verify finds problems")
        self.counts["files compared by brute force"] = len(names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0, metavar="N", help="[default: 30]")
    parser.add_argument("--images", type=int, default=200, metavar="N", help="about this many files [default: 200]")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="[default: 1]")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    # A background shell starts this with SIGINT ignored, and the children inherit that: --watch would never end.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        result = Soak(Path(place), options.images, options.seed).run(options.minutes)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        for name, number in result["counts"].items():
            print(f"{number:>8,}  {name}")
        print(f"{len(result['faults']):>8,}  faults\n{result['losses']:>8,}  losses", *result["faults"][:20], sep="\n")
    return 1 if result["faults"] or result["losses"] else 0


if __name__ == "__main__":
    sys.exit(main())
