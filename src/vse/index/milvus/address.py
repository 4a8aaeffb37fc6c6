"""Where a Milvus collection is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from vse.errors import InputError

SCHEMES = {"milvus+http": 19530, "milvus+https": 443}
"""The schemes of servers, with the ports that are meant when none is given."""
FILE = "milvus+file:"
LOCAL_NAME = "vse"
"""The name within a Milvus Lite folder, which holds one collection."""
EXPECTED = "expected milvus+http://host:19530/name, milvus+https://host/name, or a local path that ends in .db"
RESERVED = re.compile(r".*(_captions|_meta|_g[0-9]+)")
"""Names that the Milvus collections of another collection may have."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


@dataclass(frozen=True)
class MilvusAddress:
    """A server's ``uri`` or the ``folder`` of Milvus Lite, one of them None; ``name`` is the collection there."""

    name: str
    uri: str | None = None
    folder: Path | None = None

    def __str__(self) -> str:
        return str(self.folder) if self.uri is None else f"milvus+{self.uri}/{self.name}"


def parse_address(text: str) -> MilvusAddress:
    """Read an address; it holds no password, a token is taken from ``VSE_MILVUS_TOKEN``."""
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
    if "@" in parts.netloc:  # and the message does not repeat it
        raise InputError(f"address of {parts.hostname} holds a user or password: put them into VSE_MILVUS_TOKEN")
    if parts.scheme not in SCHEMES or not parts.hostname or parts.query or parts.fragment:
        raise InputError(f"address {text!r}: {EXPECTED}")
    name = parts.path.strip("/")
    if not _NAME.fullmatch(name):
        raise InputError(
            f"address {text!r} names the collection {name!r}: expected letters, digits and _ after the host, "
            "not beginning with a digit, at most 200"
        )
    if RESERVED.fullmatch(name):
        raise InputError(
            f"address {text!r} names the collection {name!r}: expected a name that does not end in _captions, _meta or "
            "_g and a number, which are used for parts of collections"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    scheme = parts.scheme.removeprefix("milvus+")
    return MilvusAddress(name, uri=f"{scheme}://{host}:{SCHEMES[parts.scheme] if port is None else port}")


def _local(text: str, path: str) -> MilvusAddress:
    if not path.endswith(".db") or Path(path).name == ".db":
        raise InputError(f"address {text!r}: {EXPECTED}")
    return MilvusAddress(LOCAL_NAME, folder=Path(path))
