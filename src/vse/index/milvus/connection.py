"""Connect to Milvus: addresses, the Milvus Lite server of a folder, and one client whose errors become one line."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np

from vse._util.locks import lock_now
from vse.errors import InputError, VSEError, first_line, require

SCHEMES = {"milvus+http": 19530, "milvus+https": 443}
"""Server schemes and their default ports."""
FILE = "milvus+file:"
LOCAL_NAME = "vse"
"""Name of the one collection in a Milvus Lite folder."""
EXPECTED = "expected milvus+http://host:19530/name, milvus+https://host/name, or a local path that ends in .db"
LEVELS = ("Strong", "Session", "Bounded", "Eventually")
RESERVED = re.compile(r".*(_captions|_meta|_g[0-9]+(_[0-9a-f]{8})?)")
"""Names that the Milvus collections of another collection may have."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


@dataclass(frozen=True)
class MilvusAddress:
    """A server's ``uri`` or a Milvus Lite ``folder``, the other one None; ``name`` is the collection there.

    ``options`` are those of :func:`read_options`. They are no part of the identity: a collection records them.
    """

    name: str
    uri: str | None = None
    folder: Path | None = None
    options: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return str(self.folder) if self.uri is None else f"milvus+{self.uri}/{self.name}"


def parse_address(text: str) -> MilvusAddress:
    """Parse an address.

    Args:
        text: A local path that ends in ``.db``, or ``milvus+http://host:19530/name``, which options may follow, as in
            ``?num_shards=4&index_type=IVF_FLAT&nlist=1024``. It holds no password; a token is taken from
            ``VSE_MILVUS_TOKEN``.

    Raises:
        InputError: The address or an option is invalid, or its name is reserved.

    >>> str(parse_address("milvus+http://localhost/photos"))
    'milvus+http://localhost:19530/photos'
    """
    if text.startswith(FILE):
        path = text.removeprefix(FILE)
        return _local(text, path.removeprefix("//") if path.startswith("///") else path)
    if "://" not in text:
        return _local(text, text)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InputError(f"address {text!r} cannot be read ({error}): {EXPECTED}") from None
    if "@" in parts.netloc:  # the message must not repeat the password
        raise InputError(f"address of {parts.hostname} contains a user or password: put them into VSE_MILVUS_TOKEN")
    if parts.scheme not in SCHEMES or not parts.hostname or parts.fragment:
        raise InputError(f"address {text!r}: {EXPECTED}")
    name = parts.path.strip("/")
    if not _NAME.fullmatch(name):
        raise InputError(
            f"address {text!r} names the collection {name!r}: expected letters, digits and _ after the host, "
            "not starting with a digit, at most 200"
        )
    if RESERVED.fullmatch(name):
        raise InputError(
            f"address {text!r} names the collection {name!r}: expected a name that does not end in _captions, _meta or "
            "_g and a number, which are used for parts of collections"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    scheme = parts.scheme.removeprefix("milvus+")
    try:
        options = read_options(dict(parse_qsl(parts.query, keep_blank_values=True)))
    except InputError as error:
        raise InputError(f"address {text!r}: {error}") from None
    uri = f"{scheme}://{host}:{SCHEMES[parts.scheme] if port is None else port}"
    return MilvusAddress(name, uri=uri, options=tuple(options.items()))


def read_options(given: Mapping[str, str]) -> dict[str, str]:
    """Check the options of a collection.

    ``consistency_level`` of reads (Strong), ``num_shards``, ``replica_number``, ``index_type`` (HNSW; FLAT for Milvus
    Lite), and any whole number that this index takes for building (``M``, ``nlist``, …) or searching (``ef``,
    ``nprobe``, ``search_list``).

    Raises:
        InputError: A value is invalid.
    """
    for name, value in given.items():
        if name == "consistency_level":
            if value not in LEVELS:
                raise InputError(f"consistency_level {value[:60]!r}: expected {', '.join(LEVELS)}")
        elif name == "index_type":
            if not re.fullmatch(r"[A-Z][A-Z0-9_]{2,30}", value):
                raise InputError(f"index_type {value[:60]!r}: expected an index of Milvus such as HNSW or IVF_FLAT")
        elif not _NAME.fullmatch(name) or not re.fullmatch(r"[0-9]{1,9}", value):
            raise InputError(f"option {name[:60]}={value[:60]!r}: expected a whole number")
    return dict(given)


def _local(text: str, path: str) -> MilvusAddress:
    if not path.endswith(".db") or Path(path).name == ".db":
        raise InputError(f"address {text!r}: {EXPECTED}")
    return MilvusAddress(LOCAL_NAME, folder=Path(path))


PLACES = "**/indexes/*"
FLAT = ".flat."
SCHEMA = "schema.json"


def clean_up(folder: Path) -> None:
    """Remove what a killed Milvus Lite left that would stop the next one, unless somebody serves the folder."""
    try:
        lock = os.open(folder / "LOCK", os.O_RDWR)
    except OSError:  # nobody has used it yet
        return
    try:
        lock_now(lock)
        remove_unfinished(folder)
        remove_torn_indexes(folder)
    except OSError:  # another process serves it
        pass
    finally:
        os.close(lock)


def remove_unfinished(folder: Path) -> None:
    """Remove collections of ours without a schema, which Milvus Lite neither lists nor replaces.

    It was killed while it created or dropped them. Creating one again would fail: the folder exists.
    """
    for path in folder.glob(f"collections/{LOCAL_NAME}*"):
        ours = path.name == LOCAL_NAME or path.name.startswith(f"{LOCAL_NAME}_")
        if ours and path.is_dir() and not path.is_symlink() and not (path / SCHEMA).exists():
            shutil.rmtree(path, ignore_errors=True)


def remove_torn_indexes(folder: Path) -> None:
    """Remove truncated indexes from a folder that nobody serves; Milvus Lite rebuilds them.

    It writes them in place. An empty or truncated one makes it reject the whole collection, although all rows are
    there. A flat index is an array whose header records its size; of others only an empty file can be recognized.
    """
    for path in folder.glob(PLACES):
        with suppress(OSError):
            if path.is_file() and _is_torn(path):
                path.unlink()


def _is_torn(path: Path) -> bool:
    size = path.stat().st_size
    if size == 0 or FLAT not in path.name.lower():
        return size == 0
    with path.open("rb") as file:
        try:
            np.lib.format.read_magic(file)
            shape, _, kind = np.lib.format.read_array_header_1_0(file)
        except ValueError:
            return True
        return size < file.tell() + int(np.prod(shape, dtype=np.int64)) * kind.itemsize


_guard = threading.Lock()
_users: Counter[str] = Counter()


def check_folder(folder: Path, *, new: bool) -> None:
    """Check ``folder`` before Milvus Lite, which creates whatever is missing, is started on it.

    Raises:
        InputError: It is a file, not a collection (unless ``new``), or holds other files.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: since version 3 Milvus Lite uses a folder, choose another name")
    ours = is_used(folder)
    if not new and not ours:
        raise InputError(f"{folder} is not a collection, it holds no Milvus Lite data: 'vse index' creates one")
    if new and folder.is_dir() and not ours:
        strangers = [path.name for path in folder.iterdir() if path.name not in {".lock", "LOCK", "databases"}]
        if strangers:
            raise InputError(f"{folder} holds {strangers[0]!r}: expected a new or empty folder for Milvus Lite")


def is_used(folder: Path) -> bool:
    """Return whether ``folder`` holds Milvus Lite data."""
    return (folder / "collections").is_dir()


def start(folder: Path) -> str:
    """Return the address of the server on ``folder``, started if necessary; each call needs a call of :func:`stop`."""
    key = str(folder.resolve())
    with _guard:
        if not _users[key]:
            clean_up(folder)
        with _heard() as reasons:
            uri = _servers().start_and_get_uri(key)
        if uri is None:
            reason = reasons[0] if reasons else "no reason given"
            raise VSEError(
                f"{folder} cannot be opened by Milvus Lite ({reason}): it serves one process at a time, close it in "
                "the other, or use a Milvus server"
            )
        _users[key] += 1
    return str(uri)


def stop(folder: Path) -> None:
    """Stop the server when nobody in this process uses it any more, so that another process can."""
    key = str(folder.resolve())
    with _guard:
        _users[key] -= 1
        if _users[key] <= 0:
            del _users[key]
            _servers().release_server(key)


def _servers() -> Any:
    if sys.platform == "win32":
        raise InputError(
            "a folder that ends in .db is kept by Milvus Lite, which does not run on Windows: use a Milvus server "
            "(milvus+http://host:19530/name), or a folder with another name"
        )
    return require("milvus_lite.server_manager", "milvus", "a collection in a .db folder").server_manager_instance


@contextmanager
def _heard() -> Iterator[list[str]]:
    """Collect why a server did not start: Milvus Lite reports it only in its log, which would reach the terminal."""
    reasons: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info and record.exc_info[1] is not None:
                reasons.append(first_line(record.exc_info[1]))

    log = logging.getLogger("milvus_lite.server_manager")
    listener, before = Listener(), log.propagate
    log.addHandler(listener)
    log.propagate = False
    try:
        yield reasons
    finally:
        log.propagate = before
        log.removeHandler(listener)


TOKEN = "VSE_MILVUS_TOKEN"
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
"""Timeout of calls that read no rows, with which every change begins."""
CALL_SECONDS = 60.0


class Connection:
    """A client of the Milvus at an address. Thread-safe."""

    def __init__(self, address: MilvusAddress) -> None:
        self.address, self.where, self.name = address, str(address), address.name
        self._errors: tuple[type[BaseException], ...] = ()
        self._guard = threading.Lock()
        pymilvus = require("pymilvus", "milvus", "a collection in Milvus")
        grpc = require("grpc", "milvus", "a collection in Milvus")
        logging.getLogger("pymilvus.decorators").setLevel(logging.CRITICAL)  # it logs every error that it also raises
        self._refused: type[BaseException] = pymilvus.MilvusException
        self._errors = (pymilvus.MilvusException, grpc.RpcError, grpc.FutureTimeoutError, OSError)
        uri = address.uri if address.folder is None else start(address.folder)
        try:
            with self._told(fix=f"check the address, that Milvus runs there, and {TOKEN} if it asks for one"):
                self._client: Any = pymilvus.MilvusClient(
                    uri=uri, token=os.environ.get(TOKEN, "") if address.folder is None else "", timeout=CONNECT_SECONDS
                )
        except BaseException:
            self._stop_lite()
            raise

    def close(self) -> None:
        """Close the connection. Idempotent."""
        with self._guard:
            client, self._client = self._client, None
        if client is not None:
            with suppress(*self._errors):
                client.close()
            self._stop_lite()

    def names(self) -> list[str]:
        """Return the names of all Milvus collections, including those of others."""
        with self.using() as client:
            return [str(name) for name in client.list_collections(timeout=CALL_SECONDS)]

    def columns(self, name: str) -> frozenset[str] | None:
        """Return the column names of a Milvus collection; None when it does not exist."""
        with self.using() as client:
            if not client.has_collection(name, timeout=CALL_SECONDS):
                return None
            described = client.describe_collection(name, timeout=CALL_SECONDS)
            return frozenset(str(field["name"]) for field in described["fields"])

    def target(self, alias: str) -> str | None:
        """Return the Milvus collection that an alias stands for; None when there is no such alias."""
        with self.using() as client:
            if not client.has_collection(alias, timeout=ANSWER_SECONDS):
                return None
            try:
                return str(client.describe_alias(alias, timeout=ANSWER_SECONDS)["collection_name"])
            except self._refused:  # it is a collection, not an alias
                return None

    def drop(self, *names: str) -> None:
        """Drop Milvus collections, in this order; missing ones are skipped."""
        with self.using() as client:
            for name in names:
                if client.has_collection(name, timeout=CALL_SECONDS):
                    client.drop_collection(name, timeout=CALL_SECONDS)

    @contextmanager
    def using(self) -> Iterator[Any]:
        """Yield the client, and convert errors of Milvus into one line."""
        client = self._client
        if client is None:
            raise VSEError(f"{self.where} is closed: open it again")
        with self._told(fix="check that Milvus runs, and try again"):
            yield client

    @contextmanager
    def _told(self, *, fix: str) -> Iterator[None]:
        try:
            yield
        except VSEError:
            raise
        except self._errors as error:
            reason = first_line(Exception(getattr(error, "message", "") or error))
            raise VSEError(f"{self.where} cannot be used ({reason}): {fix}") from error

    def _stop_lite(self) -> None:
        if self.address.folder is not None:
            stop(self.address.folder)
