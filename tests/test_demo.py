"""``vse demo`` through the real command."""

import json
import subprocess
import sys
from pathlib import Path


def test_demo_finds_both_hidden_poolings(tmp_path):
    """The demonstration ends with two learned curves, close to the hidden ones, and their pictures."""
    out = tmp_path / "demo folder"
    command = [sys.executable, "-m", "vse", "demo", "--json", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result == json.loads((out / "result.json").read_text())
    five_largest, extremes = result["lessons"]
    assert five_largest["nearest_k_max_at_36"] == 5
    assert five_largest["coefficient_rmse"]["seen"] < 0.02
    assert extremes["coefficient_rmse"]["seen"] < 0.02
    for lesson in result["lessons"]:
        assert lesson["frozen_table_difference"] <= 1e-6
        assert Path(lesson["picture"]).read_bytes().startswith(b"\x89PNG")
