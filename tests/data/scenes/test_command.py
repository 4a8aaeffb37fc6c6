"""The function behind ``vse data scenes``: data on stdout, narration on stderr."""

from __future__ import annotations

import json

from vse.cli.data import scenes


def test_data_scenes_prints_one_json_object(tmp_path, capsys):
    """With ``--json`` stdout is one object that says where the dataset is and what it holds."""
    scenes(tmp_path / "set", train=2, dev=1, test=1, size=32, as_json=True)
    output = capsys.readouterr()
    result = json.loads(output.out)
    assert result["images"] == {"train": 2, "dev": 1, "test": 1}
    assert result["captions"] == 20
    assert json.loads((tmp_path / "set" / "dataset_scenes.json").read_text())["images"]
    assert "drawing scenes" in output.err


def test_data_scenes_output_names_annotation_file(tmp_path, capsys):
    """The text for people ends with the file to open; brackets in its path are not taken for markup."""
    folder = tmp_path / "[bold]set"
    scenes(folder, train=1, dev=0, test=0, size=32)
    assert str(folder / "dataset_scenes.json") in capsys.readouterr().out
