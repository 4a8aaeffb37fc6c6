"""Encoding names and filters for Milvus expressions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse.errors import InputError
from vse.index.filters import Box, Filter
from vse.index.milvus.reading import condition
from vse.index.milvus.schema import from_stored, literal, to_stored

raw_bytes = st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | raw_bytes | st.text("%\"'\\0a/\n", max_size=8)


@given(texts)
def test_milvus_text_round_trip(text: str) -> None:
    """Any name is restored; the stored form is UTF-8 and cannot end a literal."""
    stored = to_stored(text)
    assert from_stored(stored) == text
    stored.encode()
    assert not set(stored) & set("\"'\\\n\r\0")
    assert literal(text) == f'"{stored}"'


@given(texts, texts)
def test_milvus_path_prefixes_are_preserved(first: str, second: str) -> None:
    """A folder's range of stored paths contains what lies below it and nothing else."""
    below = to_stored(f"{first}/{second}")
    assert to_stored(first + "/") <= below < to_stored(first + "0")
    other = to_stored(second)
    inside = to_stored(first + "/") <= other < to_stored(first + "0")
    assert inside == second.startswith(first + "/")


def test_milvus_refuses_lone_surrogates() -> None:
    """A lone surrogate is neither Unicode nor an escaped byte of a file name."""
    with pytest.raises(InputError, match="cannot be stored"):
        to_stored("a\ud800")


def test_a_filter_cannot_leave_its_literal() -> None:
    """A folder that looks like an expression is compared as a name."""
    assert condition(Filter(folder='x" or item > 0 or path == "')) == (
        'path >= "x%22 or item > 0 or path == %22/" and path < "x%22 or item > 0 or path == %220"'
    )


def test_milvus_filters_with_infinite_and_nan_bounds() -> None:
    """Infinite bounds become the largest float, NaN compares with nothing; an empty filter is no condition."""
    assert condition(Filter(after=float("-inf"))) == "taken >= -1.7976931348623157e+308"
    assert condition(Filter(before=float("nan"))) == "item < 0"
    assert condition(Filter()) is condition(None) is condition(Filter(folder="/")) is None
    assert condition(Filter(within=Box(-1, 170, 1, -170))) == (
        "latitude >= -1.0 and latitude <= 1.0 and (longitude >= 170.0 or longitude <= -170.0)"
    )
