"""Checkpoints and vocabularies by their name on the hub, which is never asked: the files are local."""

from __future__ import annotations

import shutil

import pytest
import torch
from tests.convert.official_style import SIZE, WORDS, bigru_state, region_state, write
from tests.support_models import assert_unit, draw_nothing

import vse
from vse.cli.main import main
from vse.convert import load_official
from vse.inputs import Vocabulary
from vse.inputs.vocabulary import FIRST

hub = pytest.importorskip("huggingface_hub")
CHECKPOINT = "hub:cccjc/vse-infty@abc/f30k_butd_region_bigru/model_best.pth"
VOCABULARY = "hub:owner/words/vocab/f30k_precomp_vocab.json"


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch):
    draw_nothing(monkeypatch)


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What was asked of the hub; it has the files in ``tmp_path / "hub"``."""
    calls = []

    def download(repo_id, filename, *, revision=None):
        calls.append((repo_id, filename, revision))
        found = tmp_path / "hub" / filename
        if not found.is_file():
            raise FileNotFoundError(f"404 Client Error.\n\nEntry Not Found for url: https://hub.example/{filename}.")
        return str(found)

    monkeypatch.setattr(hub, "hf_hub_download", download)
    folder = tmp_path / "hub" / "f30k_butd_region_bigru"
    folder.mkdir(parents=True)
    write(folder / "model_best.pth", region_state(), bigru_state(), embed_size=SIZE)
    words = tmp_path / "hub" / "vocab" / "f30k_precomp_vocab.json"
    words.parent.mkdir()
    Vocabulary([*FIRST, "a", "dog", *(f"word{n}" for n in range(WORDS - 7))]).save(words)
    return calls


def test_convert_fetches_checkpoint_and_vocabulary(asked, tmp_path, capsys):
    """The model is that of the local files; its card says where it came from."""
    assert main(["convert", CHECKPOINT, str(tmp_path / "model"), "--vocab", VOCABULARY]) == 0
    assert asked == [
        ("cccjc/vse-infty", "f30k_butd_region_bigru/model_best.pth", "abc"),
        ("owner/words", "vocab/f30k_precomp_vocab.json", None),
    ]
    model = vse.load(tmp_path / "model")
    checkpoint = tmp_path / "hub" / "f30k_butd_region_bigru" / "model_best.pth"
    words = tmp_path / "hub" / "vocab" / "f30k_precomp_vocab.json"
    assert model.fingerprint() == load_official(checkpoint, vocabulary=words).fingerprint()
    assert_unit(model.encode_texts(["a dog"]), 1, SIZE)
    assert model.config.about.name == "f30k_butd_region_bigru-model_best"
    assert model.config.about.source == f"converted from {CHECKPOINT}"


def test_convert_of_released_style_checkpoint_from_hub(asked, shared_reference, tmp_path):
    """A file that the released code wrote."""
    shutil.copy(shared_reference / "official_style_checkpoint.pth", tmp_path / "hub" / "released.pth")
    found = load_official("hub:cccjc/vse-infty/released.pth")
    assert found.fingerprint() == load_official(shared_reference / "official_style_checkpoint.pth").fingerprint()


@pytest.mark.parametrize(
    "arguments",
    [["hub:cccjc/vse-infty/none.pth", "{model}"], [CHECKPOINT, "{model}", "--vocab", "hub:owner/words/none.json"]],
)
def test_convert_of_unreachable_hub_file_leaves_nothing(asked, arguments, tmp_path, capsys):
    """One line that names the file and the reason; no folder."""
    model = tmp_path / "model"
    assert main(["convert", *(argument.format(model=model) for argument in arguments)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert "could not be fetched from the hub: 404 Client Error. Entry Not Found" in captured.err
    assert next(argument for argument in arguments if "none" in argument) in captured.err
    assert not model.exists()


def test_convert_without_network_says_so(tmp_path, capsys, monkeypatch):
    """The hub's own client, told to stay offline."""
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    assert main(["convert", "hub:nobody/nothing/model_best.pth", str(tmp_path / "model")]) == 1
    error = capsys.readouterr().err
    assert "'hub:nobody/nothing/model_best.pth' could not be fetched from the hub: " in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "model").exists()


def test_convert_runs_no_code_in_hub_checkpoint(asked, tmp_path, capsys):
    """The restricted reader reads files of the hub too."""

    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "mark"), "w"))

    torch.save({"model": [Trap(), {}]}, tmp_path / "hub" / "trap.pth")
    assert main(["convert", "hub:cccjc/vse-infty/trap.pth", str(tmp_path / "model")]) == 1
    assert "nothing in it was run" in capsys.readouterr().err
    assert not (tmp_path / "mark").exists()
    assert not (tmp_path / "model").exists()
