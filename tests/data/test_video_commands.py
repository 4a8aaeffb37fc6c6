"""What is wrong with a dataset of videos is said alike by ``vse data check``, ``vse train`` and ``vse eval``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.data.video_support import SHORT, Bomb, frames, write_json
from tests.training.support import write_toml
from tests.training.support_video import WIDTH, video_recipe, video_values, without_matplotlib, write_videos

from vse.cli.main import main
from vse.training import train

ONE = {"epochs": 1, "batch_size": 8, "decay_epochs": 0}
BROKEN = ("train", "test")  # splits: one for training, one for evaluation
GRAPHS = "sent2rolegraph.augment.json"


@pytest.fixture(scope="module", autouse=True)
def _no_pictures():
    with without_matplotlib():
        yield


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    return write_videos(tmp_path_factory.mktemp("sound") / "tiny", 8, 4)


@pytest.fixture(scope="module")
def models(sound, tmp_path_factory) -> dict[str, str]:
    """A model of vectors and one of pairs."""
    folder = tmp_path_factory.mktemp("models")
    return {
        name: str(train(video_recipe(sound, name, schedule=ONE), folder / name).model)
        for name in ("vse-infinity", "hgr")
    }


@pytest.fixture
def data(sound, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)  # where results are written
    return shutil.copytree(sound, tmp_path / "tiny")


def feature_file(data: Path, split: str) -> Path:
    return data / "ordered_feature" / "SA" / "resnet" / f"{SHORT[split]}_ft.hdf5"


def names_file(data: Path, split: str) -> Path:
    return data / "public_split" / f"{SHORT[split]}_names.npy"


def captions_file(data: Path) -> Path:
    return data / "annotation" / "RET" / "ref_captions.json"


def set_frames(data: Path, split: str, value, video: int = 1) -> None:
    with h5py.File(feature_file(data, split), "r+") as file:
        del file[f"{split}_{video}"]
        file[f"{split}_{video}"] = value


def set_value(data: Path, split: str, value: float) -> None:
    with h5py.File(feature_file(data, split), "r+") as file:
        file[f"{split}_1"][0, 3] = value


def set_caption(data: Path, split: str, value) -> None:
    captions = json.loads(captions_file(data).read_text())
    captions[f"{split}/0"][1] = value
    write_json(captions_file(data), captions)


def set_names(data: Path, split: str, change, **options) -> None:
    np.save(names_file(data, split), change(np.load(names_file(data, split))), **options)


def cut(file: Path, share: float = 0.6) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * share)])


def describe_twice(data: Path, split: str) -> None:
    text = captions_file(data).read_text()
    captions_file(data).write_text(f'{text[:-1]}, "{split}/2": ["a ghost"]}}')


def set_graphs(data: Path, graph) -> None:
    sentences = {each for captions in json.loads(captions_file(data).read_text()).values() for each in captions}
    write_json(captions_file(data).parent / GRAPHS, dict.fromkeys(sentences, graph))


REFUSED = {
    "no frames of any video": (lambda d, s: set_names(d, s, lambda n: np.char.add(n, "x")), "no frames of any of the"),
    "NaN": (lambda d, s: set_value(d, s, np.nan), r"{split}/1"),
    "infinity": (lambda d, s: set_value(d, s, -np.inf), r"{split}/1"),
    "another width": (lambda d, s: set_frames(d, s, frames(2, 5)), "'{split}/0' have 12 values, of '{split}/1' 5"),
    "no values": (lambda d, s: set_frames(d, s, frames(2, 0)), "'{split}_1' has shape"),
    "a link to a group": (lambda d, s: set_frames(d, s, h5py.SoftLink("/")), "'{split}_1' is a link"),
    "a link to nothing": (lambda d, s: set_frames(d, s, h5py.SoftLink("/x")), "'{split}_1' is a link"),
    "half of an hdf5 file": (lambda d, s: cut(feature_file(d, s)), "{short}_ft.hdf5 cannot be read"),
    "all but the end of it": (lambda d, s: cut(feature_file(d, s), 0.99), "{short}_ft.hdf5 cannot be read"),
    "an empty caption": (lambda d, s: set_caption(d, s, " \n"), "'{split}/0'[1]: empty caption"),
    "a number for a caption": (lambda d, s: set_caption(d, s, 3), "'{split}/0'[1]: the caption is 3, expected a"),
    "no caption": (lambda d, s: set_caption(d, s, None), "'{split}/0'[1]: the caption is None, expected a"),
    "a lone surrogate": (lambda d, s: set_caption(d, s, "a \ud800 dog"), r"'{split}/0'[1]: holds '\ud800'"),
    "captions described twice": (describe_twice, "{split}/2 is described twice"),
    "a name listed twice": (
        lambda d, s: set_names(d, s, lambda n: np.append(n, n[:1])),
        "{split}/0 is listed 2 times",
    ),
    "names of one video": (
        lambda d, s: set_names(d, s, lambda n: np.append(n, f"{s}_0")),
        "'{split}/0' and '{split}_0' are both stored as",
    ),
    "an empty name": (lambda d, s: set_names(d, s, lambda n: np.append(n, "")), "entry {count} has no name"),
    "half of the names": (lambda d, s: cut(names_file(d, s), 0.9), "{short}_names.npy cannot be read"),
    "names of no UTF-8": (lambda d, s: set_names(d, s, lambda n: np.array([b"\xff"])), "a name that is not valid text"),
    "names as objects": (
        lambda d, s: set_names(d, s, lambda n: n.astype(object), allow_pickle=True),
        "convert it with python -c",
    ),
    "no names": (lambda d, s: set_names(d, s, lambda n: n[:0]), "split '{split}': zero videos"),
    "half of the captions": (lambda d, s: cut(captions_file(d)), "ref_captions.json: not JSON"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_video_commands_report_data_errors(case, data, models, tmp_path, capsys):
    """The check lists it for every split, exit code 1; training and evaluation stop with one line before they begin."""
    spoil, said = REFUSED[case]
    expected = {}
    for split in BROKEN:
        count = len(np.load(names_file(data, split)))
        expected[split] = said.format(split=split, short=SHORT[split], count=count)
        spoil(data, split)
    assert main(["data", "check", str(data)]) == 1
    output = capsys.readouterr()
    assert "error: " in output.out
    assert all(text in output.out for text in expected.values())
    assert "vse: error" not in output.err
    recipe = write_toml(tmp_path / "mine.toml", video_values(data, "hgr", schedule=ONE))
    assert main(["train", str(recipe), "--into", str(tmp_path / "run")]) == 1
    assert expected["train"] in error_line(capsys)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    for model in models.values():
        assert main(["eval", model, "--data", str(data)]) == 1
        assert expected["test"] in error_line(capsys)
    assert not (tmp_path / "results.json").exists()


def error_line(capsys) -> str:
    """The one error among what a command narrated; it says nothing about programs."""
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = (line for line in output.err.splitlines() if "error" in line)
    assert line.startswith("vse: error: ")
    assert "--debug" not in line
    return line


def narrow(data: Path, split: str) -> None:
    """All frames of a split with fewer values than those of the others."""
    with h5py.File(feature_file(data, split), "r+") as file:
        for name, array in {name: file[name][...] for name in file}.items():
            del file[name]
            file[name] = array[:, :5]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data: set_value(data, "val", np.nan), "video 'val/1': its frames hold NaN"),
        (lambda data: narrow(data, "val"), f"split 'val': features of 5 values, and the model takes {WIDTH}: extract"),
    ],
)
@pytest.mark.parametrize("model", ["hgr", "vse-infinity"])
def test_training_checks_dev_split_first(spoil, said, model, data, tmp_path, capsys):
    """What is wrong with it stops a run before its first step, and not when an epoch is over."""
    spoil(data)
    recipe = write_toml(tmp_path / "mine.toml", video_values(data, model, schedule=ONE))
    assert main(["train", str(recipe), "--into", str(tmp_path / "run")]) == 1
    assert said in error_line(capsys)
    assert {each.name for each in (tmp_path / "run").iterdir()} <= {"run.json", ".lock"}


def drop_frames(data: Path, split: str) -> None:
    with h5py.File(feature_file(data, split), "r+") as file:
        del file[f"{split}_1"]


LEFT_OUT = {
    "no features": drop_frames,
    "zero frames": lambda data, split: set_frames(data, split, frames(0, WIDTH)),
    "nothing at all": lambda data, split: set_frames(data, split, np.zeros(0)),
    "an empty place": lambda data, split: set_frames(data, split, h5py.Empty("float16")),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_video_commands_skip_video_without_frames(case, data, models, tmp_path, capsys):
    """With its captions, by name and count in what every command says; the others are used."""
    for split in BROKEN:
        LEFT_OUT[case](data, split)
    assert main(["data", "check", str(data), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (found,) = (each for each in report["warnings"] if each["kind"] == "videos without frames, left out")
    assert found["examples"] == ["train: train/1", "test: test/1"]
    recipe = write_toml(tmp_path / "mine.toml", video_values(data, "vse-infinity", schedule=ONE))
    assert main(["train", str(recipe), "--into", str(tmp_path / "run")]) == 0
    error = capsys.readouterr().err
    assert "7 videos with 28 captions" in error
    assert "train: 1 videos without frames are left out, train/1 is the first" in error
    assert main(["eval", models["hgr"], "--data", str(data), "--json", "--samples", "5"]) == 0
    card = json.loads(capsys.readouterr().out)["results"][0]["card"]
    assert (card["videos"], card["captions"], card["dropped"]) == (3, 12, ["test/1"])


def test_video_commands_truncate_long_caption(data, models, tmp_path, capsys):
    """The check says how many are cut; evaluation reads the first thirty, so that what follows them changes nothing."""
    long = "one dog runs " * 10
    scores = []
    for text in (long, long + "sleeps eats swims " * 90):
        for split in BROKEN:
            set_caption(data, split, text)
        assert main(["eval", models["hgr"], "--data", str(data), "--json", "--samples", "5"]) == 0
        scores.append(json.loads(capsys.readouterr().out)["results"][0]["metrics"])
    assert scores[0] == scores[1]
    assert main(["data", "check", str(data)]) == 0
    assert "warning: captions cut after 30 words: 2" in capsys.readouterr().out
    recipe = write_toml(tmp_path / "mine.toml", video_values(data, "hgr", schedule=ONE))
    assert main(["train", str(recipe), "--into", str(tmp_path / "run")]) == 0


@pytest.mark.parametrize("entry", ['{"a dog": [', "[]", {"a": 1}, ["x", []], [{}], 7])
def test_video_commands_refuse_malformed_role_graphs(entry, data, models, tmp_path, capsys):
    """Named by the check and by a model that reads them, each in one line; a model of vectors does without."""
    if isinstance(entry, str):
        (captions_file(data).parent / GRAPHS).write_text(entry)
    else:
        set_graphs(data, entry)
    assert main(["data", "check", str(data)]) == 1
    assert "error: unreadable role graphs" in capsys.readouterr().out
    recipe = write_toml(tmp_path / "mine.toml", video_values(data, "hgr", schedule=ONE))
    assert main(["train", str(recipe), "--into", str(tmp_path / "run")]) == 1
    assert GRAPHS in error_line(capsys)
    assert main(["eval", models["hgr"], "--data", str(data)]) == 1
    assert GRAPHS in error_line(capsys)
    assert main(["eval", models["vse-infinity"], "--data", str(data), "--samples", "5"]) == 0


def test_video_commands_skip_role_graphs_outside_sentence(data, models, tmp_path, capsys):
    """Places that are no words are skipped; the check and every note of such graphs say how many have them."""
    nodes = {"1": {"role": "V", "spans": [1, 77]}, "2": {"role": "ARG1", "spans": [-3]}, "3": 5, "4": {"spans": [0]}}
    set_graphs(data, [nodes, [["1", "2", "ARG1"], ["9", "8", "ARG0"], 5]])
    assert main(["data", "check", str(data)]) == 0
    assert "warning: role graphs with nodes outside of their sentence, left out: " in capsys.readouterr().out
    recipe = write_toml(tmp_path / "mine.toml", video_values(data, "hgr", schedule=ONE))
    assert main(["train", str(recipe), "--into", str(tmp_path / "run")]) == 0
    assert "have nodes outside of their sentence, which are left out" in capsys.readouterr().err
    assert main(["eval", models["hgr"], "--data", str(data), "--json", "--samples", "5"]) == 0
    card = json.loads(capsys.readouterr().out)["results"][0]["card"]
    assert "have nodes outside of their sentence" in card["models"][0]["role_graphs"]


@pytest.mark.parametrize("place", ["names", "folder of npy", "folder of npz", "npz"])
def test_video_commands_refuse_object_arrays(place, data, models, tmp_path, capsys):
    """An array of objects that would run something when it is opened is refused by all commands, and runs nothing."""
    bomb = np.array([Bomb(tmp_path / "fired")], dtype=object)
    given = []
    if place == "names":
        for split in BROKEN:
            set_names(data, split, lambda names: bomb, allow_pickle=True)
    else:
        source = tmp_path / "features"
        source.mkdir()
        stored = {f"{split}_{n}": bomb for split in ("train", "val", "test") for n in range(2)}
        if place == "npz":
            np.savez(source / "all.npz", **stored)
            source = source / "all.npz"
        else:
            for name, array in stored.items():
                if place.endswith("npz"):
                    np.savez(source / name, x=array)
                else:
                    np.save(source / name, array, allow_pickle=True)
        given = ["--features", str(source)]
    assert main(["data", "check", str(data), *given]) == 1
    assert "bject" in capsys.readouterr().out
    recipe = write_toml(tmp_path / "mine.toml", video_values(data, "hgr", schedule=ONE))
    assert main(["train", str(recipe), "--into", str(tmp_path / "run"), *given]) == 1
    assert "bject" in error_line(capsys)
    assert main(["eval", models["hgr"], "--data", str(data), *given]) == 1
    assert "bject" in error_line(capsys)
    assert not (tmp_path / "fired").exists()
