"""``metrics.jsonl``: whole lines, cut where the checkpoint says, valid JSON whatever a step gives."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import library

from vse.training.log import MetricsLog, read_metrics


def line(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "epoch": 0, "loss": 0.5 / (1 + step), **more}


def strict(text: str) -> list[Any]:
    """JSON as the standard has it: no NaN, no Infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return [json.loads(each, parse_constant=refuse) for each in text.splitlines()]


def test_lines_of_every_kind_come_back(tmp_path):
    """Steps, epochs and events in their order, with a kind each; seconds are kept elsewhere."""
    log = MetricsLog(tmp_path)
    log.step(line(0), {"compute": 0.25, "wait": 0.5})
    log.event({"step": 1, "epoch": 0, "event": "collapsed", "spread": 0.01})
    log.epoch({"step": 1, "epoch": 0, "dev": {"rsum": 12.5}, "best": True, "loss_kind": "all negatives"})
    log.close()
    assert read_metrics(tmp_path) == [
        {"kind": "step", **line(0)},
        {"kind": "event", "step": 1, "epoch": 0, "event": "collapsed", "spread": 0.01},
        {"kind": "epoch", "step": 1, "epoch": 0, "dev": {"rsum": 12.5}, "best": True, "loss_kind": "all negatives"},
    ]
    assert strict((tmp_path / "timings.jsonl").read_text()) == [{"step": 0, "compute": 0.25, "wait": 0.5}]
    assert not (tmp_path / "tensorboard").exists()


