"""``vse train``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.training.support import tiny_values, write_pairs, write_toml

import vse
from vse.cli.main import main
from vse.training import list_recipes


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with data and two recipes: ``tiny.toml``, and ``homeless.toml`` without a path to the data."""
    folder = tmp_path_factory.mktemp("command")
    values = tiny_values(write_pairs(folder / "data", 16, 6), schedule={"epochs": 2, "batch_size": 16})
    write_toml(folder / "tiny.toml", values)
    values["data"] = {"min_count": 1}
    write_toml(folder / "homeless.toml", values)
    return folder


@pytest.fixture
def run(capsys):
    """Run the command in this process; return exit code, stdout and stderr."""

    def command(*arguments: object) -> tuple[int, str, str]:
        code = main(["train", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def the_error(result: tuple[int, str, str], code: int) -> str:
    """The error line of a failed call, which has no output on stdout."""
    assert result[:2] == (code, "")
    *narration, line = result[2].splitlines()
    assert line.startswith("vse: error: ")
    assert not any(each.startswith(("vse: error", "Traceback")) for each in narration)
    return line


class TestTraining:
    """A run from the command line."""

    def test_train_prints_json(self, place, run, tmp_path):
        """stdout holds only the result; the model it names loads."""
        code, out, err = run(place / "tiny.toml", "--into", tmp_path / "run", "--json")
        assert code == 0
        result = json.loads(out)
        assert result == json.loads((tmp_path / "run" / "result.json").read_text())
        assert (result["name"], result["epochs"], result["steps"]) == ("tiny", 2, 6)
        assert vse.load(result["model"]).config.about.name == "tiny"
        assert "epoch 2/2: loss " in err
        assert out.isascii()

    def test_train_again_prints_same_result(self, place, run, tmp_path):
        """The second call trains nothing."""
        first = run(place / "tiny.toml", "--into", tmp_path / "run")
        again = run(place / "tiny.toml", "--into", tmp_path / "run")
        assert first[0] == again[0] == 0
        assert again[1] == first[1]
        assert f"model: {tmp_path / 'run' / 'best'}" in first[1]
        assert "image → text" in first[1]
        assert "this run is finished" in again[2]

    def test_train_defaults_to_runs_recipe(self, place, run, tmp_path, monkeypatch):
        """``runs/RECIPE`` in the working directory; ``--data`` gives the path that the recipe lacks."""
        monkeypatch.chdir(tmp_path)
        code, out, _ = run(place / "homeless.toml", "--data", place / "data", "--json")
        assert code == 0
        assert json.loads(out)["folder"] == "runs/homeless"
        assert (tmp_path / "runs" / "homeless" / "best").is_dir()


class TestRecipes:
    """Showing and changing recipes."""

    def test_train_list_names_all_recipes(self, run):
        """With their summaries, as JSON and as lines."""
        code, out, err = run("--list", "--json")
        assert (code, err) == (0, "")
        recipes = json.loads(out)["recipes"]
        assert list(recipes) == list_recipes()
        assert all(recipes.values())
        code, out, err = run("--list")
        assert (code, err) == (0, "")
        starts = {line.split()[0] for line in out.splitlines() if not line.startswith(" ")}
        assert set(recipes) <= starts

    def test_train_show_prints_recipe(self, place, run, tmp_path, monkeypatch):
        """Every table with its defaults, as one JSON object."""
        monkeypatch.chdir(tmp_path)
        code, out, err = run(place / "tiny.toml", "--show")
        assert (code, err) == (0, "")
        shown = json.loads(out)
        assert shown["schedule"]["epochs"] == 2
        assert shown["loss"]["objective"] == "contrastive"
        assert list(tmp_path.iterdir()) == []

    def test_train_set_changes_values_in_order(self, run):
        """Numbers, text, names of poolings; the last one wins."""
        changes = ("schedule.epochs=30", "optimizer.lr=1e-3", "model.image.pooling=max", "loss.objective=triplet")
        arguments = [part for change in (*changes, "schedule.epochs=31") for part in ("--set", change)]
        shown = json.loads(run("flickr8k-vse-infinity", "--show", *arguments)[1])
        assert shown["schedule"]["epochs"] == 31
        assert shown["optimizer"]["lr"] == 1e-3
        assert shown["model"]["image"]["pooling"]["name"] == "max"
        assert shown["loss"]["objective"] == "triplet"

    @pytest.mark.parametrize(
        "name",
        [
            "plain",
            "with space",
            "it's",
            'say "so"',
            "ünïcode",
            "=",
            "back\\slash",
            "both ' and \"",
        ],
    )
    def test_train_data_and_features_take_any_path(self, name, run):
        """The path arrives unchanged, whatever characters it has."""
        code, out, err = run("flickr8k-vse-infinity", "--show", "--data", name, "--features", f"{name}/store")
        assert code == 0, err
        shown = json.loads(out)["data"]
        assert (shown["path"], shown["features"]) == (name, f"{name}/store")

    def test_train_ensemble_passes_data_to_members(self, place, run, tmp_path):
        """All members are trained on the given dataset."""
        members = [{"recipe": str(place / "homeless.toml"), "seed": seed} for seed in (0, 1)]
        both = write_toml(tmp_path / "both.toml", {"members": members})
        code, out, err = run(both, "--data", place / "data", "--into", tmp_path / "run", "--json")
        assert code == 0, err
        assert len(json.loads(out)["members"]) == 2

    def test_train_help_names_every_option(self, run):
        """In plain text."""
        code, out, err = run("--help")
        assert (code, err) == (0, "")
        for option in ("RECIPE", "--into", "--set", "--data", "--features", "--show", "--list", "--json"):
            assert option in out
        assert "torchrun" in out


class TestErrors:
    """One line on stderr, nothing on stdout."""

    def test_train_without_recipe_is_a_usage_error(self, run):
        """It says where to find recipes."""
        assert "vse train --list" in the_error(run(), 2)

    def test_train_refuses_unknown_option(self, run):
        """It says where to read more."""
        assert "vse train --help" in the_error(run("flickr8k-vse-infinity", "--epochs", "3"), 2)

    def test_train_names_missing_recipe(self, run, tmp_path):
        """A name with the closest one, a path as it was given."""
        assert "flickr8k-vse-infinity" in the_error(run("flickr8k-vse-infinty"), 1)
        assert "nowhere.toml" in the_error(run(tmp_path / "nowhere.toml"), 1)

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ("schedule.epoch=3", "did you mean 'epochs'?"),
            ("schedule.epochs=0", "schedule.epochs"),
            ("schedule.epochs=many", "schedule.epochs"),
            ("schedule.batch_size=1", "schedule.batch_size"),
            ("schedule.epochs", "KEY=VALUE"),
            ("run.precision=fp8", "run.precision"),
        ],
    )
    def test_train_names_invalid_change(self, change, said, place, run, tmp_path):
        """With what is valid; nothing is written."""
        line = the_error(run(place / "tiny.toml", "--into", tmp_path / "run", "--set", change), 1)
        assert change in line
        assert said in line
        assert not (tmp_path / "run").exists()

    def test_train_names_missing_data_first(self, place, run, tmp_path):
        """No path, or one that does not exist."""
        assert "data.path is missing" in the_error(run(place / "homeless.toml", "--into", tmp_path / "a"), 1)
        missing = tmp_path / "gone"
        found = the_error(run(place / "homeless.toml", "--data", missing, "--into", tmp_path / "b"), 1)
        assert str(missing) in found

    def test_train_refuses_folder_of_another_recipe(self, place, run, tmp_path):
        """With both values of what differs."""
        assert run(place / "tiny.toml", "--into", tmp_path / "run")[0] == 0
        line = the_error(run(place / "tiny.toml", "--into", tmp_path / "run", "--set", "seed=4"), 1)
        assert "seed 3 (now 4)" in line

    def test_train_other_ranks_print_errors_only(self, place, run, tmp_path, monkeypatch):
        """Only the first process reports progress."""
        lost = write_toml(tmp_path / "lost.toml", tiny_values(place / "data", run={"device": "nowhere"}))
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        members = [{"recipe": str(lost), "seed": seed} for seed in (0, 1)]
        both = write_toml(tmp_path / "both.toml", {"members": members})
        for recipe in (lost, both):
            code, out, err = run(recipe, "--into", tmp_path / "run")
            assert (code, out) == (1, "")
            assert len(err.splitlines()) == 1
