"""What was used last of something that is worth keeping, and no more."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """Entries that together ``weigh`` at most ``most``, such as bytes; the least recently used are forgotten first.

    An entry that is heavier than all of it is not kept. May be used from several threads.
    """

    def __init__(self, most: int, weigh: Callable[[Value], int]) -> None:
        self.most, self.weigh = most, weigh
        self.held = 0
        self._entries: OrderedDict[Key, Value] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, key: Key) -> Value | None:
        with self._guard:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key]

    def put(self, key: Key, value: Value) -> None:
        with self._guard:
            if key in self._entries:
                self.held -= self.weigh(self._entries.pop(key))
            if self.weigh(value) > self.most:
                return
            self._entries[key] = value
            self.held += self.weigh(value)
            while self.held > self.most:
                self.held -= self.weigh(self._entries.popitem(last=False)[1])
