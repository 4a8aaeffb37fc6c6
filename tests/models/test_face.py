"""The faces of the packages: every exported name exists, and is imported on first access."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest
from tests.support_models import build

from vse.hgr.model import HGRModel
from vse.models import HGRConfig, PairScorer


@pytest.mark.parametrize("package", ["vse.models", "vse.encoders", "vse.convert"])
def test_package_face_exports_every_name(package):
    """Each name of ``__all__`` resolves; another one is an AttributeError."""
    face = import_module(package)
    assert face.__all__ == sorted(face.__all__)
    for name in face.__all__:
        assert getattr(face, name) is not None
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'missing'"):
        face.missing  # noqa: B018


def test_package_faces_load_nothing_heavy():
    """Importing a face loads neither torch nor pydantic nor an image library."""
    code = (
        "import sys, vse.models, vse.inputs, vse.encoders, vse.convert;"
        "print(sorted({'torch', 'pydantic', 'PIL', 'numpy', 'onnxruntime'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_only_hgr_is_a_pair_scorer():
    """HGR scores pairs; a model with embeddings does not."""
    assert isinstance(HGRModel(HGRConfig(vocabulary_size=5, embed_size=4, feature_size=3, word_size=2)), PairScorer)
    assert not isinstance(build(), PairScorer)
