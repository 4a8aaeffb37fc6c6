"""Several processes train the model that one process would."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.systems.support_towers import recipe_of
from tests.training.support import tiny_values, write_pairs, write_pictures, write_toml
from tests.training.support_video import CALM, video_values, write_videos
from tests.training.test_packed_data import grid_recipe, pack

from vse.progress import SilentProgress
from vse.training import Recipe, train
from vse.training.log import read_metrics

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed"),
]
SCHEDULE = {"epochs": 6, "batch_size": 16, "decay_epochs": 1}
EPOCHS = 15
ONE_THREAD: dict[str, Any] = {"threads": 1, "readers": 1}
RESIDUAL = {"kind": "region", "feature_size": 16, "hidden_size": 8, "head": "residual-mlp"}


def torchrun(*arguments: object, logs: Path | None = None) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    if logs is not None:
        launcher += ["--redirects", "3", "--log-dir", str(logs)]
    return [*launcher, *map(str, arguments)]


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}


def output(logs: Path, rank: int, stream: str) -> str:
    """What a rank wrote."""
    (path,) = logs.glob(f"**/attempt_0/{rank}/{stream}.log")
    return path.read_text()


# The first step of a recipe with whatever processes there are: every gradient and figure, saved by rank.
FIRST_STEP = """
import json
import sys
from pathlib import Path

import torch

from vse.errors import InputError
from vse.progress import SilentProgress
from vse.training import Recipe
from vse.training.data import build_tokenizer, open_splits, training_pairs
from vse.training.model import build_model
from vse.training.distributed import process_group
from vse.training.run_folder import RunFolder
from vse.training.trainer import Trainer


def first_step(values, ranks, folder):
    recipe = Recipe.model_validate(values)
    splits = open_splits(recipe)
    model = build_model(recipe, build_tokenizer(recipe, splits.train.captions), splits, "test")
    pairs = training_pairs(recipe, model, splits.train, splits.graphs)
    trainer = Trainer(
        recipe, model, pairs, splits.dev, RunFolder(folder), ranks, SilentProgress(), stored_features=False,
        stopping=lambda: False, graphs=splits.graphs,
    )
    trainer.step.prepare(train_backbone=False)
    samples = pairs.order(0)[: recipe.schedule.batch_size]
    figures = trainer.step(pairs.batch(0, samples[trainer.local_rows]), 0)
    return {"figures": figures.values(), "gradients": {name: p.grad for name, p in trainer.step.parameters.items()}}


