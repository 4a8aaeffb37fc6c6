"""The application on a port: socket, logs, signals and shutdown."""

from __future__ import annotations

import ctypes
import errno
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import FrameType

import uvicorn
from fastapi import FastAPI

from vse.errors import InputError, VSEError
from vse.index.rerank import load_reranker
from vse.inputs.decoding import use_decoders
from vse.service.app import create_app
from vse.service.limits import LimitedProtocol
from vse.service.middleware import LOGGER
from vse.service.settings import ServiceSettings
from vse.service.state import LoadedCollection, Reloader, load_collection

MAX_HEADER_BYTES = 32_768
BACKLOG = 128
KEEP_ALIVE_SECONDS = 30
DECODER_NICE = 10
"""Decoding comes after everything else: a text search takes as long as on a quiet machine."""
INTERRUPT_SECONDS = 3
FILE_DESCRIPTORS = 4096
ARENAS = 2
M_ARENA_MAX = -8
"""glibc's number of this mallopt parameter."""


def run_service(
    where: str | Sequence[str],
    settings: ServiceSettings,
    *,
    model: str | None = None,
    rerank: str | None = None,
    device: str | None = None,
    threads: int | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve a collection, or several, until SIGTERM or SIGINT.

    Args:
        where: The collections, the default one first.
        settings: Address, key and limits. Port 0 takes a free one.
        model: Where the collection's model is now, if it was moved.
        rerank: A model of pairs that reads image files: it orders results again where a client asks for it.
        device: Where the model runs, as for :func:`vse.load`; the CPU by default.
        threads: Threads on the CPU; all cores by default.
        ready: Called with the URL of the page once connections are accepted.

    Raises:
        KeyboardInterrupt: On SIGINT, after running requests have finished.
        VSEError: The port cannot be used, or the collection cannot be opened.
    """
    listener = listen(settings)
    try:
        settings = replace(settings, port=listener.getsockname()[1])
        limits = settings.limits
        use_decoders(limits.media_threads + limits.upload_threads, nice=DECODER_NICE).warm(1)
        reranker = None if rerank is None else load_reranker(rerank, device=device, threads=threads)
        opened = _open([where] if isinstance(where, str) else where, model, device, threads)
        app = create_app(opened, settings, reranker=reranker)
        with until_sigterm(), exit_if_stuck(lambda: app.state.service.workers.stuck):
            if ready is not None:
                ready(settings.address)
            serve(app, settings, listener)
    finally:
        listener.close()


def _open(places: Sequence[str], model: str | None, device: str | None, threads: int | None) -> list[Reloader]:
    """Open all collections, or none."""
    opened: list[Reloader] = []
    try:
        for place in places:
            opened.append(Reloader(loader(place, model, device=device, threads=threads)))  # noqa: PERF401
    except BaseException:
        for reloader in opened:
            reloader.close()
        raise
    return opened


def loader(
    where: str, model: str | None, *, device: str | None = None, threads: int | None = None
) -> Callable[[], LoadedCollection]:
    """Return a function that opens the collection with ``model``, or with its own model after an upgrade."""
    loaded_once = False

    def load() -> LoadedCollection:
        nonlocal loaded_once
        try:
            loaded = load_collection(where, model, device=device, threads=threads)
        except InputError:
            if not loaded_once or model is None:
                raise
            loaded = load_collection(where, device=device, threads=threads)
        loaded_once = True
        return loaded

    return load


def listen(settings: ServiceSettings) -> socket.socket:
    """Return a listening socket. Called first, so that a port in use is reported before anything is loaded."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # IPPROTO_TCP instead of 0: asyncio sets TCP_NODELAY only where it sees TCP, and responses would wait 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # On Windows, SO_REUSEADDR would let two services share a port.
        option = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
        listener.setsockopt(socket.SOL_SOCKET, option, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        place = f"{settings.host}:{settings.port}"
        in_use = error.errno in (errno.EADDRINUSE, errno.EACCES)
        fix = "choose another --port, 0 takes a free one" if in_use else "choose a --host that this machine has"
        raise VSEError(f"{place} cannot be used ({error.strerror or error}): {fix}") from None
    return listener


def serve(app: FastAPI, settings: ServiceSettings, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM: then stop listening, finish running requests, and raise the signal again."""
    _raise_descriptor_limit()
    _limit_arenas()
    log_to_stderr(requests=settings.log_requests)
    config = uvicorn.Config(
        app,
        http=partial(LimitedProtocol, settings.limits),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=settings.limits.drain_seconds,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    _Server(config).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Shuts down faster on Ctrl-C, where a person waits; a paused video would hold it for the whole drain time."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig == signal.SIGINT:
            self.config.timeout_graceful_shutdown = INTERRUPT_SECONDS
        super().handle_exit(sig, frame)


def _limit_arenas() -> None:
    """Let all threads share two malloc arenas: glibc creates one per thread, and memory freed in one stays there."""
    if not sys.platform.startswith("linux"):  # Windows cannot even open CDLL(None)
        return
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def _raise_descriptor_limit() -> None:
    """Raise the soft limit on open files: a video being played takes two."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = FILE_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, FILE_DESCRIPTORS)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def log_to_stderr(*, requests: bool) -> None:
    """Log errors, and requests if wanted, to stderr as JSON lines, unless the program has configured logging."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    LOGGER.setLevel(logging.INFO if requests else logging.WARNING)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # its warnings are about malformed requests


class _JsonLines(logging.Formatter):
    """One JSON object per record; the service's own records are JSON already."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name == LOGGER.name:
            return record.getMessage()
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class _SigtermError(BaseException):
    """SIGTERM has arrived. Not an Exception, which a library may catch."""


@contextmanager
def until_sigterm() -> Iterator[None]:
    """Leave the block on SIGTERM and continue after it. Does nothing outside the main thread.

    uvicorn handles the signal itself while it serves, and raises it again after shutting down. The default handler
    would then kill the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise _SigtermError

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except _SigtermError:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def exit_if_stuck(stuck: Callable[[], bool]) -> Iterator[None]:
    """Exit the process after the block if a worker thread is stuck: Python would wait for it.

    Nothing is lost, since the service only reads.
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
