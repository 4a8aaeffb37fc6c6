"""What is typed into the search box: words, exact words, exclusions and filters."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse.errors import InputError
from vse.index.filters import Filter
from vse.index.typed import FILTERS, Typed, parse_typed
from vse.index.words import fold

CASES = json.loads((Path(__file__).parent / "typed_cases.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["typed"])
def test_typed_text_is_read_as_the_shared_cases_say(case: dict[str, Any]) -> None:
    """The page is tested with the same file."""
    typed = parse_typed(case["typed"])
    assert typed.text == case["text"]
    assert typed.words == tuple(case.get("words", ()))
    assert typed.exclude == tuple(case.get("exclude", ()))
    if "problem" in case:
        with pytest.raises(InputError) as caught:
            _ = typed.where
        assert str(caught.value).startswith(case["problem"])
        assert "\n" not in str(caught.value)
        return
    given = {name: value for name in FILTERS if (value := getattr(typed, name)) is not None}
    if "type" in given:
        given["type"] = typed.where.kind
    assert given == case.get("filters", {})


def test_typed_filters_become_a_filter_and_a_query() -> None:
    typed = parse_typed(
        'dog "red hat" -cat folder:a/b camera:canon place:quito name:img* after:2019 before:2020 TYPE:Video'
    )
    start, end = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (2019, 2020))
    assert typed.where == Filter(
        folder="a/b",
        kind="video",
        after=start,
        before=end,
        name="img*",
        camera="canon",
        place="quito",
        words=("red hat",),
    )
    assert (typed.query.texts, typed.query.exclude) == (("dog red hat",), ("cat",))
    with pytest.raises(InputError, match="expected a text"):
        _ = parse_typed("camera:canon").query


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("type:audio", "type:audio: expected type:image or type:video"),
        ("after:2020-13", "after '2020-13': expected a date"),
        ("after:2021 before:2020", "nothing lies between"),
        ("place:!!!", "place '!!!' has 0 words"),
        ("folder:../x", "leads out"),
        (f'"{"word " * 33}"', "33 words"),
        ("name:", "name: has no value"),
    ],
)
def test_a_bad_value_is_named_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        _ = parse_typed(text).where
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


plain = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
values = st.lists(plain, min_size=1, max_size=3).map(" ".join)


@given(
    parts=st.lists(
        st.tuples(st.just("text"), plain)
        | st.tuples(st.just("words"), values)
        | st.tuples(st.just("exclude"), values)
        | st.tuples(st.sampled_from(FILTERS), values),
        max_size=8,
    )
)
def test_what_was_written_is_read_again(parts: list[tuple[str, str]]) -> None:
    """Parts in any order, with quotes around those with blanks."""
    written = {"text": "{}", "words": '"{}"', "exclude": '-"{}"', **{name: f'{name}:"{{}}"' for name in FILTERS}}
    typed = parse_typed(" ".join(written[kind].format(value) for kind, value in parts))
    assert typed.text == " ".join(value for kind, value in parts if kind in ("text", "words"))
    assert typed.words == tuple(value for kind, value in parts if kind == "words" and fold(value))
    assert typed.exclude == tuple(value for kind, value in parts if kind == "exclude")
    for name in FILTERS:
        given_values = [value for kind, value in parts if kind == name]
        assert getattr(typed, name) == (given_values[-1] if given_values else None)


@given(st.text())
def test_any_text_can_be_typed(text: str) -> None:
    """Nothing raises before a filter is used; the text has no word that was not typed."""
    typed = parse_typed(text)
    assert isinstance(typed, Typed)
    assert set(fold(typed.text)) <= {word for token in [text, *text.replace('"', " ").split()] for word in fold(token)}
    if not set(text) & set('":-“”„‟«»＂'):
        assert typed == Typed(text)
