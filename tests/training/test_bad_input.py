"""What cannot be trained is refused in one line that names it, and harms nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.support_models import RESNET, SIDE
from tests.training.support import tiny_recipe, tiny_values, write_pairs, write_pictures

import vse
from vse.errors import InputError, VSEError
from vse.training import Recipe, train
from vse.training.log import read_metrics

SHORT = {"epochs": 2, "batch_size": 16, "decay_epochs": 1}


def refusal(recipe: Recipe, folder: Path) -> str:
    """The message with which ``train`` refuses; always one line."""
    with pytest.raises(VSEError) as caught:
        train(recipe, folder)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 600
    return message


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def data(tmp_path) -> Path:
    return write_pairs(tmp_path / "data", 16, 6)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A folder with ``data`` and its finished ``run``; tests work on a copy."""
    folder = tmp_path_factory.mktemp("finished")
    train(tiny_recipe(write_pairs(folder / "data", 16, 6), schedule=SHORT), folder / "run")
    return folder


class TestRecipes:
    """Before anything is read or written."""

    def test_a_batch_of_one_has_no_negatives(self, data):
        """The recipe itself is refused."""
        with pytest.raises(InputError, match=r"schedule.batch_size.*2") as caught:
            tiny_recipe(data, schedule=SHORT | {"batch_size": 1})
        assert len(str(caught.value).splitlines()) == 1

    def test_an_epoch_smaller_than_a_batch_is_no_epoch(self, data, tmp_path):
        """Both numbers are reported, and the key to change."""
        message = refusal(tiny_recipe(data, schedule=SHORT | {"batch_size": 49}), tmp_path / "run")
        assert "48 captions" in message
        assert "one batch of 49" in message
        assert "schedule.batch_size" in message

    @pytest.mark.parametrize("device", ["gpu", "cuda:77", "tpu:0", ""])
    def test_a_device_that_is_not_there_is_named(self, device, data, tmp_path):
        """Spelled wrongly or absent; no folder is made."""
        message = refusal(tiny_recipe(data, schedule=SHORT, run={"device": device}), tmp_path / "run")
        assert f"run.device {device!r}" in message
        assert not (tmp_path / "run").exists()

    def test_half_precision_needs_a_gpu(self, data, tmp_path):
        """On a CPU it is refused, with what to take instead."""
        message = refusal(
            tiny_recipe(data, schedule=SHORT, run={"precision": "fp16", "device": "cpu"}), tmp_path / "run"
        )
        assert "fp16" in message
        assert "bf16" in message

    def test_the_wrong_width_of_features_is_told(self, data, tmp_path):
        """Both widths, and the key."""
        values = tiny_values(data, schedule=SHORT)
        values["model"]["image"]["feature_size"] = 17
        message = refusal(Recipe.model_validate(values), tmp_path / "run")
        assert "16" in message
        assert "17" in message
        assert "model.image.feature_size" in message


class TestData:
    """What the recipe names does not exist or cannot be used."""

    def test_training_without_data_path(self, data, tmp_path):
        """The message says where to write it."""
        values = tiny_values(data, schedule=SHORT)
        values["data"]["path"] = ""
        message = refusal(Recipe.model_validate(values), tmp_path / "run")
        assert message.startswith("data.path is missing")
        assert "--data" in message

    def test_a_path_that_does_not_exist(self, tmp_path):
        """The path is named."""
        assert str(tmp_path / "nowhere") in refusal(tiny_recipe(tmp_path / "nowhere", schedule=SHORT), tmp_path / "run")

    def test_training_without_dev_split(self, data, tmp_path):
        """The split that is missing and those that are there."""
        for path in data.glob("dev_*"):
            path.unlink()
        message = refusal(tiny_recipe(data, schedule=SHORT), tmp_path / "run")
        assert "'dev'" in message
        assert "train" in message

    @pytest.mark.parametrize(
        "head",
        [
            "linear",
            "residual-mlp",
        ],
    )
    def test_features_that_are_not_finite_are_blamed(self, head, data, tmp_path):
        """Step, caption number and image id; and the run resumes from the previous checkpoint with a fixed dataset."""
        features = np.load(data / "train_ims.npy")
        broken = features.copy()
        broken[5] = np.nan
        np.save(data / "train_ims.npy", broken)
        values = tiny_values(data, schedule=SHORT, run={"threads": 1, "checkpoint_minutes": 1e-6})
        values["model"]["image"]["head"] = head
        recipe = Recipe.model_validate(values)
        message = refusal(recipe, tmp_path / "run")
        assert "the loss is not finite at step" in message
        step = int(message.split("at step ")[1].split()[0])
        assert "image 'train5'" in message
        named = {int(part.split()[0]) for part in message.split("caption ")[1:]}
        assert named <= {15, 16, 17}
        assert "train4" not in message
        if step:
            state = json.loads(next((tmp_path / "run").glob("checkpoint-*/state.json")).read_text())
            assert state["step"] == step
        np.save(data / "train_ims.npy", features)
        train(recipe, tmp_path / "run")
        train(recipe, tmp_path / "other")
        assert read_metrics(tmp_path / "run") == read_metrics(tmp_path / "other")

    def test_a_picture_that_cannot_be_decoded_is_named(self, tmp_path):
        """By its file, whether it is for training or for dev."""
        folder = tmp_path / "pictures"
        table = write_pictures(folder, 8, 4)
        values = tiny_values(table, schedule=SHORT | {"batch_size": 4})
        backbone = {"name": "caffe-resnet", "options": RESNET}
        values["model"]["image"] = {"kind": "grid", "backbone": backbone, "image_size": SIDE}
        whole = (folder / "3.png").read_bytes()
        for name in ("3.png", "10.png"):
            (folder / name).write_bytes(whole[:100])
            assert str(folder / name) in refusal(Recipe.model_validate(values), tmp_path / "run")
            (folder / name).write_bytes(whole)


