"""Configuration is read strictly: what is wrong names itself, its place and the closest valid key."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, PositiveInt, ValidationError, field_validator, model_validator

from vse._util.strict import Strict, parse, read_json
from vse.errors import InputError


class Apple(Strict):
    kind: Literal["apple"] = "apple"
    colour: str = "red"


class Pear(Strict):
    kind: Literal["pear"] = "pear"
    softness: PositiveInt


class Basket(Strict):
    name: str
    fruit: Annotated[Apple | Pear, Field(discriminator="kind")]
    others: tuple[Apple, ...] = ()
    label: Apple | None = None
    notes: dict[str, Any] = Field(default_factory=dict)


GOOD = {"name": "b", "fruit": {"kind": "pear", "softness": 3}}


def message(**changes: object) -> str:
    with pytest.raises(InputError) as caught:
        parse(Basket, GOOD | changes, "shop.json")
    text = str(caught.value)
    assert text.startswith("shop.json: ")
    assert "\n" not in text
    return text


def test_strict_values_are_frozen():
    """Nested objects are read, defaults filled in, and the result cannot be changed."""
    basket = parse(Basket, GOOD, "shop.json")
    assert basket == Basket(name="b", fruit=Pear(softness=3))
    assert Basket.model_validate(basket.model_dump(mode="json")) == basket
    with pytest.raises(ValidationError):
        basket.name = "c"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nmae": 1}, "unknown key 'nmae'"),
        ({"nmae": 1}, "(did you mean 'name'?)"),
        ({"fruit": {"kind": "pear", "softness": 3, "sofness": 2}}, "(did you mean 'softness'?)"),
        ({"fruit": {"kind": "apple", "color": "red"}}, "(did you mean 'colour'?)"),
        ({"label": {"color": "red"}}, "(did you mean 'colour'?)"),
        ({"fruit": {"kind": "pear"}}, "is missing"),
        ({"fruit": {"kind": "pear", "softness": 0}}, "is 0: "),
        ({"fruit": {"kind": "plum"}}, "plum"),
        ({"fruit": {}}, "kind"),
        ({"fruit": 3}, "3"),
        ({"name": None}, "'name' is None"),
        ({"others": [{"colour": "green"}, {"colour": 3}]}, "others.1.colour"),
        ({"fruit": {"kind": "pear", "softness": 0, "x": 1}, "y": 2}, "more)"),
    ],
)
def test_strict_names_nested_keys_and_wrong_types(changes, said):
    """Unknown keys at any depth, missing ones, wrong types and values, the wrong member of a union."""
    assert said in message(**changes)


def test_the_closest_key_is_sought_among_those_of_the_place():
    """A key that is valid elsewhere is not suggested where it is not."""
    text = message(fruit={"kind": "pear", "softness": 3, "colour": "red"})
    assert "'softness'" in text
    assert "'others'" not in text


def test_an_unknown_key_in_a_list_is_named():
    """Also inside a sequence of objects."""
    assert "color" in message(others=[{"color": "red"}])


class Crate(Strict):
    weight: int = 1
    most: int = 9

    @field_validator("weight")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("a crate has an even weight")
        return value

    @model_validator(mode="after")
    def _light(self) -> Crate:
        if self.weight > self.most:
            raise ValueError(f"weight is {self.weight}, at most {self.most}")
        return self


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"weight": 3}, "c.json: 'weight' is 3: a crate has an even weight"),
        ({"weight": 10}, "c.json: weight is 10, at most 9"),
    ],
)
def test_strict_shows_only_our_own_messages(values, said):
    """The message of a ``ValueError``, of a field or of the whole, without words of the library around it."""
    with pytest.raises(InputError) as caught:
        parse(Crate, values, "c.json")
    assert str(caught.value) == said


@given(st.dictionaries(st.text(max_size=8), st.recursive(st.none() | st.integers() | st.text(), st.lists), max_size=4))
def test_strict_accepts_or_refuses_any_json_in_one_line(mapping):
    """Whatever JSON holds: a value, or an error of one line."""
    message = "here: fine"
    try:
        parse(Basket, mapping, "here")
    except InputError as error:
        message = str(error)
    assert message.startswith("here: ")
    assert len(message.splitlines()) == 1


class TestReadJson:
    """Files that are not what they should be."""

    def test_an_object_is_read(self, tmp_path):
        """UTF-8, as it is."""
        path = tmp_path / "a.json"
        path.write_text(json.dumps({"ü": [1, None]}, ensure_ascii=False), encoding="utf-8")
        assert read_json(path) == {"ü": [1, None]}

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "not JSON"),
            (b"{", "not JSON"),
            (b'{"a": 1,}', "not JSON"),
            (b"[1]", "expected a JSON object, got list"),
            (b"null", "expected a JSON object, got NoneType"),
            (b"\xff\xfe{}", "not UTF-8"),
            (b"\xef\xbb\xbf{}", "not JSON"),
            (b'{"a": ' + b"[" * 100_000, "not JSON"),
            (b'{"a": ' + b"1" * 5_000 + b"}", "not JSON"),
        ],
    )
    def test_strict_refuses_invalid_json_in_one_line(self, content, said, tmp_path):
        """Syntax, encoding, another type, and what only hostile files hold."""
        path = tmp_path / "a.json"
        path.write_bytes(content)
        with pytest.raises(InputError) as caught:
            read_json(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_a_missing_file_and_a_folder_are_told(self, tmp_path):
        """Neither is an error of Python's own."""
        with pytest.raises(InputError, match="no such file"):
            read_json(tmp_path / "none.json")
        with pytest.raises(InputError):
            read_json(tmp_path)


def test_construction_in_python_fails_with_one_line():
    """A typing mistake in a keyword is named with the closest key, as in a file, and nested ones with their place."""
    with pytest.raises(InputError) as caught:
        Basket(nmae="b", fruit=Apple())
    assert str(caught.value).startswith("Basket: unknown key 'nmae'")
    assert "(did you mean 'name'?)" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"^Basket: 'others.0.colour' is 3"):
        Basket(name="b", fruit=Apple(), others=[{"colour": 3}])
