"""Standard streams that misbehave: readers that leave, disks that are full, messages of several lines."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def complain(text: str) -> None:
    """Write ``text`` to stderr as exactly one line, whatever a file name or a library put into it."""
    line = " ".join(part.strip() for part in text.splitlines() if part.strip())
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _detach(sys.stderr)


def reader_left(stream: TextIO) -> bool:
    """Whether whoever read ``stream`` has closed it.

    A second write would not tell: after a failed one the buffer may be empty.
    """
    if sys.platform == "win32":
        return True
    from select import POLLERR, POLLHUP, POLLOUT, poll

    poller = poll()
    try:
        poller.register(stream.fileno(), POLLOUT)
    except OSError:  # a stream without a file behind it
        return False
    return any(event & (POLLERR | POLLHUP) for _, event in poller.poll(0))


def abandon_if_unwritable(stream: TextIO) -> None:
    """Send nothing more to a closed pipe or a full disk."""
    try:
        stream.flush()
    except OSError:
        _detach(stream)


def _detach(stream: TextIO) -> None:
    """Point ``stream`` at nothing, so that the interpreter's last flush does not complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
