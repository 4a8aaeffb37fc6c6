"""Tasks for worker processes that misbehave."""

from __future__ import annotations

import os
import time

from vse._util.worker_process import Reply, reserve


def count(arguments, content):
    """Reply with numbers."""
    for number in range(1, arguments["replies"] + 1):
        yield Reply({"number": number}, final=number == arguments["replies"])


def sleep(arguments, content):
    """Take long."""
    time.sleep(arguments["seconds"])
    yield Reply({})


def crash(arguments, content):
    """Die as a decoder with a bug does."""
    os.abort()
    yield Reply({})


def take(arguments, content):
    """Reserve memory and take other memory."""
    reserve(arguments["likely"], arguments["least"])
    time.sleep(arguments["seconds"])
    taken = bytearray(arguments["taken"])
    yield Reply({"taken": len(taken)})
