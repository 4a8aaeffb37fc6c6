"""What is lent stays open while it is used, and what was superseded is closed once."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from vse.errors import InputError, VSEError
from vse.service.state import Engine, Remembered, UnavailableError


class Kept:
    """A collection that says whether an upgrade has switched, and counts how often it was closed."""

    def __init__(self) -> None:
        self.superseded, self.closed = False, 0

    def info(self):
        return type("Info", (), {"where": "/somewhere/photos.vse"})

    def close(self) -> None:
        self.closed += 1


@dataclass
class Lent:
    collection: Kept


def test_a_switch():
    """New requests get the new one; the old one is closed when the last of its users has left, once."""
    opened: list[Lent] = []

    def open_next() -> Lent:
        opened.append(Lent(Kept()))
        return opened[-1]

    engine = Engine(open_next)  # type: ignore[arg-type]
    with engine.lend() as one, engine.lend() as two:
        assert one is two is opened[0]
        opened[0].collection.superseded = True
        with engine.lend() as three:
            assert three is opened[1]
        assert [each.collection.closed for each in opened] == [0, 0]
    assert [each.collection.closed for each in opened] == [1, 0]
    engine.close()
    assert [each.collection.closed for each in opened] == [1, 1]


def test_while_another_model_is_loaded():
    """One request waits for it, the others are answered from what was served before."""
    loading, loaded, opened = threading.Event(), threading.Event(), []

    def open_next() -> Lent:
        if opened:
            loading.set()
            assert loaded.wait(10)
        opened.append(Lent(Kept()))
        return opened[-1]

    engine = Engine(open_next)  # type: ignore[arg-type]
    opened[0].collection.superseded = True
    found = []

    def ask() -> None:
        with engine.lend() as lent:
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
def test_what_cannot_be_opened(kind, monkeypatch):
    """Is no error of whoever asks; it is tried again after some seconds, and what was served is not closed by it."""
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
    engine = Engine(open_next)  # type: ignore[arg-type]
    opened[0].collection.superseded = True
    for _ in range(2):
        with pytest.raises(UnavailableError, match="not there"), engine.lend():
            pass
    assert opened[0].collection.closed == 0
    assert len(tried) == 1
    mended.append(True)
    monkeypatch.setattr("vse.service.state.RETRY_SECONDS", 0.0)
    with engine.lend() as lent:
        assert lent is opened[1]


def test_what_is_remembered():
    """The entries used last, up to a weight; one that is heavier than all of it is not kept, and displaces nothing."""
    kept: Remembered[str, bytes] = Remembered(10, len)
    for name in "abc":
        kept.put(name, b"xxx")
    assert kept.get("a") == b"xxx"
    kept.put("d", b"xxxx")
    assert (kept.get("b"), kept.get("a"), kept.get("d")) == (None, b"xxx", b"xxxx")
    kept.put("a", b"x")
    assert kept.held == sum(len(kept.get(name) or b"") for name in "abcd")
    held = kept.held
    kept.put("e", b"x" * 11)
    assert (kept.get("e"), kept.held) == (None, held)
    kept.put("a", b"x" * 11)
    assert (kept.get("a"), kept.held) == (None, held - 1)
