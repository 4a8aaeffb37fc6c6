"""Decode foreign images and videos in worker processes, which are killed at a deadline and limited in memory.

Indexing, features, queries by image, thumbnails and evidence all decode here. :func:`vse.inputs.read_image` and
:func:`vse.inputs.load_pixels` decode in the calling process: within the same limits of size, scans and memory, but
nothing stops them.
"""

from __future__ import annotations

import atexit
import io
import json
import math
import os
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from vse._util.prefetch import available_cores
from vse._util.worker_process import FREE, NeedsMemoryError, Reply, available_memory, memory_budget, shallow
from vse._util.workers import WorkerPool, WorkerStoppedError, WorkerTimeoutError
from vse.inputs.files import BadMediaError, TooSlowError
from vse.inputs.images import (
    BadImageError,
    ImageLimits,
    ImageSource,
    check_image,
    file_content,
    printable_name,
    read_image,
)
from vse.inputs.preprocessing import ImagePreprocessing, load_pixels, load_small, normalise, prepare
from vse.inputs.video.file import VideoLimits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DECODERS = min(16, available_cores())
"""One per core: decoding a camera image takes longer than encoding it with a small model."""
PARENT_BYTES = 600_000_000
"""About what this process takes with a model beside its workers."""
WORKER_BYTES = FREE + 40_000_000
"""What a worker may take without asking, and what it takes when idle."""
GRACE = 5.0
"""Seconds that a video may take beyond ``VideoLimits.max_time``, which its reader checks between two packets."""

_deadline: ContextVar[float] = ContextVar("decoding deadline", default=math.inf)
_pool: WorkerPool | None = None
_lock = threading.Lock()


def decoders() -> WorkerPool:
    """Return the workers of this process, which are started when they are needed."""
    global _pool
    with _lock:
        if _pool is None or _pool.pid != os.getpid():  # a forked process has none
            _pool = WorkerPool(fitting(DECODERS), memory=memory_budget(), preload=__name__)
            atexit.register(_pool.close)
        return _pool


def use_decoders(size: int, *, nice: int = 0) -> WorkerPool:
    """Replace the workers of this process by ``size`` others, if so many fit, with a priority lower by ``nice``."""
    global _pool
    with _lock:
        before, _pool = _pool, WorkerPool(fitting(size), memory=memory_budget(), nice=nice, preload=__name__)
        atexit.register(_pool.close)
    if before is not None and before.pid == os.getpid():
        before.close()
    return _pool


