"""Files that may be opened."""

from __future__ import annotations

import stat
from pathlib import Path

from vse.inputs.problem import BadMediaError, os_reason


def regular_size(path: str | Path) -> int:
    """Bytes of a regular file. Opening a pipe would wait for its writer, and a device never ends."""
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        raise BadMediaError(str(path), "no such file") from None
    except OSError as error:
        raise BadMediaError(str(path), os_reason(error)) from error
    except ValueError:
        raise BadMediaError(str(path), "no such file: its name holds a null character") from None
    if not stat.S_ISREG(status.st_mode):
        raise BadMediaError(str(path), "not a regular file")
    return status.st_size
