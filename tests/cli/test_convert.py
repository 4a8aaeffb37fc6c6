"""``vse convert``: a checkpoint becomes a model folder, or one error line."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from tests.convert.official_style import SIZE, WORDS, bigru_state, region_state, write
from tests.support_models import assert_same_model, assert_unit, draw_nothing, feature_sets

import vse
from vse.cli.main import main
from vse.convert import load_official
from vse.inputs import Vocabulary
from vse.inputs.vocabulary import FIRST


@pytest.fixture
def checkpoint(tmp_path):
    return write(tmp_path / "official.pth", region_state(), bigru_state(), embed_size=SIZE)


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "vocab.json"
    Vocabulary([*FIRST, "a", "dog", *(f"word{n}" for n in range(WORDS - 7))]).save(path)
    return path


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a subprocess."""
    command = [sys.executable, "-m", "vse", "convert", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_convert_checkpoint_end_to_end(checkpoint, vocabulary, tmp_path):
    """The command writes a folder that encodes like the checkpoint; stdout is one JSON object."""
    done = run(checkpoint, tmp_path / "model", "--vocab", vocabulary, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    reported = json.loads(done.stdout)
    model = vse.load(tmp_path / "model")
    assert reported == {
        "folder": str(tmp_path / "model"),
        "image": "region",
        "text": "bigru",
        "embed_size": SIZE,
        "reads_text": True,
        "fingerprint": model.fingerprint(),
    }
    assert_same_model(model, load_official(checkpoint, vocabulary=vocabulary))
    assert_unit(model.encode_texts(["a dog"]), 1, SIZE)
    assert_unit(model.encode_images(feature_sets(4, width=10)), 1, SIZE)


def test_convert_refuses_file_that_is_not_a_checkpoint(tmp_path):
    """Exit code 1, nothing on stdout, no folder."""
    path = tmp_path / "page.pth"
    path.write_text("<html>log in\nfirst</html>")
    done = run(path, tmp_path / "model")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"vse: error: {path}: ")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "model").exists()


class TestInProcess:
    """The same entry point without the cost of a process."""

    @pytest.fixture(autouse=True)
    def _no_picture(self, monkeypatch):
        draw_nothing(monkeypatch)

    def test_convert_without_vocabulary_names_the_option(self, checkpoint, tmp_path, capsys):
        """The model is converted anyway."""
        assert main(["convert", str(checkpoint), str(tmp_path / "model")]) == 0
        reported = capsys.readouterr().out
        assert "region × bigru" in reported
        assert "--vocab FILE" in reported
        assert vse.load(tmp_path / "model").tokenizer is None

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["{missing}", "{model}"], "no such file"),
            (["{folder}", "{model}"], "a folder, expected a checkpoint"),
            (["{checkpoint}", "{model}", "--vocab", "{missing}"], "no such file"),
            (["{checkpoint}", "{model}", "--vocab", "{small}"], f"6 words with <mask>, but the checkpoint .*{WORDS}"),
            (["{checkpoint}", "{model}", "--tokenizer", "{folder}"], "give its vocabulary"),
            (["{checkpoint}", "{checkpoint}"], "is a file"),
        ],
    )
    def test_convert_failures_are_one_line(self, checkpoint, tmp_path, capsys, arguments, said):
        """Exit code 1 for any problem with the files; nothing is written."""
        small = tmp_path / "small.json"
        Vocabulary([*FIRST, "a"]).save(small)
        before = checkpoint.read_bytes()
        places = {
            "missing": tmp_path / "missing",
            "folder": tmp_path,
            "model": tmp_path / "model",
            "checkpoint": checkpoint,
            "small": small,
        }
        assert main(["convert", *(argument.format(**places) for argument in arguments)]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("vse: error: ")
        assert len(captured.err.splitlines()) == 1
        assert re.search(said, captured.err)
        assert not (tmp_path / "model").exists()
        assert checkpoint.read_bytes() == before

    @pytest.mark.parametrize("arguments", [[], ["only.pth"], ["a.pth", "b", "c"], ["a.pth", "b", "--vocabulary", "x"]])
    def test_convert_usage_errors(self, arguments, capsys):
        """Exit code 2."""
        assert main(["convert", *arguments]) == 2
        assert "vse convert --help" in capsys.readouterr().err

    def test_convert_runs_no_code_in_checkpoint(self, tmp_path, capsys):
        """The file is rejected, and nothing in it is executed."""

        class Trap:
            def __reduce__(self):
                return (open, (str(tmp_path / "mark"), "w"))

        torch.save({"model": [Trap(), {}]}, tmp_path / "trap.pth")
        assert main(["convert", str(tmp_path / "trap.pth"), str(tmp_path / "model")]) == 1
        assert "nothing in it was run" in capsys.readouterr().err
        assert not (tmp_path / "mark").exists()
        assert not (tmp_path / "model").exists()

    def test_convert_again_with_vocabulary(self, checkpoint, vocabulary, tmp_path):
        """The same folder and weights, with the vocabulary."""
        target = tmp_path / "model"
        assert main(["convert", str(checkpoint), str(target)]) == 0
        images = vse.load(target).encode_images(feature_sets(4, width=10))
        assert main(["convert", str(checkpoint), str(target), "--vocab", str(vocabulary)]) == 0
        model = vse.load(target)
        np.testing.assert_array_equal(model.encode_images(feature_sets(4, width=10)), images)
        assert_unit(model.encode_texts(["a dog"]), 1, SIZE)
