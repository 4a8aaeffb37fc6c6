"""Training from packed files: the same order and arrays as from image files, for every rank and after a resume."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.batch.support_batch import tar_of
from tests.support_models import RESNET, SIDE
from tests.training.support import tiny_values, write_pictures
from tests.training.support_runs import EVERY_STEP, assert_same_run, interrupted

from vse.data import open_data
from vse.errors import InputError
from vse.training import Recipe, train
from vse.training.data import build_tokenizer, open_splits, training_pairs
from vse.training.distributed import Ranks
from vse.training.model import build_model


def pack(table: Path, folder: Path) -> Path:
    """The images of a table as tars of a few samples, in its order."""
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    folder.mkdir()
    for split in ("train", "dev"):
        chosen = [row for row in rows if row["split"] == split]
        for number in range(0, len(chosen), 5):
            members = []
            for row in chosen[number : number + 5]:
                key = f"{int(row['path'].partition('.')[0]):03}"
                members.append((f"{key}.png", (table.parent / row["path"]).read_bytes()))
                members.append((f"{key}.txt", row["caption"].encode()))
            (folder / f"{split}-{number:03}.tar").write_bytes(tar_of(members))
    return folder


def grid_recipe(data: Path) -> Recipe:
    schedule = {"epochs": 1, "batch_size": 8, "decay_epochs": 0}
    values = tiny_values(data, schedule=schedule, run=EVERY_STEP)
    values["model"]["image"] = {
        "kind": "grid",
        "backbone": {"name": "caffe-resnet", "options": RESNET},
        "image_size": SIDE,
    }
    return Recipe.model_validate(values)


def test_training_from_tars_equals_training_from_files(tmp_path):
    """Order, arrays of every rank and the whole run are those of image files; a stopped run resumes exactly."""
    table = write_pictures(tmp_path / "images", 16, 4)
    tars = pack(table, tmp_path / "tars")
    recipe, packed = grid_recipe(table), grid_recipe(tars)
    pairs = []
    for each in (recipe, packed):
        splits = open_splits(each)
        model = build_model(each, build_tokenizer(each, splits.train.captions), splits, "tiny")
        pairs.append(training_pairs(each, model, splits.train))
    for epoch in range(2):
        orders = [each.order(epoch) for each in pairs]
        np.testing.assert_array_equal(*orders)
        whole = pairs[0].batch(epoch, orders[0][:8])
        parts = [pairs[1].batch(epoch, orders[1][:8][replace(Ranks(), rank=r, world=2).part(8)]) for r in range(2)]
        np.testing.assert_array_equal(np.concatenate([part.images for part in parts]), whole.images)
    train(recipe, tmp_path / "expected")
    interrupted(packed, tmp_path / "run", at=8)
    train(packed, tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "expected")


def test_run_from_changed_tars_is_not_resumed(tmp_path):
    """The names and sizes of the tars belong to the identity of a run's data."""
    tars = pack(write_pictures(tmp_path / "images", 16, 4), tmp_path / "tars")
    before = open_data(tars, "train").images.identity()
    (tars / "train-000.tar").write_bytes((tars / "train-000.tar").read_bytes() + bytes(512))
    assert open_data(tars, "train").images.identity() != before
    content = (tars / "train-005.tar").read_bytes()
    (tars / "train-005.tar").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"train-005\.tar"):
        open_data(tars, "train")
