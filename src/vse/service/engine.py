"""What is served, kept current while others write."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vse.errors import VSEError
from vse.service.serving import Serving

RETRY_SECONDS = 3.0


class UnavailableError(VSEError):
    """The collection, or its model, cannot be opened now."""


class Engine:
    """Lends what ``open_serving`` opens, and opens it anew when an upgrade has switched to another model.

    Readers see what a writer commits without being opened again. Loading another model takes a while: one request waits
    for it, the others are answered from what was served before. That is closed when the last request that uses it has
    ended.
    """

    def __init__(self, open_serving: Callable[[], Serving]) -> None:
        self._open = open_serving
        self._serving = open_serving()
        self.where = self._serving.collection.info().where
        self._users: Counter[int] = Counter()  # by id() of a Serving
        self._guard = threading.Lock()
        self._opening = threading.Lock()
        self._failed: tuple[float, VSEError] | None = None

    @contextmanager
    def lend(self) -> Iterator[Serving]:
        """What is to be asked now, open for as long as it is used."""
        try:
            with self._borrowed() as current:
                superseded = current.collection.superseded
            if superseded:
                self._switch(current)
        except VSEError as error:  # whoever asks has done nothing wrong, whatever kind of error it is
            raise UnavailableError(str(error)) from error
        with self._borrowed() as serving:
            yield serving

    def close(self) -> None:
        """Close what is served; nothing is lent any more."""
        self._serving.collection.close()

    @contextmanager
    def _borrowed(self) -> Iterator[Serving]:
        with self._guard:
            serving = self._serving
            self._users[id(serving)] += 1
        try:
            yield serving
        finally:
            with self._guard:
                self._users[id(serving)] -= 1
                self._close_if_left(serving)

    def _switch(self, old: Serving) -> None:
        if not self._opening.acquire(blocking=False):
            return
        try:
            if self._serving is old:
                fresh = self._fresh()
                with self._guard:
                    self._serving = fresh
                    self._close_if_left(old)
        finally:
            self._opening.release()

    def _fresh(self) -> Serving:
        """Opened, or the error of some seconds ago: trying means to load a model, and everybody asks."""
        if self._failed is not None and time.monotonic() - self._failed[0] < RETRY_SECONDS:
            raise self._failed[1]
        try:
            return self._open()
        except VSEError as error:
            self._failed = time.monotonic(), error
            raise

    def _close_if_left(self, serving: Serving) -> None:
        if self._users[id(serving)]:
            return
        del self._users[id(serving)]  # another one may get the same id
        if serving is not self._serving:
            serving.collection.close()
