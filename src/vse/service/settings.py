"""Address, key and limits of the service."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from vse.errors import InputError

PREFIX = "/api/v1"
ONE_OF_SEVERAL = PREFIX + "/collections/{collection}"
"""The same routes for each collection by its name; those below :data:`PREFIX` are about the first."""
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
MIN_KEY_LENGTH = 16
MAX_PARTS = 8
"""Texts, excluded texts, or item ids per query."""
MAX_IMAGES = 4
MAX_RESULTS = 200
"""Per page."""
MAX_OFFSET = 10_000
"""Results before a page. Narrow the search to see more."""
MAX_CURSOR = 8000
"""Characters of a cursor."""
MAX_TEXTS = 32
"""Texts of one request for embeddings."""
MAX_DIMENSIONS = 65_536
"""Numbers of a vector to search for."""
MAX_COLLECTIONS = 64
"""Collections of one service."""
MAX_EXPORT = 2000
"""Items of one exported list or archive."""
MAX_RERANKED = 200
"""Results that one search may re-rank."""
RERANKING_SHARE = 0.5
"""Of a request's timeout, for re-ranking; what is left finishes the images that are being scored."""
MAX_JSON_ID = 2**53 - 1
"""The largest id in a JSON body: larger whole numbers are not exact in JavaScript."""


@dataclass(frozen=True)
class Limits:
    """Limits on what clients may send and how long it may take.

    Attributes:
        body: Bytes of a request body (413).
        pixels: Pixels of all images in a request (422).
        threads: Searches by text and other requests without an image, computed at the same time.
        media_threads: Thumbnails, previews and explanations, computed at the same time.
        upload_threads: Searches by uploaded images, computed at the same time.
        rerank_threads: Searches by text that are re-ranked, computed at the same time.
        waiting: Requests of each of these four kinds, computed or waiting, of all clients (503).
        per_client: The same of one address (429).
        bodies: Uploads in progress, of all clients (503).
        bodies_per_client: Uploads in progress, of one address (429).
        seconds: Timeout of a request (503).
        receive_seconds: Timeout for receiving a body (408).
        header_seconds: Timeout for receiving headers (the connection is closed).
        send_seconds: How long a client may read nothing of a response (the connection is closed).
        connections: Open connections, of all clients (further ones are closed).
        connections_per_client: Open connections, of one address (further ones are closed).
        drain_seconds: How long running requests may take to finish at shutdown.
        archive: Bytes of the files in one exported archive (422).
    """

    body: int = 24_000_000
    pixels: int = 50_000_000
    threads: int = 2
    media_threads: int = 2
    upload_threads: int = 2
    rerank_threads: int = 2
    waiting: int = 64
    per_client: int = 32
    bodies: int = 8
    bodies_per_client: int = 4
    seconds: float = 10.0
    receive_seconds: float = 20.0
    header_seconds: float = 10.0
    send_seconds: float = 60.0
    connections: int = 512
    connections_per_client: int = 128
    drain_seconds: int = 20
    archive: int = 4_000_000_000


@dataclass(frozen=True)
class ServiceSettings:
    """Where the service listens and who may use it.

    Attributes:
        host: The address to listen on.
        port: The port, 0 for a free one.
        key: The API key. None requires none, which is allowed on a loopback address only.
        names: Further host names under which the service is reached. Requests for other names are rejected, which
            prevents DNS rebinding.
        log_queries: Log the query of each request.
        log_requests: Log a line for each request.
        originals: Give clients on other machines the original files, which contain place and camera, and the folders
            that were indexed. Clients on this machine always get them.
        roots: Folders of the collection whose files are shown, besides those that were indexed on this machine.
        limits: Limits on what clients may send.

    Raises:
        InputError: An invalid port or key, or no key on an address that other machines can reach.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    key: str | None = None
    names: tuple[str, ...] = ()
    log_queries: bool = False
    log_requests: bool = True
    originals: bool = False
    roots: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InputError(f"port {self.port}: expected 0 to 65535, 0 takes a free one")
        if self.key is not None and len(self.key) < MIN_KEY_LENGTH:
            raise InputError(f"a key of {len(self.key)} characters: expected at least {MIN_KEY_LENGTH}")
        if self.key is not None and not (self.key.isascii() and self.key.isprintable() and " " not in self.key):
            raise InputError("a key with spaces or non-ASCII characters: expected letters and digits")
        if self.key is None and not is_local(self.host):
            raise InputError(
                f"host {self.host} can be reached from other machines: set a key (VSE_API_KEY, or --key-file FILE), "
                "or use 127.0.0.1"
            )

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """The host names that requests may use, in lower case; empty allows any."""
        own = {self.host.lower()} if not _is_wildcard(self.host) else set()
        if self.key is not None and not self.names:
            return frozenset()  # the key protects it, and the names of this machine are unknown
        return frozenset({*LOCAL_NAMES, *own, *(name.lower() for name in self.names)})

    @property
    def address(self) -> str:
        """The URL of the page, as opened on this machine."""
        host = "127.0.0.1" if _is_wildcard(self.host) else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"


def is_local(host: str) -> bool:
    """Return whether ``host`` is a loopback address, which only this machine can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host
