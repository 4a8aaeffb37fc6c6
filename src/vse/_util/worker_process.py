"""The child's side of :mod:`vse._util.workers`: run tasks one after another within limits, and ask for memory."""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from vse.errors import InputError, VSEError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from numpy.typing import NDArray

MEMORY_VARIABLE = "VSE_DECODE_MEMORY"
DEFAULT_MEMORY = 768_000_000
FREE = 96_000_000
"""Bytes that a worker may take without asking; enough for an ordinary photograph."""
UNKNOWN_MEMORY = 8_000_000_000
"""Taken for the memory of a machine that does not tell."""
_CGROUPS, _SELF_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_CPU_GRACE = 5.0
_MAX_HEADER, _MAX_BODY = 64_000_000, 2_000_000_000
_FRAME = struct.Struct("<IQ")
_PIPE_BYTES = 1 << 20


class Reply(NamedTuple):
    """A part of a worker's answer; ``final`` if no more follow."""

    values: Mapping[str, Any]
    arrays: Sequence[NDArray[Any]] = ()
    final: bool = True


class NeedsMemoryError(VSEError):
    """A task needs more memory than the budget of all workers."""

    def __init__(self, need: int, budget: int) -> None:
        super().__init__(
            f"needs about {need / 1e6:,.0f} MB to decode, at most {budget / 1e6:,.0f}: set {MEMORY_VARIABLE} to more "
            "megabytes if you trust it"
        )


def available_memory() -> int:
    """Return the bytes that this process may use: the machine's memory, or the limit of its cgroup if that is less."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        found = 0
    return min([found if found > 0 else UNKNOWN_MEMORY, *cgroup_numbers("memory.max", "memory.limit_in_bytes")])


def cgroup_numbers(name: str, older: str = "") -> list[int]:
    """Return the first number in a file of this process's cgroup and those above it; ``older`` is its name in v1."""
    found: list[int] = []
    try:
        groups = _SELF_CGROUP.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return found
    for number, controllers, path in (line.split(":", 2) for line in groups if line.count(":") >= 2):
        file, root = (name, _CGROUPS) if number == "0" else (older, _CGROUPS / controllers)
        if not file or (number != "0" and "memory" not in controllers.split(",")):
            continue
        place = root / path.strip("/")
        for folder in (place, *place.parents):
            with contextlib.suppress(OSError, ValueError, IndexError):
                found.append(int((folder / file).read_text(encoding="ascii").split()[0]))
            if folder == root:
                break
    return found


def memory_budget() -> int:
    """Return the bytes that all workers may share, from ``VSE_DECODE_MEMORY`` in megabytes."""
    given = os.environ.get(MEMORY_VARIABLE, "").strip()
    if not given:
        return DEFAULT_MEMORY
    if not given.isascii() or not given.isdigit() or len(given) > 9 or int(given) < 1:
        raise InputError(f"{MEMORY_VARIABLE}={given[:40]!r}: expected a number of megabytes, such as 768")
    return int(given) * 1_000_000


def reserve(likely: int, least: int = 0) -> None:
    """Ask for memory before decoding, and wait until the budget of all workers allows it.

    A task reserves once, before it takes the memory; in a process that is no worker only the total is checked.

    Args:
        likely: Bytes that it may take; up to :data:`FREE` nothing is asked. More than the budget means all of it.
        least: Bytes that it takes in any case.

    Raises:
        NeedsMemoryError: ``least`` is more than all workers may have, or than this task has reserved before.
    """
    if _running is not None:
        _running.reserve(likely, least)
    elif least > memory_budget():
        raise NeedsMemoryError(least, memory_budget())


class _LaterError(BaseException):
    """The parent runs this task again when there is memory; decoders must not take it for a broken file."""


class _Running:
    """The task of this worker."""

    def __init__(self, source: IO[bytes], sink: IO[bytes], memory: int, granted: int) -> None:
        self._source, self._sink, self._memory, self.granted = source, sink, memory, granted

    def reserve(self, likely: int, least: int) -> None:
        limit = self.granted or self._memory
        if least > max(FREE, limit):
            raise NeedsMemoryError(least, limit)
        if likely > FREE and not self.granted:
            answer = self.ask({"reserve": min(likely, limit)})
            if "later" in answer:
                raise _LaterError
            self.granted = int(answer["granted"])
            _limit_memory(FREE + self.granted)

    def send(self, header: Mapping[str, Any], arrays: Sequence[NDArray[Any]] = ()) -> None:
        """Send a message that needs no answer."""
        write_message(self._sink, header, arrays)

    def ask(self, header: Mapping[str, Any], arrays: Sequence[NDArray[Any]] = ()) -> dict[str, Any]:
        """Send a message and return the answer."""
        self.send(header, arrays)
        found = read_message(self._source)
        if found is None:
            os._exit(0)
        return found[0]


_running: _Running | None = None


