"""``vse inspect``: the report, the plot, and errors."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from vse.cli.main import main
from vse.models.card import save_with_card
from vse.models.config import BiGRUConfig, ModelConfig, RegionConfig
from vse.models.inspection import inspect_folder
from vse.models.vse_model import VSEModel


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of a tiny model."""
    text = BiGRUConfig(vocabulary_size=9, word_size=5)
    config = ModelConfig(embed_size=16, image=RegionConfig(feature_size=8, hidden_size=4), text=text)
    return save_with_card(VSEModel.build(config), tmp_path_factory.mktemp("models") / "toy", draw=False)


def test_inspect_prints_text_and_json(saved, capsys):
    """The same report is shown as tables or as one ASCII JSON object; nothing else is printed."""
    assert main(["inspect", str(saved)]) == 0
    output = capsys.readouterr()
    assert "toy" in output.out
    assert "region" in output.out
    assert output.err == ""
    assert main(["inspect", str(saved), "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out) == inspect_folder(saved).to_json()
    assert output.out.isascii()
    assert output.err == ""


def test_inspect_plot(saved, tmp_path, capsys):
    """``--plot`` writes the file, and the report names it."""
    pytest.importorskip("matplotlib")
    path = tmp_path / "new" / "curves.png"
    assert main(["inspect", str(saved), "--plot", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plot"] == str(path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_inspect_refuses_unknown_plot_suffix(saved, tmp_path, capsys):
    """Before the model is looked up."""
    for model in (str(saved), "nowhere"):
        assert main(["inspect", model, "--plot", str(tmp_path / "curves.doc")]) == 2
        output = capsys.readouterr()
        assert output.out == ""
        assert "curves.doc" in output.err
        assert ".png, .svg, .pdf" in output.err


@pytest.mark.parametrize(("content", "words"), [(None, "no such folder"), ({}, "without config.json")])
def test_inspect_refuses_folder_without_model(tmp_path, capsys, content, words):
    """A missing folder and one without a model are named."""
    folder = tmp_path / "empty"
    if content is not None:
        folder.mkdir()
    assert main(["inspect", str(folder)]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("vse: error: ")
    assert len(output.err.splitlines()) == 1
    assert str(folder) in output.err
    assert words in output.err


def test_inspect_loads_no_torch(saved):
    """Neither torch nor matplotlib is loaded."""
    code = (
        "import sys; from vse.cli.main import main; code = main(['inspect', sys.argv[1], '--json']);"
        "print(code, sorted({'torch', 'matplotlib', 'safetensors'} & set(sys.modules)), file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, str(saved)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "0 []\n"
    assert json.loads(done.stdout)["runtime"] == "torch"
