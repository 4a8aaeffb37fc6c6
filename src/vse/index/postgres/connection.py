"""Connect to PostgreSQL: addresses, a pool of connections whose errors become one line, and the writer's lock."""

from __future__ import annotations

import hashlib
import re
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError, VSEError, first_line, require

SCHEMES = ("postgresql://", "postgres://")
EXPECTED = "expected postgresql://user@host:5432/database?collection=name"
DEFAULT_NAME = "vse"
INDEXES = ("hnsw",)
CONNECT_SECONDS = 10
LOCK_SECONDS = 1.0
"""How long a writer waits for the lock: the server takes a moment to notice that another one was killed."""
IDLE = 8
"""Connections kept for later reads."""
_SECRETS = frozenset({"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"})
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TAKEN = re.compile(r"pg_.*|public|information_schema")
_KEPT_ALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}


@dataclass(frozen=True)
class PostgresAddress:
    """A database, as libpq reads it, and the schema of the collection there.

    ``index`` is the approximate index of a new collection, if any. It is no part of the identity: a collection records
    it.
    """

    uri: str
    name: str = DEFAULT_NAME
    index: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.uri}{'&' if '?' in self.uri else '?'}collection={self.name}"


def parse_address(text: str) -> PostgresAddress:
    """Parse an address.

    Args:
        text: ``postgresql://user@host:port/database?collection=name``, with any further options of libpq such as
            ``sslmode=verify-full``. It holds no password: libpq takes one from ``PGPASSWORD`` or ``~/.pgpass``.

    Raises:
        InputError: The address or an option is invalid.

    >>> str(parse_address("postgres://localhost/media?sslmode=require"))
    'postgresql://localhost/media?sslmode=require&collection=vse'
    """
    rest = next((text.removeprefix(scheme) for scheme in SCHEMES if text.startswith(scheme)), None)
    head, _, query = (rest or "").partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    user = text.partition("//")[2].rpartition("@")[0]
    if user.partition(":")[2] or not _SECRETS.isdisjoint(name for name, _ in given):  # the message must not repeat it
        raise InputError(
            "the address of a PostgreSQL database contains a password: put it into PGPASSWORD or ~/.pgpass (an @ "
            "within an option is written %40)"
        )
    if rest is None:
        raise InputError(f"address {text!r}: {EXPECTED}")
    own = {name: value for name, value in given if name in {"collection", "index"}}
    name, index = own.get("collection", DEFAULT_NAME), own.get("index")
    if not _NAME.fullmatch(name) or _TAKEN.fullmatch(name):
        raise InputError(
            f"address {text!r} names the collection {name!r}: expected small letters, digits and _, not starting with "
            "a digit or pg_, at most 63, and neither public nor information_schema"
        )
    if index is not None and index not in INDEXES:
        raise InputError(f"address {text!r} has index {index[:60]!r}: expected {', '.join(INDEXES)}, or leave it out")
    passed = urlencode([each for each in given if each[0] not in own], quote_via=quote, safe="/")
    head = head.replace(":@", "@", 1)
    return PostgresAddress(f"postgresql://{head}{'?' if passed else ''}{passed}", name, index)


