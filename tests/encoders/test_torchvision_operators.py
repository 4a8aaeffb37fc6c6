"""A torchvision that does not fit torch does not keep the backbones from loading."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vse.encoders.third_party import repair_torchvision

CODE = """
from vse.encoders.third_party import repair_torchvision
first = repair_torchvision()
assert repair_torchvision() == first
repair_torchvision.cache_clear()
assert repair_torchvision() is False, "nothing is left to mend"
import timm
import torchvision.transforms
print("made", timm.create_model("resnet18").num_features)
"""


def test_timm_imports_after_torchvision_repair():
    """In a fresh process: mend, mend again, import timm, make a model."""
    pytest.importorskip("torchvision", exc_type=Exception)
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "made 512\n"


def test_torchvision_repair_is_harmless_when_not_needed(monkeypatch):
    """Nothing is declared when the library is not there."""
    repair_torchvision.cache_clear()
    monkeypatch.setattr("vse.encoders.third_party.find_spec", lambda name: None)
    try:
        assert repair_torchvision() is False
    finally:
        repair_torchvision.cache_clear()


def test_torchvision_repair_raises_other_errors(monkeypatch):
    """Only the missing operator is mended; whatever else keeps torchvision from loading is reported."""

    def broken(name: str) -> None:
        raise RuntimeError("no such device")

    repair_torchvision.cache_clear()
    monkeypatch.setattr("vse.encoders.third_party.import_module", broken)
    try:
        with pytest.raises(RuntimeError, match="no such device"):
            repair_torchvision()
    finally:
        repair_torchvision.cache_clear()
