"""The package as a whole: its names, and what importing a part of it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import vse.inputs


@pytest.mark.parametrize("name", vse.inputs.__all__)
def test_inputs_face_exports_every_name(name):
    """The one that is defined under it, and not a module that happens to be called so."""
    found = getattr(vse.inputs, name)
    assert found is not None
    assert not hasattr(found, "__path__")
    assert not hasattr(found, "__file__")


def test_inputs_face_raises_attribute_error_for_unknown_name():
    """Is an AttributeError, as of any module."""
    with pytest.raises(AttributeError, match="no attribute 'Vocabulry'"):
        _ = vse.inputs.Vocabulry


def test_text_inputs_load_no_image_library():
    """Reading a tokenizer loads neither Pillow nor pydantic: both take longer than the rest of a search."""
    code = "import sys, vse.inputs.tokenizer; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "tokenizers" in loaded
    assert not {"PIL", "pydantic", "pillow_heif", "torch"} & set(loaded)
