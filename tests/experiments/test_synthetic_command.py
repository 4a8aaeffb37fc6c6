"""``vse experiment synthetic`` through the real command, killed in the middle and continued."""

import json
import signal
import subprocess
import sys
import time

COMMAND = [sys.executable, "-m", "vse", "experiment", "synthetic", "--quick", "--json", "--jobs", "2"]
RUNS = 20


def test_synthetic_experiment_resumes_after_kill(tmp_path):
    """A killed experiment resumes and ends in a JSON object, a table and a plot."""
    out = tmp_path / "synthetic"
    first = subprocess.Popen([*COMMAND, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(finished := sorted((out / "runs").glob("*.json"))) < 3:
        assert first.poll() is None, "the experiment ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = {path: path.stat().st_mtime_ns for path in finished}

    second = subprocess.run([*COMMAND, "--out", str(out)], capture_output=True, text=True, timeout=240, check=False)
    assert second.returncode == 0, second.stderr
    assert f"of {RUNS} runs were done before" in second.stderr
    assert len(list((out / "runs").glob("*.json"))) == RUNS
    assert all(path.stat().st_mtime_ns == written for path, written in kept.items())

    result = json.loads(second.stdout)
    assert len(result["table"]) == 4 * 5 * 3
    assert all(entry["rmse"] >= 0 for entry in result["table"])
    assert json.loads((out / "result.json").read_text())["table"] == result["table"]
    assert (out / "table.md").read_text().count("| Cos/Sin + BiGRU | 1 |") == 3
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
