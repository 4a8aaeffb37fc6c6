"""An ensemble: several runs, and the mean of their scores."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.training.support import tiny_values, write_pairs, write_toml

import vse
from vse.data import open_data
from vse.errors import InputError
from vse.progress import SilentProgress
from vse.training import EnsembleRecipe, read_recipe
from vse.training.ensemble import EnsembleResult, train_ensemble

MEMBERS = (("first.toml", 0), ("second.toml", 7))


def write_members(folder: Path) -> Path:
    """Data and two recipes that differ in their loss; without the seeds, which the ensemble gives."""
    data = write_pairs(folder / "data", 48, 20)
    for (name, _), objective in zip(MEMBERS, ("contrastive", "triplet"), strict=True):
        values = tiny_values(
            data,
            schedule={"epochs": 4, "batch_size": 16, "decay_epochs": 1},
            optimizer={"lr": 0.03},
            loss={"objective": objective},
        )
        write_toml(folder / name, values)
    return data


def write_ensemble(folder: Path, *members: tuple[str, int]) -> Path:
    listed = [{"recipe": recipe, "seed": seed} for recipe, seed in members]
    return write_toml(folder / "both.toml", {"about": "Two of them.", "members": listed})


class Notes(SilentProgress):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, message: str) -> None:
        self.said.append(message)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("ensemble")
    write_members(folder)
    return folder


@pytest.fixture(scope="module")
def trained(place) -> tuple[EnsembleResult, Notes]:
    recipe = read_recipe(write_ensemble(place, *MEMBERS))
    assert isinstance(recipe, EnsembleRecipe)
    notes = Notes()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        return train_ensemble(recipe, place / "run", name="both", progress=notes), notes


def recall(ranks: np.ndarray) -> float:
    return sum(100 * float((ranks <= cutoff).mean()) for cutoff in (1, 5, 10))


def naive_rsum(scores: np.ndarray, owners: np.ndarray) -> float:
    """The definition, row by row: the rank of the first right answer, behind all wrong ones that score as much."""
    texts = [1 + int((row[owners != image] >= row[owners == image].max()).sum()) for image, row in enumerate(scores)]
    images = [1 + int((np.delete(row, owner) >= row[owner]).sum()) for row, owner in zip(scores.T, owners, strict=True)]
    return recall(np.array(texts)) + recall(np.array(images))


def test_every_member_is_a_run_of_its_own(trained, place):
    """In a folder named after recipe and seed, trained with that seed, and whole."""
    for (name, seed), member in zip(MEMBERS, trained[0].members, strict=True):
        folder = place / "run" / f"{Path(name).stem}-seed{seed}"
        assert member.folder == folder
        assert json.loads((folder / "run.json").read_text())["recipe"]["seed"] == seed
        assert json.loads((folder / "result.json").read_text()) == member.to_json()
        assert vse.load(folder / "best").config.about.name == f"{Path(name).stem}-seed{seed}"


def test_the_mean_of_the_scores_is_measured(trained, place):
    """rsum on dev is that of the averaged cosines, computed here again from the saved models."""
    dev = open_data(place / "data", "dev")
    scores = [
        model.encode_images(dev.images).astype(np.float64) @ model.encode_texts(dev.captions, unknown="allow").T
        for model in (vse.load(place / "run" / f"{Path(name).stem}-seed{seed}" / "best") for name, seed in MEMBERS)
    ]
    expected = naive_rsum((scores[0] + scores[1]) / 2, np.asarray(dev.caption_to_image))
    assert trained[0].together["rsum"] == pytest.approx(expected, abs=1e-9)
    for one, member in zip(scores, trained[0].members, strict=True):
        assert naive_rsum(one, np.asarray(dev.caption_to_image)) == pytest.approx(member.best["rsum"], abs=1e-9)


def test_it_is_written_down_and_told(trained, place):
    """``ensemble.json`` is the result; a line announces each member."""
    result, notes = trained
    assert json.loads((place / "run" / "ensemble.json").read_text()) == result.to_json()
    announced = [line for line in notes.said if line.startswith("both: ")]
    assert announced == ["both: first-seed0", "both: second-seed7"]


def test_trained_again_it_only_measures(trained, place, monkeypatch):
    """Finished members are not trained again, and the figures are the same."""
    monkeypatch.chdir(place)
    notes = Notes()
    again = train_ensemble(read_recipe(place / "both.toml"), place / "run", name="both", progress=notes)
    assert again.to_json() == trained[0].to_json()
    assert sum(line.endswith("this run is finished") for line in notes.said) == 2


def test_members_named_by_paths_stay_inside_the_folder(trained, place, tmp_path):
    """Wherever the recipe is, its run is below the ensemble's folder."""
    recipe = EnsembleRecipe.model_validate(
        {"members": [{"recipe": str(place / name), "seed": seed} for name, seed in MEMBERS]}
    )
    result = train_ensemble(recipe, tmp_path / "run", name="both")
    assert all(member.folder.is_relative_to(tmp_path / "run") for member in result.members)


def test_members_beside_the_ensemble_are_found(place, tmp_path, monkeypatch):
    """As the recipe that another one extends is."""
    monkeypatch.chdir(tmp_path)
    members = [{"recipe": name, "seed": seed} for name, seed in MEMBERS]
    both = write_toml(place / "both.toml", {"members": members})
    result = train_ensemble(read_recipe(both), tmp_path / "run", name="both", beside=place)
    assert len(result.members) == 2


def test_an_ensemble_of_ensembles_is_refused(place, tmp_path, monkeypatch):
    """The member is named; nothing is trained."""
    monkeypatch.chdir(place)
    recipe = EnsembleRecipe.model_validate({"members": [{"recipe": "both.toml"}, {"recipe": "first.toml"}]})
    with pytest.raises(InputError) as caught:
        train_ensemble(recipe, tmp_path / "run", name="outer")
    assert "both.toml" in str(caught.value)
    assert "ensemble" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "run").exists()
