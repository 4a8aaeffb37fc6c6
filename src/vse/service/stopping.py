"""How a service ends: SIGTERM is an order that is carried out, so the process succeeds; Ctrl-C interrupts it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _ToldToStopError(BaseException):
    """SIGTERM has arrived. No Exception, which a library may catch."""


@contextmanager
def until_told_to_stop() -> Iterator[None]:
    """End what is inside on SIGTERM, and go on behind it. In other threads than the first nothing is done.

    The server has handlers of its own while it answers. When it has finished what was under way it raises the signal
    again, for whoever was responsible before: by default the process would then die of it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise _ToldToStopError

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except _ToldToStopError:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def leaving_at_once(stuck: Callable[[], bool]) -> Iterator[None]:
    """End the process behind what is inside if something is ``stuck`` in a thread: Python would wait for it.

    Nothing is lost with it, since a service only reads.
    """
    code = 0
    try:
        yield
    except KeyboardInterrupt:
        code = 130
        raise
    finally:
        if stuck():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