class TestFolders:
    """A folder belongs to one run."""

    @pytest.fixture
    def place(self, finished, tmp_path) -> Path:
        """A copy of the finished run, unfinished again."""
        shutil.copytree(finished, tmp_path / "place", symlinks=True)
        run = tmp_path / "place" / "run"
        (run / "result.json").unlink()
        return tmp_path / "place"

    def test_it_goes_on_with_the_same(self, place):
        """The copy resumes; otherwise what follows would prove nothing."""
        assert train(tiny_recipe(place / "data", schedule=SHORT), place / "run").steps == 6

    def test_another_recipe_is_refused_by_its_keys(self, place):
        """Each key with both values, and nothing changes."""
        before = contents(place / "run")
        message = refusal(
            tiny_recipe(place / "data", seed=4, schedule=SHORT | {"epochs": 3}, optimizer={"lr": 0.5}), place / "run"
        )
        assert "another recipe" in message
        assert "optimizer.lr 0.01 (now 0.5)" in message
        assert "schedule.epochs 2 (now 3)" in message
        assert "seed 3 (now 4)" in message
        assert "--into" in message
        assert contents(place / "run") == before

    def test_many_differences_are_counted(self, place):
        """The first few are named, the others counted."""
        loss = {"objective": "triplet", "margin": 0.1, "temperature": 0.1, "reduction": "mean", "negatives": "all"}
        message = refusal(tiny_recipe(place / "data", seed=4, schedule=SHORT, loss=loss), place / "run")
        assert "and 2 more" in message

    @pytest.mark.parametrize("split", ["train", "dev"])
    def test_other_captions_are_refused(self, split, place):
        """Also when a single word differs."""
        path = place / "data" / f"{split}_caps.txt"
        path.write_text(path.read_text().replace("one", "two", 1))
        message = refusal(tiny_recipe(place / "data", schedule=SHORT), place / "run")
        assert "other data" in message
        assert f"{split}.text" in message

    def test_other_features_are_refused(self, place):
        """The same captions and names, with other features behind them."""
        path = place / "data" / "train_ims.npy"
        np.save(path, 2 * np.load(path))
        assert "other data" in refusal(tiny_recipe(place / "data", schedule=SHORT), place / "run")

    def test_a_folder_with_other_things_is_left_alone(self, data, tmp_path):
        """It is named, and nothing is added to it."""
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.tex").write_text("years of work")
        message = refusal(tiny_recipe(data, schedule=SHORT), tmp_path / "mine")
        assert str(tmp_path / "mine") in message
        assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]

    def test_a_file_is_no_folder(self, data, tmp_path):
        """It is named and stays."""
        (tmp_path / "file").write_text("text")
        assert str(tmp_path / "file") in refusal(tiny_recipe(data, schedule=SHORT), tmp_path / "file")
        assert (tmp_path / "file").read_text() == "text"

    @pytest.mark.parametrize("damage", ["checkpoint.json", "state.safetensors", "state.json", "run.json"])
    def test_a_damaged_run_is_told_in_one_line(self, damage, place):
        """A file cut short by something other than us."""
        path = next((place / "run").rglob(damage))
        path.write_bytes(path.read_bytes()[:20])
        assert damage in refusal(tiny_recipe(place / "data", schedule=SHORT), place / "run")


# Trains an epoch, then only lets files grow to a size that no longer holds a checkpoint.
FULL = """
import json
import resource
import sys

from vse.progress import SilentProgress
from vse.training import Recipe, train


class Fill(SilentProgress):
    def note(self, message):
        if message.startswith("epoch 1/"):
            self.full = True

    def advance(self, steps=1, description=None):
        if getattr(self, "full", False):
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))


try:
    train(Recipe.model_validate(json.loads(sys.argv[1])), sys.argv[2], progress=Fill())
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="limits of file sizes are those of POSIX")
@pytest.mark.parametrize(
    "room",
    [
        8000,
        pytest.param(300),
    ],
)
def test_a_full_disk_leaves_the_checkpoint_before_it(room, tmp_path):
    """One line that says so; the first epoch is intact, and with room again the run ends as if nothing had been."""
    values = tiny_values(write_pairs(tmp_path / "data", 16, 6), schedule=SHORT, run={"threads": 1})
    run = tmp_path / "run"
    command = [sys.executable, "-c", FULL, json.dumps(values), str(run), str(room)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    kind, _, message = done.stdout.rstrip("\n").partition(" ")
    assert kind == "VSEError", done.stdout
    assert len(message.splitlines()) == 1
    assert "could not be written" in message
    assert "the checkpoint before it is intact" in message
    pointed = json.loads((run / "checkpoint.json").read_text())["folder"]
    assert pointed == "checkpoint-00000003"
    assert vse.load(run / "best").embed_size == 16
    recipe = Recipe.model_validate(values)
    train(recipe, run)
    train(recipe, tmp_path / "whole")
    assert (run / "metrics.jsonl").read_bytes() == (tmp_path / "whole" / "metrics.jsonl").read_bytes()
