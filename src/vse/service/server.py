"""The application on a port, until it is told to stop."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from types import FrameType

import uvicorn
from fastapi import FastAPI

from vse.errors import InputError, VSEError
from vse.service.app import create_app
from vse.service.limits import PatientProtocol
from vse.service.middleware import log_to_stderr
from vse.service.settings import ServiceSettings
from vse.service.state import Engine, Serving, open_serving

MOST_HEADERS = 32_768
BACKLOG = 128
KEEP_ALIVE_SECONDS = 30
INTERRUPTED_SECONDS = 3
DESCRIPTORS = 4096
ARENAS = 2
M_ARENA_MAX = -8
"""The number of this setting in glibc."""


def listen(settings: ServiceSettings) -> socket.socket:
    """A socket that connections wait at, so that a port that is taken is found out before anything is loaded."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # Named, not 0: asyncio sends small packets at once only where it sees TCP, and else every answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        place = f"{settings.host}:{settings.port}"
        taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
        fix = "choose another --port, 0 takes a free one" if taken else "choose a --host that this machine has"
        raise VSEError(f"{place} cannot be used ({error.strerror or error}): {fix}") from None
    return listener


class _Server(uvicorn.Server):
    """Whoever presses Ctrl-C waits in front of it, and a paused clip would hold it for as long as SIGTERM allows."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig == signal.SIGINT:
            self.config.timeout_graceful_shutdown = INTERRUPTED_SECONDS
        super().handle_exit(sig, frame)


def serve(app: FastAPI, settings: ServiceSettings, listener: socket.socket) -> None:
    """Answer until SIGINT or SIGTERM: then take no new connections, finish what is under way, and raise it again."""
    _allow_descriptors()
    _share_memory()
    log_to_stderr(requests=settings.log_requests)
    config = uvicorn.Config(
        app,
        http=partial(PatientProtocol, settings.limits),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=settings.limits.drain_seconds,
        h11_max_incomplete_event_size=MOST_HEADERS,
    )
    _Server(config).run(sockets=[listener])


def _share_memory() -> None:
    """Two arenas for all threads: glibc gives each its own, and what one of them has freed no other can use."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def _allow_descriptors() -> None:
    """As many as the system lets a process have: a clip that is played takes two."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _ToldToStopError(BaseException):
    """SIGTERM has arrived. No Exception, which a library may catch."""


@contextmanager
def until_told_to_stop() -> Iterator[None]:
    """End what is inside on SIGTERM, and go on behind it. In other threads than the first nothing is done.

    The server has handlers of its own while it answers. When it has finished what was under way it raises the signal
    again, for whoever was responsible before: by default the process would then die of it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise _ToldToStopError

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except _ToldToStopError:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def leaving_at_once(stuck: Callable[[], bool]) -> Iterator[None]:
    """End the process behind what is inside if something is ``stuck`` in a thread: Python would wait for it.

    Nothing is lost with it, since a service only reads.
    """
    code = 0
    try:
        yield
    except KeyboardInterrupt:
        code = 130
        raise
    finally:
        if stuck():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def run_service(
    where: str, settings: ServiceSettings, *, model: str | None = None, ready: Callable[[str], None] | None = None
) -> None:
    """Serve the collection at ``where`` until SIGTERM, or SIGINT, which is a KeyboardInterrupt.

    ``ready`` gets the address of the page first: from then on connections are accepted.
    """
    listener = listen(settings)
    try:
        settings = replace(settings, port=listener.getsockname()[1])
        app = create_app(Engine(opener(where, model)), settings)
        with until_told_to_stop(), leaving_at_once(lambda: app.state.service.workers.stuck):
            if ready is not None:
                ready(settings.address)
            serve(app, settings, listener)
    finally:
        listener.close()


def opener(where: str, model: str | None) -> Callable[[], Serving]:
    """Opens the collection with the model that is named, and once an upgrade has left that behind, with its own."""
    opened = False

    def open_it() -> Serving:
        nonlocal opened
        try:
            serving = open_serving(where, model)
        except InputError:
            if not opened or model is None:
                raise
            serving = open_serving(where)
        opened = True
        return serving

    return open_it
