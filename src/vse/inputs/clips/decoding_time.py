"""How long decoding a clip may take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from vse.inputs.problem import TooSlowError


class DecodingTime:
    """Counts seconds from when it is made, except those in which it is stopped, for the clip ``name``."""

    def __init__(self, name: str, allowed: float) -> None:
        self._name, self._allowed = name, allowed
        self._spent, self._since = 0.0, time.monotonic()

    def check(self) -> None:
        """Raise :class:`TooSlowError` when more than the allowed seconds were spent."""
        if self._spent + time.monotonic() - self._since > self._allowed:
            raise TooSlowError(self._name, f"took longer than {self._allowed:g} s to decode")

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """For as long as nothing is decoded: a model may take hours for what came out until now."""
        self._spent += time.monotonic() - self._since
        try:
            yield
        finally:
            self._since = time.monotonic()
