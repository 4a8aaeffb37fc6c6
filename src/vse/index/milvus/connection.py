"""The way to Milvus: one client, its collections by name, and how errors of Milvus are told."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from vse.errors import VSEError, first_line, require
from vse.index.milvus import lite
from vse.index.milvus.address import MilvusAddress

TOKEN = "VSE_MILVUS_TOKEN"
CONNECT_SECONDS = 5.0
CALL_SECONDS = 60.0


class Connection:
    """A client for the Milvus behind an address. May be used from several threads."""

    def __init__(self, address: MilvusAddress) -> None:
        self.address, self.where, self.name = address, str(address), address.name
        self._errors: tuple[type[BaseException], ...] = ()
        self._guard = threading.Lock()
        pymilvus = require("pymilvus", "milvus", "a collection in Milvus")
        grpc = require("grpc", "milvus", "a collection in Milvus")
        logging.getLogger("pymilvus.decorators").setLevel(logging.CRITICAL)  # tells every error that it also raises
        self._errors = (pymilvus.MilvusException, grpc.RpcError, grpc.FutureTimeoutError, OSError)
        uri = address.uri if address.folder is None else lite.start(address.folder)
        try:
            with self._told(fix=f"check the address, that Milvus runs there, and {TOKEN} if it asks for one"):
                self._client: Any = pymilvus.MilvusClient(
                    uri=uri, token=os.environ.get(TOKEN, "") if address.folder is None else "", timeout=CONNECT_SECONDS
                )
        except BaseException:
            self._stop_lite()
            raise

    def close(self) -> None:
        """Give the connection back; harmless when that was done already."""
        with self._guard:
            client, self._client = self._client, None
        if client is not None:
            with suppress(*self._errors):
                client.close()
            self._stop_lite()

    def names(self) -> list[str]:
        """The Milvus collections there are, also those of others."""
        with self.using() as client:
            return [str(name) for name in client.list_collections(timeout=CALL_SECONDS)]

    def columns(self, name: str) -> frozenset[str] | None:
        """What the columns of a Milvus collection are called; None when it is not there."""
        with self.using() as client:
            if not client.has_collection(name, timeout=CALL_SECONDS):
                return None
            described = client.describe_collection(name, timeout=CALL_SECONDS)
            return frozenset(str(field["name"]) for field in described["fields"])

    def load(self, *names: str) -> bool:
        """Get Milvus collections ready to be read; False when one of them is not there."""
        with self.using() as client:
            for name in names:
                if not client.has_collection(name, timeout=CALL_SECONDS):
                    return False
                client.load_collection(name, timeout=CALL_SECONDS)
        return True

    def drop(self, *names: str) -> None:
        """Drop Milvus collections, in this order; those that are not there are passed over."""
        with self.using() as client:
            for name in names:
                if client.has_collection(name, timeout=CALL_SECONDS):
                    client.drop_collection(name, timeout=CALL_SECONDS)

    @contextmanager
    def using(self) -> Iterator[Any]:
        """The client; what Milvus raises becomes one line."""
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
            lite.stop(self.address.folder)
