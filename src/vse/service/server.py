"""The application on a port, until it is told to stop."""

from __future__ import annotations

import ctypes
import errno
import signal
import socket
from contextlib import suppress
from functools import partial
from types import FrameType

import uvicorn
from fastapi import FastAPI

from vse.errors import VSEError
from vse.service.connections import PatientProtocol
from vse.service.logs import log_to_stderr
from vse.service.settings import ServiceSettings

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
