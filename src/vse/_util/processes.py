"""Worker processes that do not outlive the process which started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time


def end_with_parent(grace: float = 0.0) -> None:
    """From now on this worker ends when its parent does, even if that was killed and could not say so.

    It is sent SIGTERM, and ``grace`` seconds later it is ended if it still runs: nobody waits for its result any more.
    """
    threading.Thread(target=_watch, args=(grace,), daemon=True).start()


def is_orphan() -> bool:
    """Whether the process that started this one is gone."""
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()


def _watch(grace: float) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
        os._exit(1)