class Connections:
    """Connections to the database of one collection, for reads from any thread, and one with the writer's lock."""

    def __init__(self, address: PostgresAddress) -> None:
        self.address, self.where = address, str(address)
        self.psycopg: Any = require("psycopg", "postgres", "a collection in PostgreSQL")
        self._guard = threading.Lock()
        self._idle: list[Any] = []
        self._closed = False
        with self.using():
            pass

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    def check_open(self) -> None:
        """Raise VSEError after :meth:`close`."""
        if self._closed:
            raise VSEError(f"{self.where} is closed: open it again")

    @contextmanager
    def using(self, *, snapshot: bool = False) -> Iterator[Any]:
        """Yield a connection; with ``snapshot`` all statements see one state. Errors become one line."""
        with self._guard:
            self.check_open()
            connection = self._idle.pop() if self._idle else None
        with self.told():
            if connection is None:
                connection = self.connect()
            try:
                if snapshot:
                    with connection.transaction():
                        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                        yield connection
                else:
                    yield connection
            finally:
                self._give_back(connection)

    def connect(self) -> Any:
        """Return a new connection whose names are looked up in the schema of the collection."""
        given = self.psycopg.conninfo.conninfo_to_dict(self.address.uri)
        plain = {"connect_timeout": CONNECT_SECONDS, "application_name": "vse", **_KEPT_ALIVE}
        connection = self.psycopg.connect(**{**plain, **given, "client_encoding": "utf8"}, autocommit=True)
        try:
            found = connection.execute(
                "SELECT n.nspname, t.oid, current_setting('server_encoding') FROM pg_extension e "
                "JOIN pg_namespace n ON n.oid = e.extnamespace "
                "JOIN pg_type t ON t.typnamespace = n.oid AND t.typname = 'vector' WHERE e.extname = 'vector'"
            ).fetchone()
            if found is None:
                raise VSEError(
                    f"{self.where}: the database has no extension vector: an administrator has to run "
                    "CREATE EXTENSION vector there (pgvector 0.5 or newer)"
                )
            if found[2] != "UTF8":
                raise VSEError(f"{self.where}: the database stores text as {found[2]}, expected UTF8: use another one")
            connection.execute(
                "SELECT set_config('search_path', quote_ident(%s) || ', ' || quote_ident(%s), false)",
                (self.address.name, found[0]),
            )
            self._register(connection, found[1])
        except BaseException:
            connection.close()
            raise
        return connection

    def lock(self) -> Any:
        """Return a new connection that holds the writer's lock until it is closed.

        Raises:
            VSEError: Another one holds it.
        """
        name = hashlib.blake2b(f"vse:{self.address.name}".encode(), digest_size=8).digest()
        with self.told():
            connection = self.connect()
            try:
                with connection.transaction():
                    connection.execute("SELECT set_config('lock_timeout', %s, true)", (f"{LOCK_SECONDS * 1000:.0f}ms",))
                    connection.execute("SELECT pg_advisory_lock(%s)", (int.from_bytes(name, signed=True),))
            except self.psycopg.errors.LockNotAvailable:
                connection.close()
                raise VSEError(
                    f"{self.where} is being written by another process: wait for it or stop it ('vse index --watch' "
                    "runs until Ctrl-C)"
                ) from None
            except BaseException:
                connection.close()
                raise
        return connection

    def close(self) -> None:
        """Close the connections; those in use are closed when they are given back. Idempotent."""
        with self._guard:
            self._closed, idle, self._idle = True, self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def told(self) -> Iterator[None]:
        """Convert errors of PostgreSQL into one line."""
        errors = self.psycopg.errors
        try:
            yield
        except VSEError:
            raise
        except (errors.UndefinedTable, errors.InvalidSchemaName) as error:
            raise self.outdated_error() from error
        except errors.DataError as error:
            raise InputError(f"{self.where} cannot store a value ({first_line(error)}): leave the file out") from error
        except errors.InsufficientPrivilege as error:
            raise VSEError(
                f"{self.where} cannot be used ({first_line(error)}): an administrator can run CREATE SCHEMA "
                f"{self.address.name} AUTHORIZATION your user"
            ) from error
        except errors.Error as error:
            raise VSEError(
                f"{self.where} cannot be used ({first_line(error)}): check the address and that PostgreSQL runs there, "
                "and try again"
            ) from error

    def outdated_error(self) -> VSEError:
        """Return the error for a generation that no longer serves."""
        return VSEError(f"{self.where} was switched to a newer generation, or removed: open it again")

    def _give_back(self, connection: Any) -> None:
        with self._guard:
            if connection.closed:  # lost: so are those that wait
                lost, self._idle = self._idle, []
            elif self._closed or len(self._idle) >= IDLE:
                lost = [connection]
            else:
                lost = []
                self._idle.append(connection)
        for each in lost:
            each.close()

    def _register(self, connection: Any, oid: int) -> None:
        """Let arrays be parameters of the type vector; results are decoded by :func:`decode_vectors`."""

        class VectorDumper(self.psycopg.adapt.Dumper):  # type: ignore[name-defined]
            format = self.psycopg.pq.Format.BINARY

            def dump(self, vector: NDArray[np.float32] | bytes) -> bytes:
                if isinstance(vector, bytes):  # as it was read
                    return vector
                return _HEAD.pack(len(vector), 0) + vector.astype(">f4").tobytes()

        VectorDumper.oid = oid
        connection.adapters.register_dumper(np.ndarray, VectorDumper)
        connection.vector_oid = oid


_HEAD = struct.Struct(">HH")


def decode_vectors(raw: list[bytes], dimensions: int) -> NDArray[np.float32]:
    """Return vectors ``(n, D)`` from the binary form of pgvector: two numbers of 16 bits, then big-endian floats."""
    form = np.dtype([("head", "V4"), ("vector", ">f4", (dimensions,))])
    return np.frombuffer(b"".join(raw), form)["vector"].astype(np.float32).reshape(len(raw), dimensions)
