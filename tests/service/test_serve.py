"""``vse serve`` as a command: its output, what it loads, and its errors."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys

import httpx2
import numpy as np
import pytest
from tests.service.support import API, KEY, Home, make_home, started
from tests.systems.support_pairs import reranking_model

from vse.cli.main import main

HEAVY = ("torch", "transformers", "timm", "matplotlib", "scipy", "nltk", "safetensors", "huggingface_hub", "pymilvus")
LOADED = """
import json, sys, threading, urllib.request
from vse.cli import serve
from vse.cli.main import main
def asked(listening, **_):
    def ask():
        for path in ("search?q=snow", "items", "items/1/thumbnail", "collection", "model/curves"):
            urllib.request.urlopen(listening.address + "api/v1/" + path).read()
        print(json.dumps(sorted(sys.modules)), flush=True)
    threading.Thread(target=ask, daemon=True).start()
serve.show = asked
main(["serve", sys.argv[1], "--port", "0"])
"""


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "vse", "serve", *map(str, arguments)]


def listening(process: subprocess.Popen[str]) -> dict[str, str]:
    """The JSON object that is printed when the service is ready, and nothing after it."""
    assert process.stdout
    lines = []
    for line in process.stdout:  # ends with the process, too
        lines.append(line)
        if line == "}\n":
            break
    found: dict[str, str] = json.loads("".join(lines))
    return found


def without_key() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "VSE_API_KEY"}


@pytest.fixture
def refused(monkeypatch, capsys):
    """The error line of a call that fails before serving."""
    monkeypatch.delenv("VSE_API_KEY", raising=False)
    monkeypatch.setattr("vse.service.server.serve", None)

    def line_of(code: int, *arguments: object) -> str:
        assert main(["serve", *map(str, arguments)]) == code
        output = capsys.readouterr()
        assert output.out == ""
        (line,) = output.err.splitlines()
        assert line.startswith("vse: error: ")
        return str(line)

    return line_of


def test_serve_prints_the_url(home, tmp_path):
    """As a line or as JSON; from then on it accepts connections."""
    with started(command(home.index, "--port", 0, "--json"), tmp_path / "log", env=without_key()) as process:
        said = listening(process)
        assert said["index"] == str(home.index)
        assert said["api"] == f"{said['address']}api/v1/"
        assert httpx2.get(f"{said['api']}search?q=snow", trust_env=False).status_code == 200
    with started(command(home.index, "--port", 0), tmp_path / "log", env=without_key()) as process:
        assert process.stdout
        assert process.stdout.readline().startswith(f"{home.index} is at http://127.0.0.1:")


def test_serve_loads_no_torch(home, tmp_path):
    """An exported model is served without torch or other heavy packages, whatever is requested."""
    with started([sys.executable, "-c", LOADED, str(home.index)], tmp_path / "log", env=without_key()) as process:
        assert process.stdout
        loaded = json.loads(process.stdout.readline())
    assert "vse.service.app" in loaded
    assert "onnxruntime" in loaded
    assert not set(HEAVY) & set(loaded)


@pytest.mark.parametrize(("options", "logged"), [([], True), (["--no-log"], False), (["--log-queries"], True)])
def test_serve_logs_requests(home, tmp_path, options, logged):
    """One line per request unless switched off; by default if stderr is a file."""
    with started(command(home.index, "--port", 0, "--json", *options), tmp_path / "log", env=without_key()) as process:
        address = listening(process)["address"]
        assert httpx2.get(f"{address}healthz?asked=this", trust_env=False).status_code == 200
        process.send_signal(signal.SIGTERM)
        process.wait(10)
    log = (tmp_path / "log").read_text()
    assert [json.loads(line)["route"] for line in log.splitlines()] == (["/healthz"] if logged else [])
    assert ("asked=this" in log) == ("--log-queries" in options)


def test_serve_logs_nothing_to_a_terminal(home):
    """So that the URL of the page stays visible."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(command(home.index, "--port", 0), stdout=theirs, stderr=theirs, env=without_key())
    os.close(theirs)
    try:
        said = os.read(ours, 10_000).decode()
        address = next(word for word in said.split() if word.startswith("http://"))
        assert httpx2.get(f"{address}healthz", trust_env=False).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        with contextlib.suppress(OSError):  # the writer is gone
            assert os.read(ours, 10_000) == b""
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_serve_reranks_with_the_model_of_its_command(home, tmp_path, refused):
    """A client that asks gets SCAN's scores of the image files; a model with embeddings is refused before serving."""
    scan = reranking_model()
    scan.save(tmp_path / "scan")
    call = command(home.index, "--port", 0, "--json", "--rerank", tmp_path / "scan")
    with started(call, tmp_path / "log", env=without_key()) as process:
        asked = {"q": "a dog", "type": "image", "rerank": "true", "depth": 3}
        found = httpx2.get(f"{listening(process)['api']}search", params=asked, trust_env=False).json()
    assert found["reranking"]["scored"] == 3
    scores = [result["rerank_score"] for result in found["results"]][:3]
    paths = [home.photos / result["path"] for result in found["results"]][:3]
    np.testing.assert_allclose(scores, scan.score_pairs(paths, ["a dog"])[:, 0], atol=1e-5)
    assert scores == sorted(scores, reverse=True)
    assert "cannot re-rank" in refused(1, home.index, "--rerank", home.model)


