"""Run a function over an iterable in worker threads, some calls ahead of the consumer."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

Item = TypeVar("Item")
Result = TypeVar("Result")


def available_cores() -> int:
    """Return how many cores this process may use, which ``taskset`` or the cpuset of a container may limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def prefetch(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    workers: int,
    window: int,
    weight: Callable[[Item], int] | None = None,
    repeat: Callable[[Result], bool] | None = None,
    name: str = "vse-read",
) -> Generator[tuple[Item, Result], None, None]:
    """Yield each item with ``function(item)``, in order, while worker threads compute the following ones.

    An exception in ``function`` is raised in place of its result. Closing the generator cancels calls that have not
    started and waits for the others; use :func:`contextlib.closing` if the caller may stop early.

    Args:
        function: Called in a worker thread.
        items: Read in the caller's thread, no further ahead than ``window`` allows.
        workers: Number of threads.
        window: Start new calls while the total weight of calls started but not yet yielded is below this. If every
            worker is busy, a result that is ready is yielded before the window is filled, so slow ``items`` do not
            delay it.
        weight: Weight of a call; 1 by default.
        repeat: Whether to call ``function`` again for the same item after this result, before the next item: for items
            that have several results, such as an iterator with ``function=next``.
        name: Prefix of the thread names.

    Yields:
        Pairs of item and result.

    >>> list(prefetch(len, ["a", "bb"], workers=2, window=4))
    [('a', 1), ('bb', 2)]
    """
    results = prefetch_patiently(
        function, items, workers=workers, window=window, weight=weight, repeat=repeat, name=name, patience=None
    )
    with closing(results):
        yield from (pair for pair in results if pair is not None)


def prefetch_patiently(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    workers: int,
    window: int,
    patience: float | None,
    weight: Callable[[Item], int] | None = None,
    repeat: Callable[[Result], bool] | None = None,
    name: str = "vse-read",
) -> Generator[tuple[Item, Result] | None, None, None]:
    """Like :func:`prefetch`, but a slow item does not hold back the others.

    An item that is not ready within ``patience`` seconds of its turn is overtaken, and yielded when it is ready. If
    nothing is ready for so long, None is yielded, so that the caller can do something else.
    """
    from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait  # imports logging

    remaining = iter(items)
    started: deque[tuple[Item, Future[Result]]] = deque()
    late: deque[tuple[Item, Future[Result]]] = deque()
    total, exhausted = 0, False
    pool = ThreadPoolExecutor(workers, thread_name_prefix=name)
    try:
        while True:
            while not exhausted and total < window:
                try:
                    item = next(remaining)
                except StopIteration:
                    exhausted = True
                    break
                started.append((item, pool.submit(function, item)))
                total += 1 if weight is None else weight(item)
                if len(started) > workers and started[0][1].done():
                    break
            if not started and not late:
                return
            queue = late if any(future.done() for _, future in late) else started
            if queue is late:
                while not late[0][1].done():
                    late.rotate(-1)
            elif patience is not None and not (started and started[0][1].done()):
                awaited = [future for _, future in (*late, *list(started)[:1])]
                if not wait(awaited, patience, FIRST_COMPLETED).done:
                    if any(future.done() for _, future in started):
                        late.append(started.popleft())
                    else:
                        yield None
                continue
            item, future = queue.popleft()
            result = future.result()
            if repeat is not None and repeat(result):
                queue.appendleft((item, pool.submit(function, item)))
            else:
                total -= 1 if weight is None else weight(item)
            yield item, result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
