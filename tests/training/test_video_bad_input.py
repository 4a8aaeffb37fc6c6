"""What is wrong with videos, their captions or a recipe for them is said in one line, or noted and survived."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.data.video_support import frames, write_hdf5
from tests.training.support import write_pairs, write_toml
from tests.training.support_video import HGR, WIDTH, video_recipe, video_values, without_matplotlib, write_videos

from vse._util.strict import parse
from vse.cli.main import main
from vse.errors import InputError
from vse.training import Recipe, train
from vse.training.data import build_tokenizer, open_splits

ONE = {"epochs": 1, "batch_size": 8, "decay_epochs": 0}


@pytest.fixture
def data(tmp_path) -> Path:
    return write_videos(tmp_path / "tiny", 12, 4)


def captions_file(data: Path) -> Path:
    return data / "annotation" / "RET" / "ref_captions.json"


def run(data: Path, folder: Path, model: str = "hgr", **changes) -> int:
    recipe = write_toml(folder / "mine.toml", video_values(data, model, **{"schedule": ONE} | changes))
    return main(["train", str(recipe), "--into", str(folder / "run")])


def refusal(values: dict) -> str:
    with pytest.raises(InputError) as caught:
        parse(Recipe, values, "mine.toml")
    (line,) = str(caught.value).splitlines()
    return line


@pytest.mark.parametrize(("table", "read"), [({}, 30), ({"max_tokens": 4}, 4), ({"max_tokens": 50}, 50)])
def test_a_caption_of_three_hundred_words_is_cut(data, table, read):
    """Words and graph alike: after thirty, or where the recipe says; and a word that is cut is no node."""
    captions = json.loads(captions_file(data).read_text())
    captions["train/0"][0] = "a dog runs " * 100
    captions_file(data).write_text(json.dumps(captions))
    recipe = video_recipe(data, "hgr", data=table)
    splits = open_splits(recipe)
    sentence = splits.train.captions[0]
    graph = splits.graphs[sentence]
    tokenizer = build_tokenizer(recipe, splits.train.captions)
    assert graph.n_words == tokenizer.encode([sentence]).lengths[0] == read
    assert max(place for phrase in (*graph.verbs, *graph.nouns) for place in phrase.words) < read


@pytest.mark.parametrize(("model", "table"), [("hgr", "model"), ("vse-infinity", "model.image")])
def test_training_names_video_feature_width(tmp_path, capsys, model, table):
    """Both widths and the key to set."""
    assert run(write_videos(tmp_path / "wide", 12, 4, width=5), tmp_path, model) == 1
    assert f"features of 5 values, and the model takes {WIDTH}: set {table}.feature_size" in capsys.readouterr().err


def test_no_frames_for_any_video(data, tmp_path, capsys):
    """A file of other videos is named, with how it is given."""
    other = write_hdf5(tmp_path / "other.hdf5", {"x": frames(2, WIDTH)})
    recipe = write_toml(tmp_path / "mine.toml", video_values(data, "hgr"))
    assert main(["train", str(recipe), "--features", str(other), "--into", str(tmp_path / "run")]) == 1
    assert "no frames of any of the 12 videos" in capsys.readouterr().err


def test_words_cannot_be_dropped_from_a_graph():
    """``augmentation.text`` would move the words that a graph points to; frames may be dropped."""
    for style in ("drop", "released"):
        line = refusal({"model": HGR, "augmentation": {"text": style}})
        assert f"augmentation.text '{style}' would move the words that role graphs point to" in line
    parse(Recipe, {"model": HGR, "augmentation": {"image": "drop", "text": "none"}}, "mine.toml")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"kind": "hgl"}, "'model' is"),
        ({"kind": "hgr", "image": {}}, "image"),
        ({"kind": "hgr", "video_pooling": "mean"}, "unknown pooling 'mean'"),
        ({"kind": "hgr", "dropout": 1.0}, "dropout"),
        ({"image": {"kind": "frames", "head": "linear"}}, "head"),
    ],
)
def test_models_that_do_not_exist(model, said):
    """A kind, a key, a pooling or a share that there is not: one line that names it."""
    assert said in refusal({"model": model, "augmentation": {"text": "none"}})


def test_training_refuses_mixed_image_and_video_settings(tmp_path, data):
    """Frames of images, images of videos, compiled pairs."""
    images = write_pairs(tmp_path / "images", 8, 4)
    with pytest.raises(InputError, match="layout 'precomp' holds images, and the model takes frames of videos"):
        train(video_recipe(images, "hgr"), tmp_path / "a")
    grid = {"kind": "vse", "image": {"kind": "grid", "backbone": "efficientnet-lite0"}}
    values = video_values(data, "hgr") | {"model": grid}
    with pytest.raises(InputError, match="holds videos as frame features, not images"):
        train(parse(Recipe, values, "test"), tmp_path / "b")
    assert "run.compile" in refusal(video_values(data, "hgr", run={"compile": True}))


def test_frames_that_are_not_finite_are_blamed(data, tmp_path):
    """The video whose frames hold NaN, by its name, before the first step; nothing is left of the packed frames."""
    file = data / "ordered_feature" / "SA" / "resnet" / "trn_ft.hdf5"
    with h5py.File(file, "r+") as stored:
        stored["train_3"][0, 0] = np.nan
    with pytest.raises(InputError, match=r"trn_ft\.hdf5, video 'train/3': its frames hold NaN") as caught:
        train(video_recipe(data, "hgr", schedule=ONE), tmp_path / "run")
    assert "'train/4'" not in str(caught.value)
    assert {each.name for each in (tmp_path / "run").iterdir()} <= {"run.json", ".lock"}


def test_a_file_that_lacks_words_is_told_of(data, tmp_path, capsys):
    """The share of the training captions' words that it does not know."""
    captions = open_splits(video_recipe(data, "hgr", schedule=ONE)).train.captions
    words = [word for caption in captions for word in caption.split()]
    known = ("a", "the", "one", "in", "park", "outside")
    file = captions_file(data).parent / "word2int.json"
    file.write_text(json.dumps({word: number for number, word in enumerate(known, 3)}))
    with without_matplotlib():
        assert run(data, tmp_path) == 0
    share = 100 * sum(word not in known for word in words) / len(words)
    assert f"{file} lacks {share:.0f} % of the words of the training captions" in capsys.readouterr().err


def test_a_file_of_words_and_of_graphs_is_used(data, tmp_path):
    """``word2int.json`` beside the captions gives the vocabulary; published graphs are reported of in the note."""
    folder = captions_file(data).parent
    (folder / "word2int.json").write_text(json.dumps({"<BOS>": 0, "<EOS>": 1, "<UNK>": 2, "dog": 3}))
    captions = open_splits(video_recipe(data, "hgr")).train.captions
    graph = [{"ROOT": {"role": "ROOT", "spans": []}, "1": {"role": "V", "spans": [0]}}, []]
    (folder / "sent2rolegraph.augment.json").write_text(json.dumps(dict.fromkeys(captions, graph)))
    with without_matplotlib():
        found = train(video_recipe(data, "hgr", schedule=ONE), tmp_path / "run")
    config = json.loads((found.model / "config.json").read_text())
    assert config["vocabulary_size"] == 4
    assert config["about"]["notes"][0].startswith("role graphs of sent2rolegraph.augment.json")