def fitting(size: int) -> int:
    """Return how many of ``size`` workers fit into the memory of this machine or container: at least one.

    On 16 cores the memory that each may take without asking would exceed 2 GB, whatever the budget of all.
    """
    return max(1, min(size, (available_memory() - PARENT_BYTES - memory_budget()) // WORKER_BYTES))


@contextmanager
def decoding_deadline(seconds: float) -> Iterator[None]:
    """Let everything that is decoded within the context end in so many seconds, including the time it waits.

    Raises:
        WorkerBusyError: Within the context, if it could not begin in time.
    """
    token = _deadline.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


def decode_pixels(
    source: ImageSource, how: ImagePreprocessing, *, limits: ImageLimits | None = None
) -> NDArray[np.float32]:
    """Return what :func:`vse.inputs.load_pixels` does; a path or bytes are decoded by a worker.

    Raises:
        BadImageError: As there, and if it took too long or needs too much memory.
    """
    if not isinstance(source, (str, os.PathLike, bytes)):
        return load_pixels(source, how, limits=limits)
    reply = _call_for_image("pixels_task", source, {"how": encoded(how)}, limits)
    return normalise(reply.arrays[0], how)


def decode_image(source: ImageSource, *, longest: int, limits: ImageLimits | None = None) -> NDArray[np.uint8]:
    """Return an image as uint8 (H, W, 3), upright, reduced to ``longest`` pixels along its longer side.

    Raises:
        BadImageError: As for :func:`decode_pixels`.
    """
    if not isinstance(source, (str, os.PathLike, bytes)):
        return reduced(read_image(source, limits=limits), longest)
    return cast("NDArray[np.uint8]", _call_for_image("image_task", source, {"longest": longest}, limits).arrays[0])


def count_pixels(content: bytes, name: str, limits: ImageLimits) -> int:
    """Return the number of pixels in the header of an image; raise :class:`BadImageError` if it is invalid."""
    return int(_call_for_image("check_task", content, {}, limits, name).values["pixels"])


class Thumbnail(NamedTuple):
    """A small JPEG, and the SHA-256 of the file that it was made from; empty for a video."""

    jpeg: bytes
    digest: str = ""


def image_thumbnail(
    source: str | os.PathLike[str] | bytes, side: int, quality: int, *, limits: ImageLimits | None = None
) -> Thumbnail:
    """Return a JPEG of an image whose longer side is at most ``side``; it carries no EXIF data.

    Raises:
        BadImageError: As for :func:`decode_pixels`.
    """
    reply = _call_for_image("thumbnail_task", source, {"side": side, "quality": quality}, limits)
    return Thumbnail(reply.arrays[0].tobytes(), str(reply.values["digest"]))


def video_thumbnail(path: str | Path, second: float, side: int, quality: int, limits: VideoLimits) -> Thumbnail:
    """Return a JPEG of the upright frame at ``second``, or of the last one.

    Raises:
        BadMediaError: There is none, or it took too long.
    """
    arguments = {"second": second, "side": side, "quality": quality}
    with closing(_video(f"{__name__}:frame_task", path, arguments, limits)) as replies:
        return Thumbnail(next(replies).arrays[0].tobytes())


def decode_video(
    path: str | os.PathLike[str], how: ImagePreprocessing, frames: int, *, limits: VideoLimits | None = None
) -> tuple[NDArray[np.float32], str | None]:
    """Return evenly spaced, prepared frames ``(n, 3, H, W)`` of a video, and a remark about what could not be read.

    Raises:
        BadMediaError: There are none, or it took too long.
    """
    arguments = {"how": encoded(how), "frames": frames}
    with closing(_video(f"{__name__}:even_frames_task", path, arguments, limits or VideoLimits())) as replies:
        reply = next(replies)
    return cast("NDArray[np.float32]", reply.arrays[0]), reply.values["remark"]


def video_replies(
    task: str, path: str | os.PathLike[str], arguments: Mapping[str, Any], limits: VideoLimits
) -> Generator[Reply, None, None]:
    """Yield the replies of a task that reads a video; see :meth:`vse._util.workers.WorkerPool.stream`.

    Raises:
        BadMediaError: The task says so (``error`` in its values), took too long, or crashed.
    """
    return _video(task, path, arguments, limits)


def _video(
    task: str, path: str | os.PathLike[str], arguments: Mapping[str, Any], limits: VideoLimits
) -> Generator[Reply, None, None]:
    name = os.fspath(path)
    given = {**arguments, "path": os.path.abspath(name), "name": name, "limits": shallow(limits)}  # noqa: PTH100
    seconds, deadline = max(limits.max_time, 0) + GRACE, _deadline.get()
    try:
        for reply in decoders().stream(task, given, seconds=seconds, deadline=deadline):
            if "error" in reply.values:
                raise BadMediaError(name, str(reply.values["error"]))
            yield reply
    except WorkerTimeoutError:
        raise TooSlowError(name, f"took longer than {limits.max_time:g} s to decode") from None
    except (WorkerStoppedError, NeedsMemoryError) as error:
        raise BadMediaError(name, str(error)) from None


def _call_for_image(
    task: str,
    source: str | os.PathLike[str] | bytes,
    arguments: Mapping[str, Any],
    limits: ImageLimits | None,
    name: str | None = None,
) -> Reply:
    limits = limits or ImageLimits()
    given = {**arguments, "limits": shallow(limits)}
    content, deadline = b"", _deadline.get()
    if isinstance(source, bytes):
        given["name"], content = name or f"image of {len(source):,} bytes", source
        if len(source) > limits.max_bytes or not source:
            check_image(source, given["name"], limits)  # raises
    else:
        path = os.fspath(source)
        given["name"] = printable_name(path)
        given["path"] = os.path.abspath(path) if "\0" not in path else path  # noqa: PTH100
    try:
        seconds = min(limits.max_seconds, max(deadline - time.monotonic(), 0))
        reply = decoders().call(f"{__name__}:{task}", given, content, seconds=seconds, deadline=deadline)
    except (WorkerTimeoutError, WorkerStoppedError) as error:
        raise BadImageError(given["name"], str(error)) from None
    if "error" in reply.values:
        raise BadImageError(given["name"], str(reply.values["error"]))
    return reply


@lru_cache(maxsize=16)
def encoded(how: ImagePreprocessing) -> str:
    """Return the preprocessing as an argument of a task."""
    return json.dumps(how.to_json())


@lru_cache(maxsize=16)
def decoded(how: str) -> ImagePreprocessing:
    """Return the preprocessing of :func:`encoded`."""
    return ImagePreprocessing.from_json(json.loads(how))


# The tasks: each runs in a worker, with the arguments that the functions above send.


def pixels_task(arguments: Mapping[str, Any], content: bytes) -> Iterator[Reply]:
    """Prepare an image for a model."""
    limits = ImageLimits(**arguments["limits"])
    try:
        data = _content(arguments, content, limits)
        pixels = load_small(data, decoded(arguments["how"]), limits)
    except BadImageError as error:
        yield Reply({"error": error.reason})
    else:
        yield Reply({}, [pixels])


def image_task(arguments: Mapping[str, Any], content: bytes) -> Iterator[Reply]:
    """Decode an image at a reduced size."""
    limits, longest = ImageLimits(**arguments["limits"]), arguments["longest"]
    try:
        pixels = read_image(_content(arguments, content, limits), limits=limits, at_least=(longest, longest))
    except BadImageError as error:
        yield Reply({"error": error.reason})
    else:
        yield Reply({}, [reduced(pixels, longest)])


def check_task(arguments: Mapping[str, Any], content: bytes) -> Iterator[Reply]:
    """Read the header of an image."""
    try:
        yield Reply({"pixels": check_image(content, arguments["name"], ImageLimits(**arguments["limits"]))})
    except BadImageError as error:
        yield Reply({"error": error.reason})


def thumbnail_task(arguments: Mapping[str, Any], content: bytes) -> Iterator[Reply]:
    """Make a thumbnail of an image."""
    import hashlib

    limits, side = ImageLimits(**arguments["limits"]), arguments["side"]
    try:
        data = _content(arguments, content, limits)
        pixels = read_image(data, limits=limits, at_least=(side, side))
    except BadImageError as error:
        yield Reply({"error": error.reason})
    else:
        yield Reply({"digest": hashlib.sha256(data).hexdigest()}, [_jpeg(pixels, side, arguments["quality"])])


def frame_task(arguments: Mapping[str, Any], _: bytes) -> Iterator[Reply]:
    """Make a thumbnail of a frame."""
    from vse.inputs.video.file import open_video
    from vse.inputs.video.reader import FrameReader
    from vse.inputs.video.windows import upright

    limits = VideoLimits(**arguments["limits"])
    try:
        with open_video(arguments["path"], limits) as video, closing(FrameReader(video)) as reader:
            frame = reader.at(min(arguments["second"], max(video.duration - 0.1, 0.0)))
            if frame is None:
                raise BadMediaError(arguments["name"], "no frame at this time")
            pixels = upright(frame, reader.orientation, video.aspect, limits.max_side)
    except BadMediaError as error:
        yield Reply({"error": error.reason})
    else:
        yield Reply({}, [_jpeg(pixels, arguments["side"], arguments["quality"])])


def even_frames_task(arguments: Mapping[str, Any], _: bytes) -> Iterator[Reply]:
    """Prepare evenly spaced frames of a video for a model."""
    import numpy as np

    from vse.inputs.video.windows import even_frames_of

    how, limits = decoded(arguments["how"]), VideoLimits(**arguments["limits"])
    try:
        found = even_frames_of(arguments["path"], arguments["frames"], limits=limits)
    except BadMediaError as error:
        yield Reply({"error": error.reason})
    else:
        yield Reply({"remark": found.remark}, [np.stack([prepare(frame, how) for frame in found.frames])])


def reduced(pixels: NDArray[np.uint8], longest: int) -> NDArray[np.uint8]:
    """Return pixels (H, W, 3) with no side above ``longest``."""

    from vse.inputs.resizing import resize

    longer = max(pixels.shape[:2])
    if longer <= longest:
        return pixels
    height, width = (max(1, round(side * longest / longer)) for side in pixels.shape[:2])
    return resize(pixels, (height, width), "bilinear", small=True)


def _content(arguments: Mapping[str, Any], content: bytes, limits: ImageLimits) -> bytes:
    return file_content(Path(arguments["path"]), arguments["name"], limits) if "path" in arguments else content


def _jpeg(pixels: NDArray[np.uint8], side: int, quality: int) -> NDArray[np.uint8]:
    import numpy as np
    from PIL import Image

    image = Image.fromarray(pixels)
    image.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality, optimize=False, progressive=side > 640)
    return np.frombuffer(stream.getvalue(), np.uint8)
