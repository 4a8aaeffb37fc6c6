"""Worker processes for untrusted input: killed at a deadline, with limits on CPU time and memory.

A thread cannot be stopped, and a decoder may crash. What foreign files need runs in these processes instead. They are
started by :mod:`subprocess`: nothing is forked, so threads of the parent do no harm, and a script of the user needs no
``if __name__ == "__main__"``. Messages are JSON and the bytes of arrays, so a worker that was taken over can send
wrong pixels and nothing worse.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import IO, Any, cast

from vse._util.worker_process import Reply, enlarge_pipe, read_message, split_arrays, write_message
from vse.errors import VSEError

IDLE_SECONDS = 300.0
"""A worker that had nothing to do for so long ends."""
CANCELLED = object()
"""In the group of tasks that were cancelled."""
START_SECONDS = 120.0
"""A worker that is not ready by then is killed. The time of a task begins afterwards."""
_BOOT = """
import sys, json
sys.path[:] = json.loads(sys.argv[1])
from vse._util.worker_process import serve
serve(sys.argv[2:])
"""
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# glibc returns the memory of an image to the system and asks for it again for the next one, which costs a page fault
# for every 4 kB. Up to 32 MB are kept instead.
_MALLOC = {"MALLOC_ARENA_MAX": "2", "MALLOC_TRIM_THRESHOLD_": "33554432", "MALLOC_MMAP_THRESHOLD_": "33554432"}


class WorkerTimeoutError(VSEError):
    """The task was killed at its deadline."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"took longer than {seconds:g} s to decode")


class WorkerBusyError(VSEError):
    """No worker, or not enough memory, became free before the deadline."""


class WorkerStoppedError(VSEError):
    """The process of the task ended by itself: it crashed, or the system killed it."""


