"""What the tests of refused checkpoints share."""

from __future__ import annotations

import pytest
from tests.convert.official_style import bert_state, bigru_state, grid_state, region_state, resnet_state, write

from vse.convert import load_official
from vse.errors import InputError


def refused(path, *said: str) -> None:
    """Loading fails with one line that begins with the file and holds each of ``said``."""
    with pytest.raises(InputError) as caught:
        load_official(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    for part in said:
        assert part in message


IMAGES = {"region": region_state, "grid": lambda: grid_state(resnet_state())}
TEXTS = {"bigru": bigru_state, "bert": bert_state}


def checkpoint(tmp_path, family: str, change):
    """The path of a checkpoint in which ``change`` was made to the half of that family."""
    image, text = region_state(), bigru_state()
    if family in TEXTS:
        text = TEXTS[family]()
        change(text)
    else:
        image = IMAGES[family]()
        change(image)
    if family == "bert":
        pytest.importorskip("transformers")
    return write(tmp_path / "a.pth", image, text)