def main(variants, folder):
    torch.set_num_threads(1)
    with process_group(torch.device("cpu")) as ranks:
        for name, values in json.loads(Path(variants).read_text()).items():
            try:
                found = first_step(values, ranks, Path(folder))
            except InputError as error:
                found = {"error": str(error)}
            torch.save(found, f"{folder}/{name}-{ranks.rank}-of-{ranks.world}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("distributed") / "data", 48, 40)


class TestFirstStep:
    """Gradients of one step, in double precision."""

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, data, tmp_path_factory) -> Path:
        """The first steps of several recipes, by two processes and by one."""
        folder = tmp_path_factory.mktemp("steps")
        double: dict[str, Any] = ONE_THREAD | {"precision": "fp64"}
        clip = {"optimizer": {"lr": 0.01, "clip": 0.0}, "schedule": SCHEDULE}
        variants = {
            "contrastive": tiny_values(data, **clip, run=double),
            "hardest": tiny_values(data, **clip, run=double, loss={"objective": "triplet", "warmup_epochs": 0}),
            "parts": tiny_values(data, **clip, run=double | {"micro_batches": 2}),
            "odd": tiny_values(data, run=double, schedule=SCHEDULE | {"batch_size": 15}),
            "batch-norm": tiny_values(data, **clip, run=double, model={"image": RESIDUAL}),
            "auxiliary": recipe_of("cvse", data, **clip, run=double).model_dump(mode="json"),
        }
        videos = write_videos(folder / "videos")
        for name, run in (("levels", double), ("levels-in-parts", double | {"micro_batches": 2})):
            variants[name] = video_values(videos, "hgr-infinity", **clip, run=run, model=CALM)
        sets = {"kind": "pairs", "system": "imram", "options": {"steps": 2}}
        for name, run in (("sets", double), ("sets-in-parts", double | {"micro_batches": 2})):
            variants[name] = tiny_values(data, **clip, run=run, model=sets)  # dropped elements: sizes differ by rank
        (folder / "variants.json").write_text(json.dumps(variants))
        (folder / "first_step.py").write_text(FIRST_STEP)
        command = torchrun(folder / "first_step.py", folder / "variants.json", folder)
        done = subprocess.run(command, env=environment(), timeout=120, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        runpy.run_path(str(folder / "first_step.py"))["main"](folder / "variants.json", folder)
        return folder

    @pytest.mark.parametrize(
        "variant",
        [
            "contrastive",
            "hardest",
            "parts",
            "batch-norm",
            "auxiliary",
            "levels",
            "levels-in-parts",
            "sets",
            "sets-in-parts",
        ],
    )
    def test_two_processes_have_the_gradients_of_one(self, variant, folder):
        """Every parameter to 1e-9 of the largest gradient, on both ranks; and the same figures."""
        alone, *ranks = (torch.load(folder / f"{variant}-{name}.pt") for name in ("0-of-1", "0-of-2", "1-of-2"))
        for found in ranks:
            assert found["figures"] == pytest.approx(alone["figures"], rel=1e-9)
            assert found["gradients"].keys() == alone["gradients"].keys()
            scale = max(gradient.abs().max() for gradient in alone["gradients"].values())
            for name, expected in alone["gradients"].items():
                assert expected.dtype == torch.float64
                torch.testing.assert_close(found["gradients"][name] / scale, expected / scale, rtol=0, atol=1e-9)

    def test_micro_batches_across_processes_have_whole_batch_gradients(self, folder):
        """Micro batches within several processes change nothing either."""
        whole, parts = (torch.load(folder / f"{name}-0-of-2.pt")["gradients"] for name in ("contrastive", "parts"))
        for name, expected in whole.items():
            scale = expected.abs().max() + 1e-12
            torch.testing.assert_close(parts[name] / scale, expected / scale, rtol=0, atol=1e-9)

    def test_a_batch_that_cannot_be_shared_is_refused(self, folder):
        """In one line with the size and the number of processes, on every rank; one process takes it."""
        said = "a batch of 15 cannot be shared by 2 processes: set schedule.batch_size to a multiple"
        for rank in (0, 1):
            assert torch.load(folder / f"odd-{rank}-of-2.pt") == {"error": said}
        assert "gradients" in torch.load(folder / "odd-0-of-1.pt")


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory) -> Path:
    """The run of one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    train(Recipe.model_validate(recipe_values(data)), folder)
    return folder


def recipe_values(data: Path, **changes: Any) -> dict[str, Any]:
    return tiny_values(data, **{"schedule": SCHEDULE, "optimizer": {"lr": 0.03}, "run": ONE_THREAD} | changes)


def losses(folder: Path) -> list[float]:
    return [line["loss"] for line in read_metrics(folder) if line["kind"] == "step"]


def test_a_run_of_two_processes_is_a_run_of_one(data, alone, tmp_path):
    """The losses agree until rounding grows, recall at the end within a few points; only the first rank writes.

    Both runs add in another order. At this learning rate the difference grows, faster on some CPUs than on others.
    """
    recipe = write_toml(tmp_path / "tiny.toml", recipe_values(data))
    command = torchrun("-m", "vse", "train", recipe, "--into", tmp_path / "run", "--json", logs=tmp_path / "logs")
    done = subprocess.run(command, env=environment(), timeout=120, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ours, theirs = losses(tmp_path / "run"), losses(alone)
    np.testing.assert_allclose(ours[:30], theirs[:30], rtol=1e-4)
    np.testing.assert_allclose(ours[:50], theirs[:50], rtol=2e-3)
    result = json.loads(output(tmp_path / "logs", 0, "stdout"))
    written = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result == written
    expected = json.loads((alone / "result.json").read_text())["best"]["dev"]
    for way in ("i2t", "t2i"):
        assert written["best"]["dev"][way]["r1"] == pytest.approx(expected[way]["r1"], abs=6)
    assert "epoch 6/6" in output(tmp_path / "logs", 0, "stderr")
    assert (output(tmp_path / "logs", 1, "stdout"), output(tmp_path / "logs", 1, "stderr")) == ("", "")


@pytest.mark.parametrize("kind", ["videos", "tars"])
def test_a_run_of_videos_or_tars_by_two_processes_is_a_run_of_one(tmp_path, kind):
    """By the command, the losses to 1e-4: HGR without dropout, whose frames are packed once, and images in tars."""
    if kind == "videos":
        values, steps = video_values(write_videos(tmp_path / "videos"), "hgr", run=ONE_THREAD, model=CALM), 20
    else:
        tars = pack(write_pictures(tmp_path / "images", 16, 4), tmp_path / "tars")
        values, steps = grid_recipe(tars).model_dump(mode="json", exclude_none=True), 2
    recipe = write_toml(tmp_path / "recipe.toml", values)
    command = torchrun("-m", "vse", "train", recipe, "--into", tmp_path / "run", "--json", logs=tmp_path / "logs")
    done = subprocess.run(command, env=environment(), timeout=300, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    train(Recipe.model_validate(values), tmp_path / "alone")
    assert len(losses(tmp_path / "run")) == steps
    np.testing.assert_allclose(losses(tmp_path / "run"), losses(tmp_path / "alone"), rtol=1e-4)


def children(pid: int) -> dict[int, int]:
    """The processes that ``pid`` started, by their rank."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        ranks = [value for value in variables if value.startswith(b"RANK=")]
        if ranks:
            found[int(ranks[0][5:])] = int(child)
    return found


