"""What the tests of recipes share: how they are written, looked into and refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from vse.errors import InputError

Write = Callable[..., Path]
GRID_TEXT = '[model.image]\nkind = "grid"\nbackbone = "efficientnet-lite0"\n'
BERT_TEXT = '[model.text]\nkind = "transformer"\npretrained = "bert"\n'


def at(value: Any, key: str) -> Any:
    return reduce(getattr, key.split("."), value)


def refusal(call: Callable[[], object]) -> str:
    """The message of the error that ``call`` raises, which must be one line."""
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def writer(folder: Path) -> Write:
    """A function that writes a recipe's text to a file of the given name in ``folder``."""

    def to_file(content: str, name: str = "mine") -> Path:
        path = folder / f"{name}.toml"
        path.write_text(content, encoding="utf-8")
        return path

    return to_file
