"""Contract of embedding on a real Ray cluster of two nodes on this machine."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.batch.support_batch import contents, model, read_shards, write_folder

from vse.batch import ImageEmbedder, embed
from vse.progress import SilentProgress

COMMAND = Path(sys.executable).with_name("ray")


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def descendants(process: int) -> list[int]:
    """The process and everything below it."""
    children = [int(p) for path in Path(f"/proc/{process}/task").glob("*/children") for p in path.read_text().split()]
    return [process, *(each for child in children for each in descendants(child))]


def kill(process: int) -> None:
    for each in descendants(process):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


class KillAtFirstShard(SilentProgress):
    """Kill a node as soon as images of the job are done."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.killed = False

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        if not self.killed:
            kill(self.node)
            self.killed = True


@pytest.fixture
def cluster(monkeypatch):
    """Address of a head with two CPUs, and the process of a second node with another."""
    place = tempfile.mkdtemp(prefix="vse-ray-")  # the path of a socket is at most 107 bytes
    for name, value in (
        ("RAY_USAGE_STATS_ENABLED", "0"),
        ("RAY_AUTH_MODE", "token"),
        ("RAY_AUTH_TOKEN", secrets.token_hex(32)),
    ):
        monkeypatch.setenv(name, value)
    ray = pytest.importorskip("ray")  # reads the variables
    address = f"127.0.0.1:{free_port()}"
    limits = ["--object-store-memory=80000000", "--node-ip-address=127.0.0.1", "--block"]
    port = address.partition(":")[2]
    head = [COMMAND, "start", "--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={place}", *limits]
    head, worker = [*head, "--num-cpus=2"], [COMMAND, "start", f"--address={address}", "--num-cpus=1", *limits]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in (head, worker):
            log = Path(place) / f"start-{len(started)}.log"
            with log.open("wb") as out:
                started.append(subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True))
            deadline = time.monotonic() + 300
            while b"Ray runtime started" not in log.read_bytes():
                assert started[-1].poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
        yield address, started[1].pid
    finally:
        if ray.is_initialized():
            ray.shutdown()
        for process in started:
            kill(process.pid)
            process.wait()
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="kills processes found in /proc")
def test_job_on_two_ray_nodes_survives_loss_of_one(tmp_path, cluster):
    """The shards of a cluster that lost a node equal those of one process, and a batch of Ray Data its embeddings."""
    import ray.data

    from vse.batch.embedders import worker_threads

    address, second = cluster
    source = write_folder(tmp_path / "images")
    alone = embed(source, tmp_path / "alone", shard_size=1, threads=1)
    progress = KillAtFirstShard(second)
    report = embed(source, tmp_path / "ray", shard_size=1, ray=address, progress=progress)
    assert progress.killed
    assert (report.remaining, report.embedded, report.failed) == (0, alone.embedded, 0)
    assert report.workers == 3
    assert ray.get(ray.remote(num_cpus=2)(worker_threads).remote()) == 2, "as many threads as the task has CPUs"
    written = {path.name: path.read_bytes() for path in (tmp_path / "ray").glob("shard-*")}
    assert written == {path.name: path.read_bytes() for path in (tmp_path / "alone").glob("shard-*")}
    rows = ray.data.from_items([{"image": content} for content in contents()[:2]])
    found = rows.map_batches(ImageEmbedder("photo"), batch_size=1).take_all()
    embeddings = {row["image"]: row["embedding"].tobytes() for row in found}
    _, stored = read_shards(tmp_path / "alone")
    assert embeddings == {content: stored[n].tobytes() for n, content in enumerate(contents()[:2])}
    assert model().fingerprint() == report.model