@given(kept=st.integers(0, 6), lost=st.integers(0, 4), torn=st.integers(0, 30))
def test_a_resumed_run_repeats_the_file_to_the_byte(tmp_path_factory, kept, lost, torn):
    """What was written after the last commit, whole lines or half of one, is gone; then the run resumes."""
    whole, resumed = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("resumed")
    straight = MetricsLog(whole)
    for step in range(12):
        straight.step(line(step), {})
    straight.close()
    first = MetricsLog(resumed)
    for step in range(kept):
        first.step(line(step), {})
    size = first.commit()
    assert size == (resumed / "metrics.jsonl").stat().st_size
    for step in range(kept, kept + lost):
        first.step(line(step, lost=True), {})
    first.close()
    with (resumed / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "step", "step": 99, "loss"'[:torn])
    second = MetricsLog(resumed, size)
    for step in range(kept, 12):
        second.step(line(step), {})
    assert second.commit() == (whole / "metrics.jsonl").stat().st_size
    second.close()
    assert (resumed / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_a_new_run_begins_empty_and_a_shorter_file_is_kept(tmp_path):
    """``keep`` 0 clears what a run without a checkpoint left; a file that lost its end is not filled up."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "step"}\n')
    MetricsLog(tmp_path).close()
    assert path.read_bytes() == b""
    path.write_text("12345\n")
    MetricsLog(tmp_path, 1000).close()
    assert path.read_text() == "12345\n"


def test_commit_makes_lines_durable(tmp_path, monkeypatch):
    """All lines are in the file, and it was flushed to the disk, before the checkpoint counts on them."""
    log = MetricsLog(tmp_path)
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: (synced.append(os.fstat(number).st_size), real(number)))
    log.step(line(0), {})
    size = log.commit()
    assert synced == [size]
    assert len(read_metrics(tmp_path)) == 1
    log.close()


def test_the_size_is_in_bytes(tmp_path):
    """Not in characters: a name may hold any letter."""
    log = MetricsLog(tmp_path)
    log.event({"step": 0, "event": "größer 狗"})
    assert log.commit() == (tmp_path / "metrics.jsonl").stat().st_size
    log.close()
    assert read_metrics(tmp_path)[0]["event"] == "größer 狗"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_metrics_log_writes_null_for_nan(tmp_path, value):
    """Any JSON reader takes the file."""
    log = MetricsLog(tmp_path)
    log.step(line(0, gradient=value), {"compute": 0.1, "wait": 0.0})
    log.close()
    assert strict((tmp_path / "metrics.jsonl").read_text())[0]["gradient"] is None


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_metrics_log_writes_null_inside_tables(tmp_path, value):
    """The figures on dev are a table of their own."""
    log = MetricsLog(tmp_path)
    log.epoch({"step": 1, "epoch": 0, "dev": {"rsum": value, "r1": 1.0}})
    log.close()
    assert strict((tmp_path / "metrics.jsonl").read_text())[0]["dev"] == {"rsum": None, "r1": 1.0}


def test_half_a_line_is_not_read(tmp_path):
    """Somebody looks while the run writes: only whole lines."""
    assert read_metrics(tmp_path) == []
    (tmp_path / "metrics.jsonl").write_text('{"kind": "step", "step": 0}\n{"kind": "st')
    assert read_metrics(tmp_path) == [{"kind": "step", "step": 0}]
    (tmp_path / "metrics.jsonl").write_text('{"kind"')
    assert read_metrics(tmp_path) == []


def test_tensorboard_files_hold_the_same_numbers(tmp_path):
    """When asked for: one curve for each number of a step and of dev."""
    library("tensorboard", "trackers")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = MetricsLog(tmp_path, trackers=["tensorboard"])
    for step in range(3):
        log.step(line(step, lr=0.1), {"compute": 0.1, "wait": 0.0})
    log.epoch({"step": 3, "epoch": 0, "dev": {"rsum": 12.5}, "loss": 0.25, "loss_kind": "all negatives"})
    log.close()
    found = EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert {"step/loss", "step/lr", "dev/rsum", "epoch/loss"} == set(found.Tags()["scalars"])
    losses = [(each.step, each.value) for each in found.Scalars("step/loss")]
    assert losses == [(step, pytest.approx(0.5 / (1 + step))) for step in range(3)]
    assert [(each.step, each.value) for each in found.Scalars("dev/rsum")] == [(3, 12.5)]


def test_mlflow_run_is_continued_by_a_resumed_run(tmp_path, monkeypatch):
    """One run with the numbers of both processes, in the folder of the run."""
    library("mlflow", "trackers")
    from mlflow import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    for step in range(2):  # resumed with another number of threads, and more parameters than one call takes
        recipe = {"seed": 7, "run": {"threads": 2 + step, "average": None}, "many": {str(n): n for n in range(120)}}
        log = MetricsLog(tmp_path, first_step=step, trackers=["mlflow"], recipe=recipe)
        log.step(line(step, lr=0.1), {"compute": 0.1, "wait": 0.0})
        log.close()
    client = MlflowClient(tracking_uri=(tmp_path / "mlflow").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("vse").experiment_id])
    history = client.get_metric_history(run.info.run_id, "step/loss")
    assert [(each.step, each.value) for each in history] == [(step, pytest.approx(0.5 / (1 + step))) for step in (0, 1)]
    assert {"seed": "7", "run.threads": "2", "many.119": "119"}.items() <= run.data.params.items()
    assert "run.average" not in run.data.params


def wandb_records(path):
    """Yield the records of a W&B file: 7 bytes of header, then a LevelDB log in blocks of 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, place, whole = path.read_bytes(), 7, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:  # the rest of a block is padding
            place += 32768 - place % 32768
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a full record, or its last piece
            yield Record.FromString(whole)
            whole = b""


def test_wandb_writes_offline_unless_told_otherwise(tmp_path, monkeypatch):
    """Nothing leaves the machine by default: each process writes a file of one run, with its steps and the recipe."""
    library("wandb", "trackers")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    for first in (0, 2):
        log = MetricsLog(tmp_path, first_step=first, trackers=["wandb"], recipe={"seed": 7, "run": {"threads": first}})
        for step in range(first, first + 2):
            log.step(line(step, lr=0.1), {"compute": 0.1, "wait": 0.0})
        log.close()
        time.sleep(1 - time.time() % 1)  # W&B names folders by the second
    paths = sorted(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))
    assert len(paths) == 2
    found, runs = [], []
    for record in (record for path in paths for record in wandb_records(path)):
        if record.HasField("run"):
            config = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.run.config.update}
            runs.append((record.run.run_id, config["seed"], config["run"]))
        elif record.HasField("history"):
            values = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            found.append((record.history.step.num, values["step/loss"]))
    assert sorted(found) == [(step, pytest.approx(0.5 / (1 + step))) for step in range(4)]
    assert runs == [(runs[0][0], 7, {"threads": first}) for first in (0, 2)]
