"""Compare the files of an export with the checksums that were written with them.

``checksums.json`` holds the SHA-256 of the towers, their weights and the tokenizer. A tower is verified when it is
loaded, once for each state of its files: size, modification time and inode of verified files are recorded in
``verified_files.json`` of :func:`~vse._util.state.state_folder`, and looked at again after a week, since a disk that
loses bits does not change the modification time. An export of an earlier version has no checksums and is not verified.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from vse._util.atomic import write_json
from vse._util.schema import read_json
from vse._util.state import read_record, state_folder
from vse.errors import InputError

FILE = "checksums.json"
RECORD = "verified_files.json"
AGAIN_AFTER = 7 * 24 * 3600.0
"""Seconds after which a file that did not change is verified again."""
MAX_RECORDED = 1000


def write_checksums(folder: Path, names: Iterable[str]) -> None:
    """Write the SHA-256 of these files of ``folder`` beside them; missing ones are skipped."""
    found = {name: _sha256(folder / name) for name in sorted(names) if (folder / name).is_file()}
    write_json(folder / FILE, {"format": 1, "sha256": found})


def verify_files(folder: Path, start: str) -> None:
    """Verify the files of an export whose names begin with ``start``.

    Raises:
        InputError: A file is missing or differs from its checksum, or the checksums are malformed.
    """
    if not (folder / FILE).is_file():
        return
    expected = read_json(folder / FILE).get("sha256")
    if not isinstance(expected, dict):
        raise InputError(f"{folder / FILE}: expected the SHA-256 of files by name; export the model again")
    wanted = {name: value for name, value in expected.items() if name.startswith(start)}
    record = read_record(state_folder() / RECORD)
    verified: dict[str, Any] = {}
    for name, value in wanted.items():
        path = (folder / name).resolve()
        if Path(name).name != name:
            raise InputError(f"{folder / FILE}: names {name!r}, expected a file beside it")
        try:
            state = _state(path)
            if not _is_known(record.get(str(path)), state, value):
                if _sha256(path) != value:
                    raise InputError(
                        f"{folder / name} is damaged, its SHA-256 is not that of {FILE}: copy or export the model again"
                    )
                verified[str(path)] = [*state, value, time.time()]
        except OSError as error:
            raise InputError(f"{folder / name} cannot be read ({error.strerror}); export the model again") from None
    if verified:
        _remember(verified)


def _is_known(entry: Any, state: list[int], value: object) -> bool:
    if not isinstance(entry, list) or len(entry) != len(state) + 2 or entry[:-1] != [*state, value]:
        return False
    return isinstance(entry[-1], float) and 0 <= time.time() - entry[-1] < AGAIN_AFTER


def _remember(verified: dict[str, Any]) -> None:
    """Record verified files; where that is not possible, they are verified again next time."""
    place = state_folder() / RECORD
    known = {path: entry for path, entry in read_record(place).items() if Path(path).exists()}
    newest = list((known | verified).items())[-MAX_RECORDED:]
    with suppress(OSError):
        write_json(place, dict(newest))


def _state(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _sha256(path: Path) -> str:
    import hashlib  # only the first load of a file needs it

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
