"""The digest depends on the content only."""

from __future__ import annotations

import hashlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse.errors import InputError
from vse.index.scan import digest
from vse.index.scan.describe import digest_of


def test_a_moved_file_is_recognised(tmp_path):
    """Name, path and time do not matter; reading in blocks or at once gives the same digest."""
    content = os.urandom(3_000_001)
    (tmp_path / "a.jpg").write_bytes(content)
    before = digest(tmp_path / "a.jpg")
    (tmp_path / "a.jpg").rename(tmp_path / "b.png")
    os.utime(tmp_path / "b.png", (1, 1))
    assert digest(str(tmp_path / "b.png")) == before == digest_of(content)
    assert before == hashlib.sha256(content).hexdigest()[:32]


@given(st.integers(0, 2_999_999))
def test_an_edited_file_is_noticed(tmp_path_factory, position):
    """One flipped bit anywhere, with the size unchanged."""
    path = tmp_path_factory.mktemp("digest") / "clip.mp4"
    content = bytearray(3_000_000)
    path.write_bytes(content)
    before = digest(path)
    content[position] ^= 1
    path.write_bytes(content)
    assert digest(path) != before


def test_digest_of_unreadable_files(tmp_path):
    """Errors are one line, and reading never blocks on a pipe."""
    os.mkfifo(tmp_path / "pipe")
    for place, reason in ((tmp_path / "none", "no such file"), (tmp_path, "regular"), (tmp_path / "pipe", "regular")):
        with pytest.raises(InputError, match=reason):
            digest(place)
    with pytest.raises(InputError, match="null"):
        digest("a\0")
