"""Where the service listens, who may ask, and how much."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from vse.errors import InputError

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
SHORTEST_KEY = 16
MOST_PARTS = 8
"""Texts, unwanted texts, or ids in a query."""
MOST_PICTURES = 4
MOST_RESULTS = 200
"""On a page."""
MOST_OFFSET = 10_000
"""Results before a page: who wants more narrows the search."""


@dataclass(frozen=True)
class Limits:
    """What is refused, and with which status.

    413: ``body`` bytes of a request. 422: ``pixels`` of all pictures in a request, and what the OpenAPI document says
    of parameters. 429: ``per_client`` requests, or ``bodies_per_client`` of them with a body, of one address at once.
    503: ``waiting`` requests or ``bodies`` of all at once, or one that takes longer than ``seconds``. 408: a body that
    takes longer than ``receive_seconds``.

    A connection is closed when headers take longer than ``header_seconds``, when its client reads nothing for
    ``send_seconds``, and at once beyond ``connections``, or ``connections_per_client`` of one address. ``threads``
    requests are computed at a time, the others wait. When the service is told to stop, what is under way has
    ``drain_seconds`` to end.
    """

    body: int = 24_000_000
    pixels: int = 50_000_000
    threads: int = 2
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


@dataclass(frozen=True)
class ServiceSettings:
    """``key`` is what clients have to know; None asks for nothing, which is for this machine alone.

    ``names`` are further host names under which the service is reached: a request for another name is refused, since a
    page elsewhere could have its own name lead here. ``log_requests`` writes a line for each request, ``log_queries``
    also what is asked for.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    key: str | None = None
    names: tuple[str, ...] = ()
    log_queries: bool = False
    log_requests: bool = True
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InputError(f"port {self.port}: expected 0 to 65535, 0 takes a free one")
        if self.key is not None and len(self.key) < SHORTEST_KEY:
            raise InputError(f"a key of {len(self.key)} characters: expected {SHORTEST_KEY} at least")
        if self.key is not None and not (self.key.isascii() and self.key.isprintable() and " " not in self.key):
            raise InputError(
                "a key with spaces or other characters than ASCII cannot be sent: expected letters and digits"
            )
        if self.key is None and not is_local(self.host):
            raise InputError(
                f"host {self.host} can be reached from other machines: set a key (VSE_API_KEY, or --key-file FILE), "
                "or use 127.0.0.1"
            )

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """The names that a request may be for, in lower case; empty when any may."""
        own = {self.host.lower()} if not _is_wildcard(self.host) else set()
        if self.key is not None and not self.names:
            return frozenset()  # the key keeps strangers out, and the names of this machine are not known
        return frozenset({*LOCAL_NAMES, *own, *(name.lower() for name in self.names)})

    @property
    def address(self) -> str:
        """What a person types into a browser on this machine."""
        host = "127.0.0.1" if _is_wildcard(self.host) else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"


def is_local(host: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host
