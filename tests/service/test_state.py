"""A borrowed collection stays open while it is used, and a superseded one is closed once."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from vse.errors import InputError, VSEError
from vse.service.state import LRU, Reloader, UnavailableError


class Kept:
    """A collection that reports whether it is superseded, and counts how often it was closed."""

    def __init__(self) -> None:
        self.superseded, self.closed = False, 0

    def info(self):
        return type("Info", (), {"where": "/somewhere/photos.vse"})

    def close(self) -> None:
        self.closed += 1


@dataclass
class Lent:
    collection: Kept


def test_reload_closes_the_old_collection_after_its_last_user():
    """New requests get the new one; the old one is closed exactly once."""
    opened: list[Lent] = []

    def open_next() -> Lent:
        opened.append(Lent(Kept()))
        return opened[-1]

    reloader = Reloader(open_next)  # type: ignore[arg-type]
    with reloader.borrow() as one, reloader.borrow() as two:
        assert one is two is opened[0]
        opened[0].collection.superseded = True
        with reloader.borrow() as three:
            assert three is opened[1]
        assert [each.collection.closed for each in opened] == [0, 0]
    assert [each.collection.closed for each in opened] == [1, 0]
    reloader.close()
    assert [each.collection.closed for each in opened] == [1, 1]


def test_requests_are_served_during_a_reload():
    """One request waits for the new model, the others use the old collection."""
    loading, loaded, opened = threading.Event(), threading.Event(), []

    def open_next() -> Lent:
        if opened:
            loading.set()
            assert loaded.wait(10)
        opened.append(Lent(Kept()))
        return opened[-1]

    reloader = Reloader(open_next)  # type: ignore[arg-type]
    opened[0].collection.superseded = True
    found = []

    def ask() -> None:
        with reloader.borrow() as lent:
            found.append(lent)

    first = threading.Thread(target=ask)
    first.start()
    assert loading.wait(10)
    for _ in range(3):
        ask()
    assert found == [opened[0]] * 3
    loaded.set()
    first.join()
    ask()
    assert found[3:] == [opened[1]] * 2
    assert len(opened) == 2
    assert opened[0].collection.closed == 1


@pytest.mark.parametrize("kind", [InputError, VSEError])
def test_failed_reload_is_retried(kind, monkeypatch):
    """It is reported as unavailable, retried after some seconds, and the old collection stays open."""
    opened: list[Lent] = []

    def open_next() -> Lent:
        if len(opened) == 1:
            tried.append(True)
        if len(opened) == 1 and not mended:
            raise kind("the new model is not there")
        opened.append(Lent(Kept()))
        return opened[-1]

    mended: list[bool] = []
    tried: list[bool] = []
    reloader = Reloader(open_next)  # type: ignore[arg-type]
    opened[0].collection.superseded = True
    for _ in range(2):
        with pytest.raises(UnavailableError, match="not there"), reloader.borrow():
            pass
    assert opened[0].collection.closed == 0
    assert len(tried) == 1
    mended.append(True)
    monkeypatch.setattr("vse.service.state.RETRY_SECONDS", 0.0)
    with reloader.borrow() as lent:
        assert lent is opened[1]


def test_lru_is_bounded_by_total_size():
    """The least recently used entries are evicted; a value larger than the cache is not stored and evicts nothing."""
    kept: LRU[str, bytes] = LRU(10, len)
    for name in "abc":
        kept.put(name, b"xxx")
    assert kept.get("a") == b"xxx"
    kept.put("d", b"xxxx")
    assert (kept.get("b"), kept.get("a"), kept.get("d")) == (None, b"xxx", b"xxxx")
    kept.put("a", b"x")
    assert kept.size == sum(len(kept.get(name) or b"") for name in "abcd")
    held = kept.size
    kept.put("e", b"x" * 11)
    assert (kept.get("e"), kept.size) == (None, held)
    kept.put("a", b"x" * 11)
    assert (kept.get("a"), kept.size) == (None, held - 1)
