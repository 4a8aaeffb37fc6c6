"""``vse experiment speed`` through the real command."""

import json
import subprocess
import sys

import pytest


def vse(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "vse", *arguments], capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.slow
def test_speed_experiment_quick_run(tmp_path):
    """It ends in one JSON object, a table and an image, and says what was measured and what was not."""
    done = vse("experiment", "speed", "--quick", "--json", "--out", str(tmp_path / "speed"))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["quick"]
    assert "quick version" in result["warning"]
    assert len(result["table"]) == 3 * 5
    assert all(entry["seconds"] > 0 for entry in result["table"])
    assert {e["candidates"] for e in result["table"] if not e["measured"]} == {300, 1000}
    assert json.loads((tmp_path / "speed" / "result.json").read_text()) == result
    assert (tmp_path / "speed" / "table.md").read_text().count("(extrapolated)") == 4
    assert (tmp_path / "speed" / "speed.png").read_bytes().startswith(b"\x89PNG")


def test_speed_experiment_is_listed():
    """``--list`` names it with what it shows."""
    lines = vse("experiment", "--list").stdout.splitlines()
    assert any(line.split()[0] == "speed" and "cross-encoder" in line for line in lines)
