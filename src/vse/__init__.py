"""Visual semantic embedding with learned pooling: a library, a command and a search service.

Importing this package costs nothing: the parts load what they need when they are imported themselves
(``from vse.pooling import GPO`` needs torch, ``import vse`` does not).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vse._version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from vse.hgr.model import HGRModel
    from vse.models.onnx import OnnxModel
    from vse.models.vse_model import VSEModel

__all__ = ["__version__", "load"]


def load(
    source: str | Path, *, device: str | None = None, threads: int | None = None
) -> VSEModel | OnnxModel | HGRModel:
    """The model in a local folder or of a hub id; see :func:`vse.models.sources.load`."""
    from vse.models.sources import load as load_from

    return load_from(source, device=device, threads=threads)