def serve(arguments: Sequence[str]) -> None:
    """Run the tasks that arrive on standard input until it ends; the arguments are priority and module to import."""
    global _running
    nice, preload = arguments
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):  # a library that prints must not disturb the messages
        os.dup2(null, descriptor)
    _prepare(int(nice))
    if preload:
        import_module(preload)
    write_message(sink, {"ready": True})
    while (found := read_message(source)) is not None:
        header, content = found
        if "task" not in header:
            continue
        granted = int(header["granted"])
        _limit_memory(FREE + granted + len(content))  # each time: libraries of an earlier task must not count
        _limit_time(float(header["seconds"]))
        _running = _Running(source, sink, int(header["memory"]), granted)
        try:
            last = _run(_running, header, bytes(content))
        except _LaterError:
            last = {"later": True}
        except Exception as error:  # noqa: BLE001 - the parent reports it for this file
            memory = isinstance(error, MemoryError)
            last = {"failed": "not enough memory" if memory else f"{type(error).__name__}: {error}"}
        _running = None
        del content, found
        if last is not None:
            write_message(sink, last)
    os._exit(0)


def _run(running: _Running, header: Mapping[str, Any], content: bytes) -> dict[str, Any] | None:
    """Send the replies of a task; None if the final one was sent."""
    module, _, name = str(header["task"]).partition(":")
    replies: Iterator[Reply] = getattr(import_module(module), name)(header["arguments"], content)
    for reply in replies:
        described = [[array.dtype.str, array.shape] for array in reply.arrays]
        message = {"values": dict(reply.values), "arrays": described, "final": reply.final}
        if reply.final:
            running.send(message, reply.arrays)
            return None
        running.ask(message, reply.arrays)
    return {"failed": "it ended without a final reply"}


def _prepare(nice: int) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    warnings.simplefilter("ignore")
    if hasattr(os, "nice") and nice:
        os.nice(nice)
    if hasattr(os, "getppid") and os.name == "posix":
        threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()


def _exit_with_parent(parent: int) -> None:
    """An idle worker sees the end of its input; this is for one that is decoding."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


def _limit_memory(extra: int) -> None:
    """Allow ``extra`` bytes more than now, where the system can limit private memory."""
    if sys.platform != "linux":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - called for many files
        limit = int(file.read().split()[5]) * resource.getpagesize() + extra
    limit = min(limit, hard) if hard != resource.RLIM_INFINITY else limit
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _limit_time(seconds: float) -> None:
    """The parent kills a worker at its deadline; this one holds if the parent cannot."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        allowed = (seconds + _CPU_GRACE) * (os.cpu_count() or 1)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        limit = math.ceil(used.ru_utime + used.ru_stime + allowed)
        limit = min(limit, hard) if hard != resource.RLIM_INFINITY else limit
        resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))


def shallow(record: DataclassInstance) -> dict[str, Any]:
    """Return the fields of a flat dataclass; ``asdict`` would copy each value, which shows in every file."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def enlarge_pipe(pipe: IO[bytes]) -> None:
    """Let a pipe hold a whole image, where the system can."""
    with contextlib.suppress(ImportError, AttributeError, OSError):  # Linux alone can
        import fcntl

        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def write_message(stream: IO[bytes], header: Mapping[str, Any], parts: Sequence[Any] = ()) -> None:
    """Write a message: sizes, header as JSON, and the bytes of ``parts``."""
    encoded = json.dumps(header, separators=(",", ":")).encode()
    views = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
    stream.write(_FRAME.pack(len(encoded), sum(view.nbytes for view in views)) + encoded)
    for view in views:
        stream.write(view)
    stream.flush()


def read_message(stream: IO[bytes]) -> tuple[dict[str, Any], bytearray] | None:
    """Return header and body of a message; None at the end. Raises ValueError for what is no message."""
    start = stream.read(_FRAME.size)
    if len(start) < _FRAME.size:
        return None
    header_size, size = _FRAME.unpack(start)
    if header_size > _MAX_HEADER or size > _MAX_BODY:
        raise ValueError("a message beyond the limits")
    encoded, body, place = stream.read(header_size), bytearray(size), 0
    view = memoryview(body)
    while place < size:
        count = stream.readinto(view[place:])  # type: ignore[attr-defined]
        if not count:
            return None
        place += count
    if len(encoded) < header_size:
        return None
    header = json.loads(encoded)
    if not isinstance(header, dict):
        raise ValueError("no object")
    return header, body


def split_arrays(described: Sequence[Any], body: bytearray) -> tuple[NDArray[Any], ...]:
    """Return the arrays that ``body`` holds one after another, given as (dtype, shape)."""
    import numpy as np

    found, place = [], 0
    for name, shape in described:
        kind = np.dtype(str(name))
        if kind.hasobject:
            raise ValueError("an array of objects")
        count = math.prod(int(side) for side in shape)
        found.append(np.frombuffer(body, kind, count, place).reshape(shape))
        place += count * kind.itemsize
    return tuple(found)
