"""An export that looks like one of another library's model: no evidence, no coefficients. No torch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

FOREIGN = {"library": "transformers", "model": "clip"}


def foreign_copy(export: Path, folder: Path, **changes: Any) -> Path:
    """Copy an export to ``folder`` with a foreign source, without evidence, coefficients and curves.

    The towers stay, so both have the same embeddings and the same fingerprint. ``changes`` are made to ``config.json``.
    """
    shutil.copytree(export, folder)
    for name in ("confidence.json", "pooling_curves.json"):
        (folder / name).unlink(missing_ok=True)
    config = json.loads((folder / "config.json").read_text())
    config |= {"explains": False, "source": {"foreign": FOREIGN}} | changes
    (folder / "config.json").write_text(json.dumps(config))
    return folder