@pytest.mark.parametrize("given", ["file", "variable"])
def test_serve_reads_the_key(home, tmp_path, given):
    """From a file or from the environment; then any address and host name is allowed."""
    (tmp_path / "key").write_text(f"{KEY}\n")
    arguments = ["--key-file", tmp_path / "key"] if given == "file" else []
    env = without_key() | ({"VSE_API_KEY": KEY} if given == "variable" else {})
    call = command(home.index, "--port", 0, "--host", "0.0.0.0", "--json", *arguments)
    with started(call, tmp_path / "log", env=env) as process:
        address = listening(process)["address"]
        assert httpx2.get(f"{address}{API[1:]}/items", trust_env=False).status_code == 401
        headers = {"authorization": f"Bearer {KEY}", "host": "photos.example"}
        assert httpx2.get(f"{address}{API[1:]}/items", headers=headers, trust_env=False).status_code == 200


def test_serve_rejects_invalid_options(home, tmp_path, refused, monkeypatch):
    """Exit code 2 and one line, before anything is opened; a bad key is not printed."""
    monkeypatch.setattr("vse.service.server.listen", None)
    assert "set a key" in refused(2, home.index, "--host", "0.0.0.0")
    assert "70000" in refused(2, home.index, "--port", 70000)
    (tmp_path / "empty").touch()
    for file in (tmp_path / "empty", tmp_path / "none", tmp_path):
        assert str(file) in refused(2, home.index, "--key-file", file)
    monkeypatch.setenv("VSE_API_KEY", "too-short-a-key")
    line = refused(2, home.index)
    assert "16" in line
    assert "too-short-a-key" not in line


def test_serve_reports_what_cannot_be_served(home, models, tmp_path, refused):
    """Exit code 1 and one line: no collection, no model, another model, a port in use."""
    assert "'vse index' creates one" in refused(1, tmp_path / "none", "--port", 0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port} cannot be used" in refused(1, home.index, "--port", port)
    assert "vse collection upgrade" in refused(1, home.index, "--port", 0, "--model", models / "newer")
    shutil.copytree(models / "old", tmp_path / "model")
    moved: Home = make_home(tmp_path / "home", tmp_path / "model")
    (tmp_path / "model").rename(tmp_path / "elsewhere")
    assert "name it with --model" in refused(1, moved.index, "--port", 0)
    with started(command(moved.index, "--port", 0, "--model", tmp_path / "elsewhere"), tmp_path / "log") as process:
        assert process.stdout
        assert "http://" in process.stdout.readline()
