"""Plain JSON files are read strictly: what is wrong names itself and its place, and pydantic is not needed for it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse._util.schema import NonNegative, Positive, parse_plain
from vse.errors import InputError


@dataclass(frozen=True)
class Shelf:
    name: str
    books: Positive
    free: NonNegative | None
    size: tuple[float, float]
    kind: Literal["oak", "pine"] = "oak"
    format: Literal[1] = 1
    open: bool = True
    notes: dict[str, float] | None = None
    other: Any = None


GOOD = {"name": "a", "books": 3, "free": None, "size": [1, 2.5]}


def message(**changes: object) -> str:
    with pytest.raises(InputError) as caught:
        parse_plain(Shelf, GOOD | changes, "shelf.json")
    text = str(caught.value)
    assert text.startswith("shelf.json: ")
    assert "\n" not in text
    return text


def test_schema_converts_lists_and_fills_defaults():
    """Lists become tuples, whole numbers floats where these are asked for, and defaults are filled in."""
    shelf = parse_plain(Shelf, GOOD, "shelf.json")
    assert shelf == Shelf("a", 3, None, (1.0, 2.5))
    assert all(type(side) is float for side in shelf.size)
    full = GOOD | {"free": 0, "kind": "pine", "open": False, "notes": {"x": 1}, "other": [1, "a"]}
    read = parse_plain(Shelf, full, "shelf.json")
    assert (read.free, read.kind, read.open, read.notes, read.other) == (0, "pine", False, {"x": 1.0}, [1, "a"])
    assert parse_plain(Shelf, asdict(read), "again") == read


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nmae": 1}, "unknown key 'nmae'"),
        ({"nmae": 1}, "(did you mean 'name'?)"),
        ({"name": None}, "'name' is None: expected a text"),
        ({"books": 0}, "'books' is 0: expected a whole number from 1 up"),
        ({"books": True}, "'books' is True: expected a whole number"),
        ({"books": 3.0}, "'books' is 3.0: expected a whole number"),
        ({"books": "3"}, "'books' is '3': expected a whole number"),
        ({"free": -1}, "expected a whole number from 0 up or null"),
        ({"size": [1]}, "expected 2 values"),
        ({"size": [1, "2"]}, "expected a number"),
        ({"size": [1, float("nan")]}, "expected a number"),
        ({"size": [1, True]}, "expected a number"),
        ({"kind": "ash"}, "expected 'oak' or 'pine'"),
        ({"format": 2}, "'format' is 2: expected 1"),
        ({"format": True}, "'format' is True: expected 1"),
        ({"open": 1}, "expected true or false"),
        ({"notes": {"x": "y"}}, "'notes'"),
        ({"notes": []}, "an object"),
    ],
)
def test_schema_names_unknown_keys_and_wrong_types(changes, said):
    """Unknown keys, wrong types and values: nothing is converted silently."""
    assert said in message(**changes)


@pytest.mark.parametrize("key", list(GOOD))
def test_schema_names_missing_fields(key):
    """Every field without a default."""
    with pytest.raises(InputError, match=f"^shelf.json: '{key}' is missing$"):
        parse_plain(Shelf, {name: value for name, value in GOOD.items() if name != key}, "shelf.json")


@given(
    st.dictionaries(st.sampled_from([*GOOD, "kind", "x"]), st.none() | st.integers() | st.text() | st.lists(st.none()))
)
def test_schema_accepts_or_refuses_any_json_in_one_line(mapping):
    """Whatever JSON holds."""
    message = "here: fine"
    try:
        parse_plain(Shelf, GOOD | mapping, "here")
    except InputError as error:
        message = str(error)
    assert message.startswith("here: ")
    assert len(message.splitlines()) == 1


def test_pydantic_stays_where_it_is():
    """Loading an export's configuration and its tokenizer imports no pydantic."""
    code = "import sys, vse.models.sources, vse.models.onnx, vse.inputs.tokenizer; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "vse.models.onnx" in loaded
    assert not {"pydantic", "PIL", "torch", "onnxruntime"} & set(loaded)
