"""Add the files of the model to a distribution that is built inside the repository.

The repository keeps them in ``src/vse/models/shipped``, where a checkout finds them. A source distribution contains
them inside the package, so that a wheel built from it needs nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODEL = "photo"  # its previous version is only in the repository


class ModelFiles(BuildHookInterface):
    """Include the weights in wheels and source distributions; an editable install reads them in place."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        shipped = Path(self.root).parents[1] / "src" / "vse" / "models" / "shipped"
        package = "vse_infinity_photo/models" if self.target_name == "wheel" else "src/vse_infinity_photo/models"
        if (shipped / MODEL / "config.json").is_file():
            build_data["force_include"][str(shipped / MODEL)] = f"{package}/{MODEL}"
        elif not (Path(self.root) / "src" / "vse_infinity_photo" / "models" / MODEL / "config.json").is_file():
            raise FileNotFoundError(f"{shipped / MODEL}: build from the repository or from a source distribution")
