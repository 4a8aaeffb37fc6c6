"""The recipes for videos are the paper's, and each of them trains on data of its shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.data.video_support import frames, write_hdf5, write_json
from tests.training.support_recipes import at
from tests.training.support_video import without_matplotlib, write_videos

from vse.cli.main import main
from vse.experiments import whole_models
from vse.experiments.plan import Call
from vse.progress import SilentProgress
from vse.training.recipes import read_recipe

# Copied from the paper (section on video-text matching) and from HGR's released code where the paper is silent.
EVERYWHERE = {
    "model.embed_size": 1024,
    "loss.objective": "triplet",
    "loss.negatives": "hardest",
    "loss.warmup_epochs": 0,
    "loss.margin": 0.2,
    "loss.reduction": "mean",
    "optimizer.name": "adam",
    "optimizer.lr": 1e-4,
    "optimizer.weight_decay": 0.0,
    "optimizer.clip": 0.0,
    "schedule.epochs": 35,
    "schedule.batch_size": 128,
    "schedule.decay": "step",
    "schedule.decay_epochs": 10,
    "schedule.decay_factor": 0.1,
    "augmentation.image": "none",
    "augmentation.text": "none",
    "guard.action": "warn",
    "data.captions_per_image": None,
}
LEVELS = {"model.kind": "hgr", "model.word_size": 300, "model.dropout": 0.2, "model.graph_dropout": 0.5}
TOWERS = {
    "model.kind": "vse",
    "model.image.kind": "frames",
    "model.image.dropout": 0.2,
    "model.text.kind": "words",
    "model.text.word_size": 300,
    "model.text.dropout": 0.2,
}


def pooled(places: tuple[str, str], name: str) -> dict[str, str]:
    return {f"model.{place}.name": name for place in places}


SIDES, WHOLES = ("image.pooling", "text.pooling"), ("video_pooling", "sentence_pooling")
METHODS: dict[str, dict[str, Any]] = {
    "vse-plus-plus": TOWERS | pooled(SIDES, "avg"),
    "vse-infinity": TOWERS | pooled(SIDES, "gpo"),
    "hgr": LEVELS | pooled(WHOLES, "attention"),
    "hgr-infinity": LEVELS | pooled(WHOLES, "gpo"),
}
WIDTHS = {"msrvtt": 2048, "vatex": 1024, "msvd": 512}
PUBLISHED = {
    "msrvtt": {"vse-plus-plus": 160.5, "vse-infinity": 174.7, "hgr": 172.4, "hgr-infinity": 177.0},
    "vatex": {"vse-plus-plus": 400.3, "vse-infinity": 403.9, "hgr": 408.4, "hgr-infinity": 410.6},
}
TINY = {
    "model.embed_size": 8,
    "schedule.epochs": 1,
    "schedule.decay_epochs": 0,
    "schedule.batch_size": 8,
    "run.threads": 1,
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("data", WIDTHS)
def test_video_recipes_have_the_papers_constants(data, method):
    """Optimiser, schedule, objective, poolings, encoders: each value, in each recipe; and the published figure."""
    recipe = read_recipe(f"{data}-{method}")
    place = "model.feature_size" if method.startswith("hgr") else "model.image.feature_size"
    expected = EVERYWHERE | METHODS[method] | {place: WIDTHS[data], "data.path": f"data/{data}"}
    assert {key: at(recipe, key) for key in expected} == expected
    figure = PUBLISHED.get(data, {}).get(method)
    assert ("no figures" if figure is None else f"rsum {figure:.1f} ") in recipe.about


@pytest.mark.parametrize("method", METHODS)
def test_the_small_ones_differ_in_size_and_length_alone(method):
    """Embedding, captions of an epoch, epochs: the four are comparable with each other."""
    small, whole = (read_recipe(name).identity() for name in (f"msvd-small-{method}", f"msvd-{method}"))
    for key, table in (("embed_size", "model"), ("captions_per_image", "data")):
        assert small[table].pop(key) != whole[table].pop(key)
    for key in ("epochs", "decay_epochs"):
        assert small["schedule"].pop(key) < whole["schedule"].pop(key)
    assert small == whole


@pytest.mark.parametrize("method", ["vse-plus-plus", "vse-infinity"])
def test_sentence_encoder_replaces_the_words_alone(method):
    """Against the small profile the text tower is another one, and the pooling of both sides stays."""
    sentence, small = (read_recipe(f"{name}-{method}").identity() for name in ("msvd-sentence", "msvd-small"))
    text, words = sentence["model"].pop("text"), small["model"].pop("text")
    assert sentence == small
    assert (text["kind"], text["pretrained"]) == ("transformer", "all-minilm-l6-v2")
    assert text["pooling"] == words["pooling"]


def test_video_experiment_has_rows_with_a_sentence_encoder(tmp_path, monkeypatch):
    """They are trained only if they are named, with the claims about them."""
    plans = []
    monkeypatch.setattr(whole_models, "run_grid", lambda grid, *_: plans.append(grid))
    for rows in ((), ("VSE∞, sentence encoder", "VSE++, sentence encoder")):
        call = Call(tmp_path, SilentProgress(), data=tmp_path, rows=rows)
        whole_models.VIDEO_MODELS.run(call, "msvd-small", tmp_path)
    usual, further = ({row.label: row.recipe for row in grid.variants} for grid in plans)
    assert list(usual) == ["VSE++", "VSE∞", "HGR", "HGR∞"]
    assert {name for label, name in further.items() if label not in usual} == {
        "msvd-sentence-vse-plus-plus",
        "msvd-sentence-vse-infinity",
    }
    assert [len(grid.claims) for grid in plans] == [2, 4]


@pytest.fixture(scope="module")
def truncated(tmp_path_factory) -> dict[str, tuple[Path, list[str]]]:
    """A few videos of each dataset in the layout that its recipes read, with frames of the right width."""
    root = tmp_path_factory.mktemp("truncated")
    found = {data: (write_videos(root / data, 6, 3, width=WIDTHS[data]), []) for data in ("msrvtt", "msvd")}
    vatex = root / "vatex"
    names = [f"v{number}" for number in range(12)]
    told = [{"videoID": name, "enCap": ["A dog runs.", f"A man eats {name}."]} for name in names]
    write_json(vatex / "vatex_training_v1.0.json", told[:6])
    write_json(vatex / "vatex_validation_v1.0.json", told[6:])
    file = write_hdf5(vatex / "i3d.hdf5", {name: frames(4, WIDTHS["vatex"], seed=len(name)) for name in names})
    found["vatex"] = (vatex, ["--features", str(file)])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [*WIDTHS, "msvd-small"])
def test_each_trains_on_a_truncated_copy_of_its_data(name, method, truncated, tmp_path, capsys):
    """By the command, with the recipe's own networks but for their size; figures come out."""
    data, features = truncated[name.removesuffix("-small")]
    changes = [part for key, value in TINY.items() for part in ("--set", f"{key}={value}")]
    into = ["--into", str(tmp_path / "run")]
    with without_matplotlib():
        assert main(["train", f"{name}-{method}", "--data", str(data), *features, *changes, *into]) == 0
    assert "rsum" in capsys.readouterr().out
