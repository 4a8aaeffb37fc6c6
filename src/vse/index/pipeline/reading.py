"""Read, encode and commit files; decoding, model and collection work concurrently."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse._util.prefetch import prefetch, prefetch_patiently
from vse._util.worker_process import Reply, shallow
from vse._util.workers import WorkerStoppedError, WorkerTimeoutError
from vse.errors import InputError, VSEError
from vse.index.pipeline.commits import Commits, IndexModel
from vse.index.pipeline.plan import Candidate
from vse.index.scan import BadMediaError, Found, Problem, ScanLimits, VideoLimits, describe, frames
from vse.index.scan.describe import CHANGED, found_of, read_picture, with_place
from vse.index.types import MediaFile, Moment, Vectors
from vse.inputs.decoding import GRACE, decoded, decoders, encoded
from vse.inputs.files import os_reason
from vse.inputs.images import BadImageError, ImageLimits, ImageSource
from vse.inputs.preprocessing import ImagePreprocessing, load_pixels, load_small, normalise
from vse.models.encode import direction
from vse.models.protocols import ParallelCalls, Towers
from vse.progress import ProgressReporter

Pixels = NDArray[np.float32]
"""``(3, H, W)``, as the model takes them."""
Load = Callable[[ImageSource, ImagePreprocessing, ImageLimits], NDArray[Any]]
FRAMES = 8
"""Maximum number of frames per window of a video."""


@dataclass(frozen=True)
class Shot:
    """The input of one embedding: the frames of a window with its times, or a single image."""

    frames: tuple[Pixels, ...]
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True)
class Part:
    """Some shots of a file; ``last`` if no more follow. ``remark`` reports a defect of a video that is usable."""

    file: MediaFile
    shots: tuple[Shot, ...]
    last: bool = True
    remark: str | None = None


Parts = Iterator[Part | Problem]
Taken = tuple[Candidate, Part | Problem]
Moments = list[tuple[Moment, ...]]
"""The moments of each part of a call."""
PATIENCE = 1.0
"""Seconds after which a file that is not ready is overtaken by others."""
MAX_AHEAD = 256
"""Files in progress: each has a thread, which waits for a decoder or for memory most of the time."""
SLOWEST_DISK = 4e6
"""Bytes per second: a large file may take longer than decoding alone would."""
NO_VECTOR = "the model returns no finite embedding for it"


@dataclass
class Reading:
    """Counts of files and encoded frames, and problems."""

    new: int = 0
    changed: int = 0
    images: int = 0
    seconds: float = 0.0
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_files(
    root: str,
    candidates: Sequence[Candidate],
    model: IndexModel,
    commits: Commits,
    *,
    batch_size: int,
    limits: ScanLimits,
    progress: ProgressReporter,
) -> Reading:
    """Encode files and add them to the collection. On failure, what was encoded so far is committed if possible.

    Files are decoded in worker processes: one that takes too long or crashes its decoder is a problem, and a slow one
    does not hold back the others.

    About ``batch_size`` images are in the model or queued, in several concurrent calls, and up to twice as many are
    prefetched; for videos, ``batch_size`` frames per call.
    """
    how = model.preprocessing
    if how is None:
        raise InputError("the model takes sets of features, not images: use one that reads images")
    windows = max(batch_size // FRAMES, 1)
    unfinished: set[Any] = set()
    tasks = ((candidate, _parts_of(candidate, root, how, windows, limits, unfinished)) for candidate in candidates)
    result, began = Reading(), time.perf_counter()
    if not candidates:
        return result
    pool = decoders()
    pool.warm(min(len(candidates), pool.size))
    progress.start(len(candidates), "indexing")
    try:
        with (
            model.parallel_calls(batch_size) as calls,
            closing(_prefetch_parts(tasks, windows, min(2 * batch_size, MAX_AHEAD), unfinished)) as parts,
            closing(_encode(model, calls, parts, batch_size)) as encoded,
        ):
            receiver = _Receiver(commits, result, progress)
            for taken, moments in encoded:
                receiver.receive(taken, moments)
        commits.commit()
    except BaseException:
        with suppress(VSEError):  # the first error is more informative
            commits.commit()
        raise
    progress.finish()
    result.seconds = time.perf_counter() - began
    result.notes.extend(commits.notes)
    return result


def _prefetch_parts(
    tasks: Iterable[tuple[Candidate, Parts]], windows: int, frames: int, unfinished: set[Any]
) -> Generator[Taken | None, None, None]:
    """Yield the parts of all files, decoded ahead; in order, unless a file is slow. None if nothing is ready for long.

    New files are started while those in progress hold fewer than ``frames`` frames, and one part per file is read
    ahead. This bounds memory, however long a video is.
    """
    results = prefetch_patiently(
        lambda task: next(task[1]),
        tasks,
        workers=frames,
        window=frames,
        patience=PATIENCE,
        weight=lambda task: windows * FRAMES if task[0].found.kind == "video" else 1,
        repeat=lambda part: isinstance(part, Part) and not part.last,
    )
    with closing(results):
        try:
            for found in results:
                yield None if found is None else (found[0][0], found[1])
        finally:
            decoders().cancel(unfinished)  # or an interruption would wait for them


def _encode(
    model: IndexModel, calls: ParallelCalls, parts: Iterable[Taken | None], batch_size: int
) -> Generator[tuple[list[Taken], Moments], None, None]:
    """Yield parts with their moments, one model call at a time, enough calls ahead to keep all threads busy."""
    largest = batch_size // calls.threads  # larger calls count as this many, so that one per thread fits
    results = prefetch(
        lambda batch: embed_parts(model, _only_parts(batch), calls.images),
        _batches(parts, calls.images),
        workers=calls.threads,
        window=batch_size + 1,
        weight=lambda batch: min(_weight(batch), largest),
        name="vse-encode",
    )
    with closing(results):
        yield from results


def _batches(parts: Iterable[Taken | None], images: int) -> Iterator[list[Taken]]:
    """Gather parts until they fill a model call, or nothing is ready; then a batch may be empty.

    An empty one moves those before it on, so that they are committed while a slow file is being decoded.
    """
    batch: list[Taken] = []
    for taken in parts:
        if taken is not None:
            batch.append(taken)
        if taken is None or _weight(batch) >= images:
            yield batch
            batch = []
    if batch:
        yield batch


class _Receiver:
    """Commits files whose parts are all encoded.

    Parts of a file come in their order, and a problem may follow earlier parts of the same video.
    """

    def __init__(self, commits: Commits, result: Reading, progress: ProgressReporter) -> None:
        self._commits, self._result, self._progress = commits, result, progress
        self._begun: dict[str, list[Moment]] = {}  # moments of unfinished videos
        self._began = time.perf_counter()

    def receive(self, taken: Sequence[Taken], moments: Moments) -> None:
        found = iter(moments)
        self._result.images += count_frames(_only_parts(taken))
        for candidate, part in taken:
            if isinstance(part, Problem):
                self._begun.pop(candidate.found.path, None)
                self._result.problems.append(part)
                self._progress.advance()
                continue
            self._begun.setdefault(part.file.path, []).extend(next(found))
            if part.last:
                self._complete(candidate, part)
                rate = (self._result.new + self._result.changed) / (time.perf_counter() - self._began)
                self._progress.advance(1, f"indexing, {rate:.1f} images/s")
        self._commits.commit_if_due()

    def _complete(self, candidate: Candidate, part: Part) -> None:
        moments = self._begun.pop(part.file.path)
        if not moments:
            self._result.problems.append(Problem(part.file.path, NO_VECTOR))
            return
        if part.remark is not None:
            self._result.notes.append(str(Problem(part.file.path, part.remark)))
        if candidate.known is None:
            self._result.new += 1
        else:
            self._result.changed += 1
        self._commits.add(_with_known_details(part.file, candidate.known), tuple(moments))


def _with_known_details(file: MediaFile, known: MediaFile | None) -> MediaFile:
    """Return a file with what is known about the same content: an upgrade reads neither sidecars nor text."""
    if known is None or known.digest != file.digest:
        return file
    if not known.metadata_version:
        return replace(file, ocr=known.ocr)
    return replace(known, size=file.size, modified=file.modified, captions=file.captions)


def _only_parts(taken: Sequence[Taken]) -> list[Part]:
    return [part for _, part in taken if isinstance(part, Part)]


def _weight(taken: Sequence[Taken]) -> int:
    """Count frames, and 1 per problem, so that a folder full of problems is not gathered to its end."""
    return sum(count_frames([part]) if isinstance(part, Part) else 1 for _, part in taken)


def _parts_of(
    candidate: Candidate,
    root: str,
    how: ImagePreprocessing,
    windows: int,
    limits: ScanLimits,
    unfinished: set[Any],
) -> Iterator[Part | Problem]:
    """Yield what :func:`read_parts` does, in a worker process that is killed if it takes too long."""
    found = candidate.found
    arguments = {
        "found": shallow(found),
        "root": root,
        "how": encoded(how),
        "windows": windows,
        "image": shallow(limits.image),
        "video": shallow(limits.video),
    }
    allowed = limits.image.max_seconds if found.kind == "image" else limits.video.max_time
    # A video is opened twice, each time with this limit, and read once more for its digest.
    seconds = (allowed if found.kind == "image" else 2 * allowed + GRACE) + found.size / SLOWEST_DISK
    try:
        for reply in decoders().stream(f"{__name__}:parts_task", arguments, seconds=seconds, group=unfinished):
            yield _received(reply, candidate, root, how)
    except WorkerTimeoutError:
        yield Problem(found.path, f"took longer than {allowed:g} s to decode")
    except WorkerStoppedError as error:
        yield Problem(found.path, str(error))


def parts_task(arguments: Mapping[str, Any], _: bytes) -> Iterator[Reply]:
    """Read a file in a worker process; its captions stay with the parent."""
    limits = ScanLimits(image=ImageLimits(**arguments["image"]), video=VideoLimits(**arguments["video"]))
    how, found = decoded(arguments["how"]), found_of(arguments["found"])
    for part in read_parts(found, arguments["root"], (), how, arguments["windows"], limits, load_small):
        if isinstance(part, Problem):
            yield Reply({"problem": part.reason})
            return
        shots = [[len(shot.frames), shot.start, shot.end] for shot in part.shots]
        values = {"file": shallow(part.file), "shots": shots, "last": part.last, "remark": part.remark}
        yield Reply(values, [frame for shot in part.shots for frame in shot.frames], part.last)


def _received(reply: Reply, candidate: Candidate, root: str, how: ImagePreprocessing) -> Part | Problem:
    values, arrays = reply.values, (normalise(pixels, how) for pixels in reply.arrays)
    if "problem" in values:
        return Problem(candidate.found.path, values["problem"])
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in values["file"].items()
    }
    found = candidate.found
    file = replace(MediaFile(**fields), root=root, path=found.path, kind=found.kind, captions=candidate.captions)
    shots = tuple(Shot(tuple(islice(arrays, count)), start, end) for count, start, end in values["shots"])
    return Part(with_place(file), shots, values["last"], values["remark"])


def read_parts(
    found: Found,
    root: str,
    captions: tuple[str, ...],
    how: ImagePreprocessing,
    windows: int,
    limits: ScanLimits,
    load: Load = lambda source, how, limits: load_pixels(source, how, limits=limits),
) -> Iterator[Part | Problem]:
    """Yield the parts of a file, ``windows`` at a time for a video, or end with a problem.

    Each file is decoded once; the metadata of an image comes from the same bytes. ``load`` reads and prepares an image
    or a frame.
    """
    try:
        if found.kind == "image":
            file, content = read_picture(found, root, captions, limits)
            yield Part(file, (Shot((load(content, how, limits.image),)),))
        else:
            yield from _clip(found, root, captions, how, windows, limits, load)
    except (BadMediaError, BadImageError) as error:
        yield Problem(found.path, error.reason)
    except OSError as error:
        yield Problem(found.path, os_reason(error))
    except MemoryError:
        yield Problem(found.path, "not enough memory")


def _clip(
    found: Found,
    root: str,
    captions: tuple[str, ...],
    how: ImagePreprocessing,
    windows: int,
    limits: ScanLimits,
    load: Load,
) -> Iterator[Part | Problem]:
    """Yield the parts of a video; the last shots are held back until the video is known to have ended."""
    file = describe(found, root, captions=captions, limits=limits, named=False)
    if isinstance(file, Problem):
        yield file
        return
    path = Path(root) / found.path
    shots: list[Shot] = []
    remark = None
    for window in frames(path, per_window=FRAMES, limits=limits.video):
        if isinstance(window, Problem):
            yield Problem(found.path, window.reason)
            return
        if len(shots) >= windows:
            yield Part(file, tuple(shots), last=False)
            shots = []
        pixels = tuple(load(frame, how, limits.image) for frame in window.frames)
        shots.append(Shot(pixels, window.start, window.end))
        remark = window.remark
    status = path.stat()
    if (status.st_size, status.st_mtime_ns) != (file.size, file.modified):
        yield Problem(found.path, CHANGED)
    else:
        yield Part(file, tuple(shots), remark=remark)


def embed_parts(model: Towers, parts: Sequence[Part], batch_size: int) -> list[tuple[Moment, ...]]:
    """Return the moments of each part; a shot without a finite embedding has none."""
    pixels = [frame for part in parts for shot in part.shots for frame in shot.frames]
    vectors = _embed(model, pixels, batch_size)
    row, result = 0, []
    for part in parts:
        moments = []
        for shot in part.shots:
            vector = direction(vectors[row : row + len(shot.frames)])
            row += len(shot.frames)
            if vector is not None:
                moments.append(Moment(vector, shot.start, shot.end))
        result.append(tuple(moments))
    return result


def count_frames(parts: Iterable[Part]) -> int:
    """Return the number of frames in all shots."""
    return sum(len(shot.frames) for part in parts for shot in part.shots)


def _embed(model: Towers, pixels: Sequence[Pixels], batch_size: int) -> Vectors:
    if not pixels:
        return np.zeros((0, model.embed_size), np.float32)
    starts = range(0, len(pixels), batch_size)
    return np.concatenate([model.embed_images(np.stack(pixels[start : start + batch_size])) for start in starts])
