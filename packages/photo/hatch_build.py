"""Add the files of the models to a distribution that is built inside the repository.

The repository keeps them in ``src/vse/models/shipped``, where a checkout finds them. A source distribution contains
them inside the package, so that a wheel built from it needs nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODELS = ("photo", "photo-v1")


class ModelFiles(BuildHookInterface):
    """Include the weights in wheels and source distributions; an editable install reads them in place."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        shipped = Path(self.root).parents[1] / "src" / "vse" / "models" / "shipped"
        package = "vse_infinity_photo/models" if self.target_name == "wheel" else "src/vse_infinity_photo/models"
        for name in MODELS:
            if (shipped / name / "config.json").is_file():
                build_data["force_include"][str(shipped / name)] = f"{package}/{name}"
            elif not (Path(self.root) / "src" / "vse_infinity_photo" / "models" / name / "config.json").is_file():
                raise FileNotFoundError(f"{shipped / name}: build from the repository or from a source distribution")