class _Budget:
    """Memory that is lent first come, first served: a large request is not overtaken for ever."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._used = 0
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    def take(self, amount: int, deadline: float) -> None:
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            try:
                while self._queue[0] is not ticket or self._used + amount > self.total:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise WorkerBusyError("other files take the memory for decoding: try again soon")
                    self._changed.wait(None if math.isinf(left) else left)
                self._used += amount
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()

    def take_now(self, amount: int) -> bool:
        """Take it if it is free and nobody waits."""
        with self._changed:
            free = not self._queue and self._used + amount <= self.total
            self._used += amount if free else 0
            return free

    def give_back(self, amount: int) -> None:
        with self._changed:
            self._used -= amount
            self._changed.notify_all()


class _Process:
    """The parent's end of one worker."""

    def __init__(self, nice: int, preload: str) -> None:
        root = str(Path(__file__).resolve().parents[2])
        paths = [os.path.abspath(each) for each in sys.path if each]  # noqa: PTH100 - may be a ZIP file
        command = [sys.executable, "-I", "-S", "-X", f"utf8={sys.flags.utf8_mode}", "-c", _BOOT]
        self._popen = subprocess.Popen(
            [*command, json.dumps(paths if root in paths else [root, *paths]), str(nice), preload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # libraries write warnings there
            env={**os.environ, **_ONE_THREAD, **_MALLOC},
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        self._to, self._from = cast("IO[bytes]", self._popen.stdin), cast("IO[bytes]", self._popen.stdout)
        enlarge_pipe(self._from)
        self.deadline = time.monotonic() + START_SECONDS
        self.timed_out = False
        self.started = threading.Event()  # or failed to
        self.failure = ""
        self.idle_since = time.monotonic()

    def send(self, header: Mapping[str, Any], content: bytes = b"") -> None:
        with contextlib.suppress(BrokenPipeError, OSError):  # receiving says why
            write_message(self._to, header, [content] if content else [])

    def receive(self) -> tuple[dict[str, Any], bytearray]:
        """Return the next message; raise :class:`WorkerStoppedError` at the end of the process."""
        found = read_message(self._from)
        if found is None:
            code = self._popen.wait()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            if code in (-getattr(signal, "SIGXCPU", 0), -getattr(signal, "SIGKILL", 0)) and code:
                how += ": too much CPU time or memory"
            raise WorkerStoppedError(f"the decoder stopped ({how})")
        return found

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def kill(self) -> None:
        self._popen.kill()

    def close(self) -> None:
        self._popen.kill()
        self._popen.wait()
        for stream in (self._to, self._from):
            with contextlib.suppress(OSError):
                stream.close()


class WorkerPool:
    """Runs tasks in worker processes, started as needed and reused.

    Args:
        size: Tasks that are computed at the same time.
        memory: Bytes that all tasks may share; see :func:`reserve`.
        nice: How much lower than this process the workers' priority is.
        preload: A module that a worker imports when it starts.
    """

    def __init__(self, size: int, *, memory: int, nice: int = 0, preload: str = "") -> None:
        self.pid = os.getpid()
        self.size = size
        self._nice, self._preload = nice, preload
        self._budget = _Budget(memory)
        self._slots = threading.Semaphore(size)
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        self._all: set[_Process] = set()
        self._watching = False
        self._closed = False

    def warm(self, count: int | None = None) -> None:
        """Start workers ahead of the first task."""
        for _ in range((self.size if count is None else count) - len(self._all)):
            self._put_back(self._start())

    def call(
        self,
        task: str,
        arguments: Mapping[str, Any],
        content: bytes = b"",
        *,
        seconds: float,
        deadline: float = math.inf,
    ) -> Reply:
        """Return the first reply of :meth:`stream`."""
        with contextlib.closing(self.stream(task, arguments, content, seconds=seconds, deadline=deadline)) as replies:
            return next(replies)

    def stream(
        self,
        task: str,
        arguments: Mapping[str, Any],
        content: bytes = b"",
        *,
        seconds: float,
        deadline: float = math.inf,
        group: set[Any] | None = None,
    ) -> Generator[Reply, None, None]:
        """Yield the replies of a task; its process is killed if the generator is closed before the final one.

        Args:
            task: ``module:function``, a function of ``(arguments, content)`` that yields :class:`Reply`.
            arguments: JSON values.
            content: Passed on.
            seconds: How long the worker may compute, without the time between two replies.
            deadline: ``time.monotonic()`` by which the task must have ended, including the time it waits.
            group: Holds the task while it is unfinished, for :meth:`cancel`.

        Raises:
            WorkerTimeoutError: The time is over.
            WorkerBusyError: The task could not begin before ``deadline``.
            WorkerStoppedError: The process ended by itself.
            NeedsMemoryError: It would need more than all workers may have.
        """
        left, granted, process, alive = seconds, 0, None, False
        reply, replied, allowed = Reply({}), False, min(seconds, deadline - time.monotonic())
        self._take_slot(deadline)
        computing = True
        try:
            first: dict[str, Any] = {
                "task": task, "arguments": dict(arguments), "seconds": seconds, "memory": self._budget.total,
            }  # fmt: skip
            message = first
            while True:
                if process is None:
                    process, message = self._take(deadline - allowed / 2, group), {**first, "granted": granted}
                began = time.monotonic()
                process.deadline = min(began + left, deadline)
                process.send(message, content if "task" in message else b"")
                header, body = self._receive(process, seconds)
                left -= time.monotonic() - began
                if "failed" in header:
                    alive = True
                    raise WorkerStoppedError(f"the decoder failed ({str(header['failed'])[:200]})")
                amount, final = min(int(header.get("reserve", 0)), self._budget.total), bool(header.get("final"))
                if amount and self._budget.take_now(amount):
                    granted, message = granted + amount, {"granted": amount}
                    continue
                if amount and not replied:
                    self._postpone(process, left, group)
                    process, left = None, seconds
                if not final:  # another task may run while this one waits
                    computing = False
                    self._slots.release()
                if amount:
                    self._budget.take(amount, deadline)
                    granted, message = granted + amount, {"granted": amount}
                else:
                    reply = Reply(header["values"], split_arrays(header["arrays"], body), final)
                    if final:
                        alive = process is not None and not process.timed_out
                        break
                    yield reply
                    replied, message = True, {"next": True}
                self._take_slot(deadline)
                computing = True
        finally:
            if computing:
                self._slots.release()
            if granted:
                self._budget.give_back(granted)
            if process is not None:
                self._give_up(process, group, alive=alive)
        yield reply

    def cancel(self, group: set[Any]) -> None:
        """Kill the workers of unfinished tasks that were given this ``group``, and refuse those that wait."""
        processes = list(group)
        group.add(CANCELLED)
        for process in processes:
            if process is not CANCELLED:
                process.kill()

    def close(self) -> None:
        """Kill all workers, also of running tasks."""
        with self._lock:
            self._closed = True
            processes, self._idle, self._all = list(self._all), [], set()
        for process in processes:
            process.close()

    def _take_slot(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0 or not self._slots.acquire(timeout=None if math.isinf(left) else left):
            raise WorkerBusyError("other files are being decoded: try again soon")

    def _receive(self, process: _Process, seconds: float) -> tuple[dict[str, Any], bytearray]:
        try:
            return process.receive()
        except (WorkerStoppedError, ValueError) as error:
            if process.timed_out:
                raise WorkerTimeoutError(round(seconds, 1)) from None
            raise error if isinstance(error, VSEError) else WorkerStoppedError("the decoder failed") from None
        finally:
            with self._lock:  # from here on the watchdog leaves it alone
                process.deadline = math.inf

    def _postpone(self, process: _Process, left: float, group: set[Any] | None) -> None:
        """Let a task that needs memory wait without a process: many large files would be many processes."""
        process.deadline = time.monotonic() + left
        process.send({"later": True})
        self._receive(process, left)
        self._give_up(process, group)

    def _give_up(self, process: _Process, group: set[Any] | None, *, alive: bool = True) -> None:
        if group is not None:
            group.discard(process)
        self._put_back(process) if alive else self._discard(process)

    def _take(self, latest: float, group: set[Any] | None) -> _Process:
        """Return a worker that is ready.

        One that is not by ``latest`` goes on starting for a later task. If it were killed with the task instead, no
        task would ever begin on a machine where a start takes longer than a task may wait.
        """
        process = None
        while process is None:
            with self._lock:
                self._idle.sort(key=lambda each: each.started.is_set())
                process = self._idle.pop() if self._idle else None
            if process is None:
                process = self._start()
            elif process.started.is_set() and not process.failure and not process.running:
                self._discard(process)
                process = None
        left = latest - time.monotonic()
        if not process.started.wait(None if math.isinf(left) else max(left, 0)) or left < 0:
            self._put_back(process)
            raise WorkerBusyError("other files are being decoded, or a decoder is starting: try again soon")
        if process.failure:
            self._discard(process)
            raise VSEError(f"a worker process cannot be started with {sys.executable} ({process.failure})")
        if group is not None:
            group.add(process)
            if CANCELLED in group:
                self._give_up(process, group)
                raise WorkerStoppedError("cancelled")
        return process

    def _start(self) -> _Process:
        try:
            process = _Process(self._nice, self._preload)
        except OSError as error:
            raise VSEError(f"a worker process cannot be started ({error.strerror or error})") from error
        with self._lock:
            if self._closed:
                process.close()
                raise VSEError("the worker processes were stopped")
            self._all.add(process)
            if not self._watching:
                self._watching = True
                threading.Thread(target=self._watch, name="vse-watchdog", daemon=True).start()
        threading.Thread(target=self._wait_for_start, args=[process], name="vse-worker-start", daemon=True).start()
        return process

    def _wait_for_start(self, process: _Process) -> None:
        failure = ""
        try:
            process.receive()
        except (WorkerStoppedError, ValueError, OSError) as error:
            failure = str(error)
        with self._lock:  # from here on the watchdog leaves it alone
            process.deadline = math.inf
            process.failure = f"not ready after {START_SECONDS:g} s" if process.timed_out else failure
        process.started.set()

    def _put_back(self, process: _Process) -> None:
        process.idle_since = time.monotonic()
        with self._lock:
            if process in self._all:
                self._idle.append(process)

    def _discard(self, process: _Process) -> None:
        with self._lock:
            self._all.discard(process)
        process.close()

    def _watch(self) -> None:
        """Kill workers at their deadlines, and end those that are idle for long."""
        while True:
            time.sleep(0.1)
            now = time.monotonic()
            with self._lock:
                if not self._all:
                    self._watching = False
                    return
                for process in self._all:
                    if process.deadline < now:
                        process.timed_out = True
                        process.kill()  # the thread that waits for it sees the end of its output
                stale = [process for process in self._idle if now - process.idle_since > IDLE_SECONDS]
                self._idle = [process for process in self._idle if process not in stale]
                self._all.difference_update(stale)
            for process in stale:
                process.close()
