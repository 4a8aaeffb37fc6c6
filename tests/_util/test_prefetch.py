"""Prefetching: order, bounds, errors and closing."""

import threading
import time
from contextlib import closing
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse._util.prefetch import prefetch

WORKERS, WINDOWS = st.integers(1, 4), st.integers(1, 9)


@given(st.lists(st.integers(0, 9) | st.none(), max_size=30), WORKERS, WINDOWS)
def test_prefetch_yields_items_with_results_in_order(items, workers, window):
    found = list(prefetch(lambda item: (item, "done"), items, workers=workers, window=window))
    assert found == [(item, (item, "done")) for item in items]


@given(st.lists(st.integers(1, 5), max_size=20), WORKERS, WINDOWS)
def test_prefetch_repeats_an_item_until_it_is_exhausted(lengths, workers, window):
    streams = [iter(range(length, 0, -1)) for length in lengths]
    found = prefetch(next, streams, workers=workers, window=window, repeat=lambda left: left > 1)
    assert [left for _, left in found] == [left for length in lengths for left in range(length, 0, -1)]


@given(st.integers(0, 30), WORKERS, WINDOWS, st.integers(1, 3))
def test_prefetch_reads_no_further_than_its_window(count, workers, window, weight):
    taken = 0

    def items():
        for number in range(count):
            assert (number - taken) * weight < window  # before this one was read
            yield number

    for _ in prefetch(str, items(), workers=workers, window=window, weight=lambda _: weight):
        taken += 1
    assert taken == count


@given(st.integers(0, 19), WORKERS, WINDOWS)
def test_prefetch_raises_in_place_of_the_result(bad, workers, window):
    def divide(number):
        return 1 // (number - bad)

    results = prefetch(divide, range(20), workers=workers, window=window)
    assert [number for number, _ in islice(results, bad)] == list(range(bad))
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_prefetch_computes_while_the_caller_works():
    second = threading.Event()

    def work(number):
        if number == 1:
            second.set()

    with closing(prefetch(work, range(2), workers=1, window=2)) as results:
        next(results)
        assert second.wait(10)


def test_prefetch_yields_a_ready_result_before_it_waits_for_items():
    first_done, read_fourth = threading.Event(), threading.Event()

    def items():
        yield 0
        yield 1
        first_done.wait(10)
        time.sleep(0.05)  # the future is done a moment after its function
        yield 2
        read_fourth.set()
        yield 3

    def work(number):
        if number == 0:
            first_done.set()

    with closing(prefetch(work, items(), workers=1, window=9)) as results:
        assert next(results)[0] == 0
        assert not read_fourth.is_set()


def test_prefetch_cancels_waiting_calls_when_closed():
    begun, go = [], threading.Event()

    def work(number):
        begun.append(number)
        if number:
            go.wait(10)

    results = prefetch(work, range(50), workers=1, window=40)
    next(results)
    threading.Timer(0.1, go.set).start()
    results.close()
    assert len(begun) <= 3
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("vse-read")]
