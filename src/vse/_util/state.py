"""Where this package keeps what it remembers on a machine: outside of models and collections, which may be foreign."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def state_folder() -> Path:
    """Return ``$VSE_HOME`` or, without it, ``$XDG_STATE_HOME/vse`` (``~/.local/state/vse``); it need not exist."""
    home = os.environ.get("VSE_HOME")
    if home:
        return Path(home).expanduser()
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "vse"


def read_record(path: Path) -> dict[str, Any]:
    """Return a JSON object that was recorded; empty if there is none or it is damaged."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
