"""Addresses of collections in Milvus."""

from __future__ import annotations

from pathlib import Path

import pytest

from vse.errors import InputError
from vse.index.milvus import MilvusAddress, parse_address


@pytest.mark.parametrize(
    ("text", "expected", "told"),
    [
        ("milvus+http://host/photos", MilvusAddress("photos", uri="http://host:19530"), None),
        ("milvus+http://10.0.0.1:99/p_1", MilvusAddress("p_1", uri="http://10.0.0.1:99"), None),
        ("milvus+http://[::1]:99/p/", MilvusAddress("p", uri="http://[::1]:99"), "milvus+http://[::1]:99/p"),
        ("milvus+https://host/photos", MilvusAddress("photos", uri="https://host:443"), None),
        ("milvus+https://host:0/photos", MilvusAddress("photos", uri="https://host:0"), None),
        ("milvus+file:/data/a b.db", MilvusAddress("vse", folder=Path("/data/a b.db")), "/data/a b.db"),
        ("milvus+file:///data/a.db", MilvusAddress("vse", folder=Path("/data/a.db")), "/data/a.db"),
        ("milvus+file:a.db", MilvusAddress("vse", folder=Path("a.db")), "a.db"),
        ("../100%25.db", MilvusAddress("vse", folder=Path("../100%25.db")), "../100%25.db"),
    ],
)
def test_milvus_address_round_trip(text: str, expected: MilvusAddress, told: str | None) -> None:
    """Servers with default ports, folders in three spellings; a printed address parses to the same address."""
    found = parse_address(text)
    assert found == expected
    if told is not None:
        assert str(found) == told
    assert parse_address(str(found)) == found


@pytest.mark.parametrize(
    "text",
    [
        "", "photos", ".db", "a/.db", "http://host/photos", "milvus://host/photos", "milvus+http:///photos",
        "milvus+http://host", "milvus+http://host/", "milvus+http://host/a/b", "milvus+http://host/1a",
        "milvus+http://host/näme", "milvus+http://host/a-b", "milvus+http://host/" + "a" * 201,
        "milvus+http://host:port/a", "milvus+http://host:99999/a", "milvus+http://[::1/a", "milvus+http://host/a?b=c",
        "milvus+http://host/a?consistency_level=Weak", "milvus+http://host/a?index_type=hnsw",
        "milvus+file:", "milvus+file:/data/photos", "milvus+ftp://host/a.db",
    ],
)  # fmt: skip
def test_invalid_milvus_address_is_named(text: str) -> None:
    """One line with the address and what was expected."""
    with pytest.raises(InputError, match="expected") as caught:
        parse_address(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_password_is_not_repeated() -> None:
    """Messages end up in logs: the one about a password in the address only says where it belongs."""
    with pytest.raises(InputError, match="VSE_MILVUS_TOKEN") as caught:
        parse_address("milvus+https://root:secret@host/photos")
    assert "secret" not in str(caught.value)