class _Enough(SilentProgress):
    """Stops when only the images are missing."""

    def finish(self) -> None:
        raise KeyboardInterrupt


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to find a process by its rank")
def test_a_process_that_dies_ends_the_run_and_one_process_can_continue_it(data, tmp_path):
    """kill -9 of one rank: the command fails within a minute, the checkpoint is intact, and one process resumes from it
    to the result that it would reach from that checkpoint in a folder of its own."""
    values = recipe_values(data, schedule=SCHEDULE | {"epochs": EPOCHS}, run=ONE_THREAD | {"checkpoint_minutes": 1e-6})
    recipe, run = write_toml(tmp_path / "tiny.toml", values), tmp_path / "run"
    command = torchrun("-m", "vse", "train", recipe, "--into", run, logs=tmp_path / "logs")
    with subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not (run / "best").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(children(process.pid)[1], signal.SIGKILL)
        killed = time.monotonic()
        assert process.wait(60) != 0
        assert time.monotonic() - killed < 60
    pointed = json.loads((run / "checkpoint.json").read_text())["folder"]
    state = json.loads((run / pointed / "state.json").read_text())
    assert 9 <= state["step"] < EPOCHS * 9

    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("run.json", "checkpoint.json"):
        shutil.copy(run / name, copy / name)
    shutil.copytree(run / pointed, copy / pointed)
    (copy / "metrics.jsonl").write_bytes((run / "metrics.jsonl").read_bytes()[: state["metrics_bytes"]])
    shutil.copytree(run / state_model(state), copy / state_model(state))
    values["run"]["checkpoint_minutes"] = 0
    for folder in (run, copy):
        with pytest.raises(KeyboardInterrupt):
            train(Recipe.model_validate(values), folder, progress=_Enough())
    assert (run / "metrics.jsonl").read_bytes() == (copy / "metrics.jsonl").read_bytes()
    steps = [line["step"] for line in read_metrics(run) if line["kind"] == "step"]
    assert steps == list(range(EPOCHS * 9))


def state_model(state: dict[str, Any]) -> str:
    """The folder of the best model so far."""
    return f"model-{state['best']['step']:08d}"
