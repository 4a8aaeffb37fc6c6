"""``vse data vocabulary``."""

from __future__ import annotations

import json
import subprocess
import sys

from vse.inputs import Vocabulary


def test_vocabulary_from_training_captions(tmp_path):
    """Words of the test split stay unknown; BiGRU models read the file."""
    rows = ["path,caption,split"]
    rows += [f"{n}.jpg,a dog runs,train" for n in range(4)] + [f"{n}.jpg,a zebra runs,test" for n in range(9)]
    (tmp_path / "data.csv").write_text("\n".join(rows))
    command = ["data", "vocabulary", tmp_path / "data.csv", "--into", tmp_path / "words.json", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "vse", *map(str, command)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    words = Vocabulary.load(tmp_path / "words.json")
    assert "dog" in words
    assert "zebra" not in words
    assert json.loads(done.stdout)["words"] == len(words)
