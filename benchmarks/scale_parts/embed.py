"""Embed the same images with one process, as four divisions of the work, and with two Ray workers.

The shards must be equal byte by byte. One process with one thread, one with two, and two Ray workers of one CPU each
then take turns; all are warm (models loaded, workers and decoders started). CPU time is that of the whole process tree,
and counts what Ray does besides; wall time means something on an idle machine only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

RAY = "two Ray workers"
HERTZ = os.sysconf("SC_CLK_TCK")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--photos", type=Path, help="a folder of images [default: generated ones]")
    parser.add_argument("--count", type=int, default=240, help="how many of them")
    parser.add_argument("--model", default="photo")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="the results as JSON")


def run(options: argparse.Namespace) -> None:
    import ray

    from vse.batch import embed
    from vse.inputs.decoding import use_decoders

    with tempfile.TemporaryDirectory(prefix="vse-embed-") as name:
        place = Path(name)
        source = _images(place / "images", options.photos, options.count)
        size = -(-options.count // options.shards)

        def alone(into: Path, threads: int = 2, **more: object) -> None:
            embed(source, into, model=options.model, shard_size=size, threads=threads, **more)

        def on_ray(into: Path) -> None:
            embed(source, into, model=options.model, shard_size=size, threads=1, ray="auto")

        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            _node_ip_address="127.0.0.1",
        )
        try:
            alone(place / "one")
            for part in range(1, 5):
                alone(place / "four", shard=(part, 4))
            on_ray(place / "ray")
            digests = {each: _digest(place / each) for each in ("one", "four", "ray")}
            variants: dict[str, Callable[[Path], None]] = {
                "one process, one thread": partial(alone, threads=1),
                "one process, two threads": alone,
                RAY: on_ray,
            }
            times: dict[str, list[tuple[float, float]]] = {each: [] for each in variants}
            for _ in range(options.rounds):
                for number, (each, work) in enumerate(variants.items(), start=1):
                    if each != RAY:  # as many decoders as threads, started by a run that is not measured
                        use_decoders(number)
                        _measure(work, place / "round")
                    times[each].append(_measure(work, place / "round"))
        finally:
            ray.shutdown()
    _report(options, digests, times)


def _report(options: argparse.Namespace, digests: dict[str, str], times: dict[str, list[tuple[float, float]]]) -> None:
    equal = len(set(digests.values())) == 1
    wall = {name: statistics.median(each[0] for each in rounds) for name, rounds in times.items()}
    cpu = {name: statistics.median(each[1] for each in rounds) for name, rounds in times.items()}
    print(f"{platform.machine()}, {os.cpu_count()} cores, {options.count} images, {options.shards} shards")
    print(f"one process = 4 divisions = 2 Ray workers, byte by byte: {'yes' if equal else 'NO'} ({digests})")
    print("| | wall s | CPU s | images/s |\n|---|--:|--:|--:|")
    for name in times:
        print(f"| {name} | {wall[name]:.2f} | {cpu[name]:.2f} | {options.count / wall[name]:.1f} |")
    for name in times:
        if name != RAY:
            print(f"{RAY} / {name}: wall {wall[RAY] / wall[name]:.2f}, CPU {cpu[RAY] / cpu[name]:.2f}")
    if options.json is not None:
        result = {"equal": equal, "digests": digests, "wall": wall, "cpu": cpu, "rounds": times}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=2) + "\n")


def _images(folder: Path, photos: Path | None, count: int) -> Path:
    from PIL import Image

    folder.mkdir()
    if photos is not None:
        found = sorted(path for path in photos.iterdir() if path.suffix.lower() in {".jpg", ".jpeg", ".png"})[:count]
        for path in found:
            (folder / path.name).symlink_to(path.resolve())
        return folder
    for number in range(count):
        noise = np.random.default_rng(number).integers(0, 256, (24, 32, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((640, 480)).save(folder / f"{number:05}.jpg", quality=90)
    return folder


def _digest(folder: Path) -> str:
    """Return a digest of all shards, names and bytes."""
    state = hashlib.sha256()
    for path in sorted(folder.glob("shard-*.parquet")):
        state.update(path.name.encode() + path.read_bytes())
    return state.hexdigest()[:16]


def _measure(work: Callable[[Path], None], into: Path) -> tuple[float, float]:
    """Return wall and CPU seconds of a whole job."""
    shutil.rmtree(into, ignore_errors=True)
    before, began = _cpu_seconds(os.getpid()), time.perf_counter()
    work(into)
    return time.perf_counter() - began, _cpu_seconds(os.getpid()) - before


def _cpu_seconds(process: int) -> float:
    """Return the CPU time of a process, its children and those that ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        tasks = list(Path(f"/proc/{process}/task").glob("*/children"))
        children = [int(each) for path in tasks for each in path.read_text().split()]
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / HERTZ + sum(map(_cpu_seconds, children))
