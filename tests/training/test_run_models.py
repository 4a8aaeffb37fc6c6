"""A run's models and links at any moment, after any failure: links lead to whole models, nothing left."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from tests.support_models import assert_same_model, build
from tests.training.support_disk import (
    NEW,
    OLD,
    OPERATIONS,
    failing,
    full_disk,
    killed_during,
    listed,
    needs_fork,
    write,
)

from vse.errors import InputError, VSEError
from vse.models.storage import load_model, save_model
from vse.training.run_folder import RunFolder


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch):
    """Waiting for the disk takes most of the time here, and whether it was waited for cannot be seen from outside."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="module")
def models():
    return {OLD: build(seed=1), NEW: build(seed=2)}


@pytest.fixture(scope="module")
def saved(models, tmp_path_factory) -> Path:
    return save_model(models[OLD], tmp_path_factory.mktemp("saved") / "model")


def keep(folder: RunFolder, step: int, models: dict, suffix: str = "") -> str:
    name = f"model-{step:08d}{suffix}"
    folder.write_model(name, lambda path: save_model(models[step], path))
    return name


def leads_to(path: Path, models: dict) -> int:
    """The step of the model behind a link, all of whose files belong together."""
    assert path.is_symlink()
    assert not path.readlink().is_absolute()  # so that a run can be moved
    found = load_model(path)
    step = next(step for step, model in models.items() if model.fingerprint() == found.fingerprint())
    assert_same_model(found, models[step])
    return step


def test_links_lead_to_models(tmp_path, models):
    """One folder for each step, links to them, and only what no link leads to is removed."""
    folder = RunFolder(tmp_path)
    old = keep(folder, OLD, models)
    folder.show_models({"last": old, "best": old})
    new, averaged = keep(folder, NEW, models), keep(folder, NEW, models, "-averaged")
    assert leads_to(tmp_path / "last", models) == OLD  # until the checkpoint that knows the new one counts
    folder.show_models({"last": new, "best": old, "averaged": averaged})
    assert leads_to(tmp_path / "last", models) == leads_to(tmp_path / "averaged", models) == NEW
    assert leads_to(tmp_path / "best", models) == OLD
    assert listed(tmp_path) == {"best", "last", "averaged", old, new, averaged}
    folder.show_models({"last": new, "best": new, "averaged": averaged})
    assert leads_to(tmp_path / "best", models) == NEW
    assert listed(tmp_path) == {"best", "last", "averaged", new, averaged}


def test_links_of_a_copied_folder_are_mended(tmp_path, models):
    """Copied with links followed, they are folders; copied without, they are gone: both are links again."""
    folder = RunFolder(tmp_path)
    name = keep(folder, OLD, models)
    shutil.copytree(tmp_path / name, tmp_path / "last")
    folder.show_models({"last": name, "best": name})
    assert leads_to(tmp_path / "last", models) == leads_to(tmp_path / "best", models) == OLD


def test_a_model_that_is_lost_is_missed(tmp_path, models):
    """The folder was not copied whole: said at once, and nothing is removed."""
    folder = RunFolder(tmp_path)
    name = keep(folder, OLD, models)
    with pytest.raises(InputError, match="model-00000999, the best model of this run, is missing"):
        folder.show_models({"best": "model-00000999"})
    assert listed(tmp_path) == {name}


def test_a_disk_without_links_gets_copies(tmp_path, models, monkeypatch):
    """The same names lead to the same models."""

    def refused(*arguments: object, **options: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "symlink_to", refused)
    folder = RunFolder(tmp_path)
    for step in (OLD, NEW):
        folder.show_models({"last": keep(folder, step, models)})
        assert load_model(tmp_path / "last").fingerprint() == models[step].fingerprint()


@pytest.mark.parametrize("operation", sorted(OPERATIONS.keys() - {"list", "close a descriptor"}))
@pytest.mark.parametrize("kill", [pytest.param(True, marks=needs_fork), False])
def test_a_link_never_leads_to_half_a_model(tmp_path, models, saved, operation, kill):
    """A failure or a kill at any call: the link leads to the old model or to the new one, and the next try works."""
    number, happened = 0, True
    while happened:
        number += 1
        path = tmp_path / str(number)
        path.mkdir()
        folder = RunFolder(path)
        shutil.copytree(saved, path / f"model-{OLD:08d}")
        folder.show_models({"last": f"model-{OLD:08d}"})

        def change(folder: RunFolder = folder) -> None:
            folder.show_models({"last": keep(folder, NEW, models)})

        if kill:
            happened = killed_during(operation, number, change)
        else:
            with failing(operation, number, full_disk) as fault:
                try:
                    change()
                except (OSError, VSEError) as error:
                    assert len(str(error).splitlines()) == 1  # noqa: PT017
            happened = fault.fired
        assert leads_to(path / "last", models) in ({OLD, NEW} if happened else {NEW})
        folder.clear_leftovers()
        change()
        assert leads_to(path / "last", models) == NEW
        assert {name for name in listed(path) if not name.startswith(".")} == {"last", f"model-{NEW:08d}"}
        shutil.rmtree(path)


def test_leftovers_are_cleared_and_nothing_else(tmp_path, models):
    """What a killed process was writing goes; checkpoints, models and other people's files stay."""
    folder = RunFolder(tmp_path)
    write(folder, OLD)
    keep(folder, OLD, models)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".git").mkdir()
    before = listed(tmp_path)
    (tmp_path / ".writing-checkpoint-00000240" / "deep").mkdir(parents=True)
    (tmp_path / ".writing-model-00000240").mkdir()
    folder.clear_leftovers()
    assert listed(tmp_path) == before
