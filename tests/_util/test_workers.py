"""Worker processes: deadlines, crashes, memory, and the order in which tasks get what they need."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from vse._util import worker_process, workers
from vse._util.worker_process import FREE, memory_budget
from vse._util.workers import WorkerBusyError, WorkerPool, WorkerStoppedError, WorkerTimeoutError
from vse.errors import InputError, VSEError
from vse.inputs import decoding

COUNT, SLEEP, CRASH, TAKE = (f"tests.hostile.tasks:{name}" for name in ("count", "sleep", "crash", "take"))
LONG = 60.0
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")


@pytest.fixture
def pool():
    made = WorkerPool(1, memory=400_000_000)
    yield made
    made.close()


def test_worker_streams_replies_and_is_reused(pool):
    """A stream may be left between two replies for another task; the same process serves the next one."""
    replies = pool.stream(COUNT, {"replies": 3}, seconds=LONG)
    assert next(replies).values == {"number": 1}
    assert pool.call(COUNT, {"replies": 1}, seconds=LONG).values == {"number": 1}
    assert [reply.values["number"] for reply in replies] == [2, 3]
    before = {process._popen.pid for process in pool._all}
    pool.call(COUNT, {"replies": 1}, seconds=LONG)
    assert {process._popen.pid for process in pool._all} == before


def test_worker_is_killed_at_deadline(pool):
    """The place is free again, and the next task gets a new process."""
    with pytest.raises(WorkerTimeoutError, match=r"0\.3 s"):
        pool.call(SLEEP, {"seconds": 600}, seconds=0.3)
    assert not pool._all
    assert pool.call(COUNT, {"replies": 1}, seconds=LONG).final


def test_waiting_task_gives_up_at_deadline(pool):
    """A task that cannot begin in time is refused as busy, not as too slow."""
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(pool.call, SLEEP, {"seconds": 1}, seconds=LONG)
        while pool._slots._value:
            time.sleep(0.01)
        with pytest.raises(WorkerBusyError):
            pool.call(COUNT, {"replies": 1}, seconds=LONG, deadline=time.monotonic() + 0.05)
        assert running.result().final


def test_start_that_outlasts_a_task_is_not_killed_with_it(pool, monkeypatch):
    """Tasks are refused as busy while a worker starts, however slowly, and the same worker serves a later one."""
    monkeypatch.setattr(workers, "_BOOT", "import time; time.sleep(2.5)\n" + workers._BOOT)
    refused, reply, seen = 0, None, set()
    while reply is None:
        try:
            reply = pool.call(SLEEP, {"seconds": 0.2}, seconds=LONG, deadline=time.monotonic() + 2)
        except WorkerBusyError:
            refused += 1
        seen |= {process._popen.pid for process in pool._all}
        assert refused < 200
    assert refused
    assert reply.final
    assert len(seen) == 1


NEVER_READY = [("import time; time.sleep(60)", r"not ready after 0\.2 s"), ("1 / 0", "exit code 1")]


@pytest.mark.parametrize(("boot", "reason"), NEVER_READY)
def test_worker_that_never_starts_is_an_error(pool, monkeypatch, boot, reason):
    """A start has a timeout of its own, and an interpreter that cannot import the package is named."""
    if "sleep" in boot:
        monkeypatch.setattr(workers, "START_SECONDS", 0.2)
    monkeypatch.setattr(workers, "_BOOT", boot)
    with pytest.raises(VSEError, match=f"cannot be started.*{reason}"):
        pool.call(COUNT, {"replies": 1}, seconds=LONG)
    assert not pool._all


def test_crashed_worker_is_an_error_of_its_task(pool):
    """An abort in a decoder harms nobody else."""
    with pytest.raises(WorkerStoppedError, match="the decoder stopped"):
        pool.call(CRASH, {}, seconds=LONG)
    assert pool.call(COUNT, {"replies": 1}, seconds=LONG).final


def test_cancelled_group_ends_at_once(pool):
    """An interrupted caller does not wait for its tasks."""
    group: set = set()
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(lambda: list(pool.stream(SLEEP, {"seconds": 600}, seconds=LONG, group=group)))
        while not group:
            time.sleep(0.01)
        pool.cancel(group)
        with pytest.raises(WorkerStoppedError):
            running.result(30)


def test_large_tasks_wait_for_memory():
    """Two tasks that together exceed the budget run one after the other, small ones beside them."""
    pool = WorkerPool(3, memory=300_000_000)
    with ThreadPoolExecutor(3) as threads:
        large = {"likely": 200_000_000, "least": 0, "seconds": 0.4, "taken": 0}
        tasks = [threads.submit(pool.call, TAKE, large, seconds=LONG) for _ in range(2)]
        while not pool._budget._used:
            time.sleep(0.01)
        assert pool._budget._used == 200_000_000
        small = threads.submit(pool.call, COUNT, {"replies": 1}, seconds=LONG)
        assert small.result().final
        assert all(task.result().final for task in tasks)
    assert pool._budget._used == 0
    pool.close()


def test_tasks_that_wait_for_memory_hold_no_process():
    """A folder of large files takes no more processes than decode at the same time; cancelled tasks end at once."""
    pool, group = WorkerPool(2, memory=300_000_000), set()
    large = {"likely": 200_000_000, "least": 0, "seconds": 0.05, "taken": 0}
    with ThreadPoolExecutor(12) as threads:
        tasks = [threads.submit(pool.call, TAKE, large, seconds=LONG) for _ in range(12)]
        most = 0
        while not all(task.done() for task in tasks):
            most = max(most, len(pool._all))
            time.sleep(0.005)
        assert all(task.result().values == {"taken": 0} for task in tasks)
        assert most <= 2
        endless = {**large, "seconds": 600}
        tasks = [threads.submit(lambda: list(pool.stream(TAKE, endless, seconds=LONG, group=group))) for _ in range(6)]
        while len(pool._budget._queue) < 5:
            time.sleep(0.01)
        pool.cancel(group)
        for task in tasks:
            with pytest.raises(WorkerStoppedError):
                task.result(30)
    assert pool._budget._used == 0
    pool.close()


@linux
@pytest.mark.parametrize("reserved", [0, 200_000_000])
def test_worker_cannot_take_more_than_it_reserved(pool, reserved):
    """Memory beyond the reservation is refused in the worker; what was reserved is there."""
    task = {"likely": reserved, "least": 0, "seconds": 0}
    with pytest.raises(WorkerStoppedError, match="not enough memory"):
        pool.call(TAKE, {**task, "taken": reserved + 2 * FREE}, seconds=LONG)
    taken = reserved or FREE // 2
    assert pool.call(TAKE, {**task, "taken": taken}, seconds=LONG).values == {"taken": taken}


def test_need_beyond_the_budget_is_refused(pool):
    """What can never be had is refused, not waited for."""
    with pytest.raises(WorkerStoppedError, match=r"needs about 500 MB to decode, at most 400"):
        pool.call(TAKE, {"likely": 500_000_000, "least": 500_000_000, "seconds": 0, "taken": 0}, seconds=LONG)


def test_workers_end_with_a_killed_parent():
    """No process remains when the parent is killed while one is computing."""
    program = (
        "import threading, time\n"
        "from vse._util.workers import WorkerPool\n"
        "pool = WorkerPool(2, memory=1)\n"
        f"for _ in range(2): threading.Thread(target=pool.call, args=('{SLEEP}', {{'seconds': 600}}), "
        "kwargs={'seconds': 600}, daemon=True).start()\n"
        "while sum(process.started.is_set() for process in list(pool._all)) < 2: time.sleep(0.02)\n"
        "print(*(process._popen.pid for process in pool._all), flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.send_signal(signal.SIGKILL)
    assert len(pids) == 2
    until = time.monotonic() + 30
    while any(is_running(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(is_running(pid) for pid in pids)


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:  # noqa: PTH123
            return file.read().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("given", ["lots", "0", "-5", "1e3", "9" * 40])
def test_invalid_memory_budget_is_refused(monkeypatch, given):
    """The variable is a number of megabytes."""
    monkeypatch.setenv("VSE_DECODE_MEMORY", given)
    with pytest.raises(InputError, match="VSE_DECODE_MEMORY"):
        memory_budget()
    monkeypatch.setenv("VSE_DECODE_MEMORY", " 512 ")
    assert memory_budget() == 512_000_000


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc": "0::/app/one\n", "app/one/memory.max": "max\n", "app/memory.max": "2000000000\n"}, 4),
        ({"proc": "4:memory:/docker/x\n3:cpu:/\n", "memory/memory.limit_in_bytes": "2000000000\n"}, 4),
        ({"proc": "0::/\n", "memory.max": "500000000\n"}, 1),
        ({"proc": "0::/\n", "memory.max": "64000000000\n"}, 16),
        ({}, 16),
    ],
)
def test_sixteen_decoders_fit_the_memory_of_the_container(monkeypatch, tmp_path, files, expected):
    """With what each may take without asking, the budget of all, and the parent."""
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.delenv("VSE_DECODE_MEMORY", raising=False)
    monkeypatch.setattr(worker_process, "_CGROUPS", tmp_path)
    monkeypatch.setattr(worker_process, "_SELF_CGROUP", tmp_path / "proc")
    monkeypatch.setattr(worker_process.os, "sysconf", lambda name: 2**18)  # 64 GB
    monkeypatch.setattr(decoding, "_pool", None)
    monkeypatch.setattr(decoding, "DECODERS", 16)
    assert (decoding.decoders().size, decoding.use_decoders(16).size) == (expected, expected)
    if expected == 4:
        assert 4 * (FREE + 20_000_000) + memory_budget() + decoding.PARENT_BYTES < 2_000_000_000


def test_closed_pool_starts_nothing(pool):
    """Tasks after the end are refused."""
    pool.close()
    with pytest.raises(VSEError, match="were stopped"):
        pool.call(COUNT, {"replies": 1}, seconds=LONG)
