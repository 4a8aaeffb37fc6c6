"""Embed a source into a folder of shards: in this process, on several machines, or on Ray."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from vse.batch.embedders import worker_model
from vse.batch.manifest import DType, Format, Manifest, agree, complete_shards, read_manifest
from vse.batch.shards import ShardResult, compute_shard, list_damaged
from vse.batch.sources import Listing, list_source
from vse.batch.store import Store, StoreError, is_url, open_store
from vse.errors import InputError, VSEError, first_line, require, unknown_choice
from vse.models.encode import check_batch_size
from vse.progress import ProgressReporter, SilentProgress

SHARD_SIZE = 10_000
RETRIES = 3
"""How often Ray repeats a shard whose worker or node was lost."""
MAX_ERRORS = 3
"""Shards that may fail before the job stops; one of a damaged file leaves the others going."""
CONNECT_SECONDS = 5.0
AHEAD = 2
"""Ray tasks in flight for each CPU of the cluster."""
Results: TypeAlias = Generator["ShardResult", None, None]


@dataclass(frozen=True)
class EmbedReport:
    """What a job did, and what is there now.

    ``embedded`` and ``failed`` count images of this job; ``skipped`` are shards that were there; ``remaining`` are
    shards that are not there yet, of all workers; ``damaged`` are packed files that cannot be read. Failures are
    listed in ``failures/*.parquet``.
    """

    source: str
    into: str
    model: str
    items: int
    shards: int
    computed: int
    skipped: int
    remaining: int
    embedded: int
    failed: int
    damaged: int
    seconds: float
    images_per_second: float
    workers: int

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Work:
    """What a worker needs to compute a shard; picklable."""

    listing: Listing
    manifest: Manifest
    into: str
    model: str
    device: str | None
    threads: int | None
    again: frozenset[int] = frozenset()
    """Shards to compute although they are there."""

    def is_done(self, shard: int, store: Store) -> bool:
        """Return whether another job wrote a shard meanwhile."""
        return shard not in self.again and all(map(store.is_whole, self.manifest.names(shard)))

    def run(self, shard: int, store: Store | None = None, progress: ProgressReporter | None = None) -> ShardResult:
        """Compute a shard in this process."""
        model = worker_model(self.model, self.device, self.threads)
        if model.fingerprint() != self.manifest.model:
            raise InputError(f"the model {self.model!r} of this worker is {model.fingerprint()}, not that of the job")
        try:
            return compute_shard(
                self.listing,
                self.manifest,
                shard,
                store or open_store(self.into),
                model,
                progress=progress,
            )
        except VSEError:
            raise
        except Exception as error:
            if not is_url(self.listing.place):
                raise
            # An object store that was lost while a file was read; implementations have no common error.
            raise StoreError(f"{self.listing.place} cannot be read ({first_line(error)}): resume later") from error


def embed(
    source: str | os.PathLike[str],
    into: str | os.PathLike[str],
    *,
    model: str = "photo",
    shard: tuple[int, int] = (1, 1),
    ray: str | None = None,
    shard_size: int = SHARD_SIZE,
    format: Format = "parquet",  # noqa: A002 - as the option is called
    dtype: DType = "float32",
    text: str | None = None,
    retry_failed: bool = False,
    device: str | None = None,
    threads: int | None = None,
    batch_size: int = 32,
    progress: ProgressReporter | None = None,
) -> EmbedReport:
    """Embed the images of a source into shards; what is there is skipped, so that the same call resumes.

    Args:
        source: See :func:`vse.batch.sources.list_source`.
        into: The folder of the shards, a path or fsspec URL. Several jobs may write there at the same time.
        model: What :func:`vse.load` takes.
        shard: ``(i, n)``: of n machines this is number i, from 1, and takes every n-th shard.
        ray: ``"auto"`` or the address of a Ray cluster, whose workers compute the shards.
        shard_size: Images per shard.
        format: ``"parquet"``, or ``"clip-retrieval"`` for its ``img_emb`` and ``metadata``.
        dtype: ``"float32"`` or ``"float16"``.
        text: Also embed the texts of this field of the source, such as ``"caption"``.
        retry_failed: Compute shards again in which images failed.
        device: Where the model runs; the CPU by default.
        threads: Threads on the CPU; with Ray, the CPUs of each worker.
        batch_size: Images that the model computes at once; other batch sizes give slightly other embeddings.
        progress: Reports images.

    Returns:
        What was done.

    Raises:
        InputError: For invalid arguments, a damaged source, or a destination of other work.
        StoreError: The source or destination cannot be reached, or the disk is full. Complete shards stay.
    """
    began = time.perf_counter()
    _check(shard, shard_size, format, dtype, batch_size)
    if ray is not None:
        _check_cluster(ray)
    place, target = os.fspath(source), os.fspath(into)
    _check_apart(place, target)
    report = progress or SilentProgress()
    store = open_store(target)
    there = read_manifest(store)
    listing = list_source(place, () if there is None else there.parts, store)
    if text is not None and listing.kind != "packed":
        raise InputError(f"{place} has no column {text!r}: texts come with tars and Parquet; leave it out")
    towers = worker_model(model, device, threads)
    if not towers.capabilities.images:
        raise InputError(f"the model {model!r} takes no images: 'vse inspect' says what a model can do")
    wanted = Manifest(
        model=towers.fingerprint(),
        model_source=str(model),
        dimensions=towers.embed_size,
        source=listing.kind,
        source_digest=listing.digest,
        items=len(listing),
        shard_size=shard_size,
        format=format,
        dtype=dtype,
        text=text,
        batch_size=batch_size,
        parts=listing.parts,
    )
    manifest, everything = agree(store, wanted)
    if listing.kind == "packed":
        list_damaged(store, listing.damaged, listing.parts)
    before = complete_shards(store, manifest, everything)
    again = {number for number, failed in before.items() if failed and retry_failed}
    mine = [number for number in range(manifest.shards) if number % shard[1] == shard[0] - 1]
    missing = [number for number in mine if number not in before or number in again]
    work = Work(listing, manifest, target, model, device, threads, frozenset(again))
    report.start(sum(last - first for first, last in map(manifest.range, missing)), "images")
    results: list[ShardResult] = []
    workers = 1
    if ray is None:
        runs = _run_here(work, missing, store, report)
    else:
        workers, runs = _run_on_ray(work, missing, ray, threads, report)
    with closing(runs):
        results.extend(runs)
    report.finish()
    after = complete_shards(store, manifest, everything)
    store.clean({manifest.name(number) for number in after})
    seconds = time.perf_counter() - began
    done = sum(result.embedded + result.failed for result in results)
    return EmbedReport(
        source=place,
        into=target,
        model=manifest.model,
        items=len(listing),
        shards=manifest.shards,
        computed=len(results),
        skipped=len(mine) - len(results),
        remaining=manifest.shards - len(after),
        embedded=sum(result.embedded for result in results),
        failed=sum(result.failed for result in results),
        damaged=len(listing.damaged),
        seconds=round(seconds, 3),
        images_per_second=round(done / seconds, 1) if done else 0.0,
        workers=workers,
    )


def _check(shard: tuple[int, int], shard_size: int, format: str, dtype: str, batch_size: int) -> None:  # noqa: A002
    check_batch_size(batch_size)
    index, count = shard
    if not 1 <= index <= count:
        raise InputError(f"shard {index}/{count}: expected I/N with 1 ≤ I ≤ N, such as 1/4")
    if not 1 <= shard_size <= 10_000_000:
        raise InputError(f"shard_size {shard_size}: expected 1 to 10,000,000 images")
    for name, value, choices in (
        ("format", format, ("parquet", "clip-retrieval")),
        ("dtype", dtype, ("float32", "float16")),
    ):
        if value not in choices:
            raise InputError(unknown_choice(name, value, choices))


def _check_apart(source: str, into: str) -> None:
    """Refuse a destination inside the source: its shards would be part of the next listing."""
    if is_url(source) or is_url(into):
        inside = f"{into.rstrip('/')}/".startswith(f"{source.rstrip('/')}/")
    else:
        inside = Path(into).resolve().is_relative_to(Path(source).resolve()) and Path(source).is_dir()
    if inside:
        raise InputError(f"{into} is inside the source {source}: choose a destination beside it")


class _Forward:
    """Passes the images of a shard on to the progress of the whole job."""

    def __init__(self, report: ProgressReporter) -> None:
        self._report = report
        self.note = report.note

    def start(self, total: int, description: str) -> None:
        """The job has started already."""

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        """Add images."""
        self._report.advance(steps)

    def finish(self) -> None:
        """The job goes on."""


def _run_here(work: Work, shards: Sequence[int], store: Store, report: ProgressReporter) -> Results:
    errors: list[VSEError] = []
    for shard in shards:
        if work.is_done(shard, store):  # another job was faster
            report.advance(work.manifest.range(shard)[1] - work.manifest.range(shard)[0])
            continue
        try:
            result = work.run(shard, store, _Forward(report))
        except InputError as error:  # a damaged file: the other shards go on
            errors.append(error)
            if len(errors) == MAX_ERRORS:
                raise
            continue
        yield result
    if errors:
        raise errors[0]


def _run_on_ray(
    work: Work, shards: Sequence[int], address: str, threads: int | None, report: ProgressReporter
) -> tuple[int, Results]:
    ray = _connect(address)
    cpus = threads or 1
    slots = max(1, int(ray.cluster_resources().get("CPU", 1)) // cpus)
    return min(slots, max(1, len(shards))), _ray_results(ray, work, shards, cpus, slots, report)


def _check_cluster(address: str) -> None:
    """Refuse an address where nobody answers: Ray itself would try for minutes."""
    if address == "auto":
        return
    found = re.fullmatch(r"(?:ray://)?\[?([^\s/]+?)\]?:([0-9]{1,5})", address)
    if found is None:
        raise InputError(f"--ray {address}: expected auto or HOST:PORT")
    try:
        socket.create_connection((found[1], int(found[2])), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"no Ray cluster at {address} ({first_line(error)}): start one with 'ray start', or check the address"
        ) from None


def _connect(address: str) -> Any:
    """Join a cluster; ``auto`` starts one of this machine's cores if none runs here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = require("ray", "ray", "--ray")
    if ray.is_initialized():
        return ray
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        ray.init(address=address, **quiet)
    except ConnectionError as error:
        if address != "auto":
            raise InputError(
                f"no Ray cluster at {address!r} ({first_line(error)}): start one with 'ray start'"
            ) from None
        ray.init(address="local", include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
    except Exception as error:
        raise InputError(f"--ray {address}: {first_line(error)}: expected auto or HOST:PORT") from error
    return ray


def _ray_shard(work: Work, shard: int) -> ShardResult | None:
    """The task of a Ray worker: nothing if the shard is there by now, as after a retry."""
    store = open_store(work.into)
    return None if work.is_done(shard, store) else work.run(shard, store)


def _ray_results(
    ray: Any, work: Work, shards: Sequence[int], cpus: int, slots: int, report: ProgressReporter
) -> Results:
    """Yield results as they come; a bounded number of tasks waits in the cluster."""
    task = ray.remote(num_cpus=cpus, max_retries=RETRIES, scheduling_strategy="SPREAD")(_ray_shard)
    shared = ray.put(work)
    waiting = list(reversed(shards))
    running: dict[Any, int] = {}
    errors: list[VSEError] = []
    try:
        while waiting or running:
            while waiting and len(running) < AHEAD * slots:
                shard = waiting.pop()
                running[task.remote(shared, shard)] = shard
            done, _ = ray.wait(list(running), num_returns=1)
            for reference in done:
                shard = running.pop(reference)
                try:
                    result = _ray_get(ray, reference, shard)
                except VSEError as error:  # the other shards go on, unless this happens again and again
                    errors.append(error)
                    if len(errors) == MAX_ERRORS:
                        raise
                    continue
                first, last = work.manifest.range(shard)
                report.advance(last - first)
                if result is not None:
                    yield result
        if errors:
            raise errors[0]
    finally:
        for reference in running:
            ray.cancel(reference, force=False)


def _ray_get(ray: Any, reference: Any, shard: int) -> ShardResult | None:
    try:
        result: ShardResult | None = ray.get(reference)
        return result
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, VSEError):
            raise cause from None
        raise VSEError(f"shard {shard} failed on a Ray worker: {first_line(cause)}") from error
    except ray.exceptions.RayError as error:
        raise VSEError(
            f"shard {shard} was lost {RETRIES + 1} times on Ray ({first_line(error)}): the same command resumes"
        ) from error
