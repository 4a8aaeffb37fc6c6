"""Files read by threads while the caller computes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from vse.encoding import READERS
from vse.index.indexing.parts import Part
from vse.index.scan import Problem

File = TypeVar("File")
Result = TypeVar("Result")
Parts = Iterator[Part | Problem]
DECODERS = min(16, os.cpu_count() or 1)
"""Photographs of a camera take longer to decode than small models to encode, so that all cores are needed for it."""


def results_ahead(
    files: Iterable[File], read: Callable[[File], Result], ahead: int = 4 * READERS
) -> Generator[tuple[File, Result], None, None]:
    """Each file with what ``read`` gives for it, in order; at most ``ahead`` files are begun and not handed out.

    Closing it waits for the files that are being read, and not for those that were to follow.
    """
    remaining = iter(files)
    under_way: deque[tuple[File, Future[Result]]] = deque()
    pool = ThreadPoolExecutor(READERS, thread_name_prefix="vse-read")
    try:
        while True:
            while len(under_way) < ahead and (file := next(remaining, None)) is not None:
                under_way.append((file, pool.submit(read, file)))
            if not under_way:
                return
            file, future = under_way.popleft()
            yield file, future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def parts_ahead(
    files: Iterable[File], read: Callable[[File], Parts], weight: Callable[[File], int], ahead: int
) -> Generator[tuple[File, Part | Problem], None, None]:
    """The parts of all files with the file they belong to, in the order of the files and of their parts.

    ``weight`` is the number of frames in a part of a file at most. New files are begun while those under way weigh less
    than ``ahead``, and of each file one part is read ahead: this bounds the frames in memory, however long a clip is.
    """
    remaining = iter(files)
    under_way: deque[tuple[File, Parts, Future[Part | Problem | None]]] = deque()
    weighing = 0
    pool = ThreadPoolExecutor(DECODERS, thread_name_prefix="vse-read")
    try:
        while True:
            while weighing < ahead and (file := next(remaining, None)) is not None:
                parts = read(file)
                under_way.append((file, parts, pool.submit(next, parts, None)))
                weighing += weight(file)
            if not under_way:
                return
            file, parts, future = under_way.popleft()
            part = future.result()
            if isinstance(part, Part) and not part.last:
                under_way.appendleft((file, parts, pool.submit(next, parts, None)))
            else:
                weighing -= weight(file)
            if part is not None:
                yield file, part
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
