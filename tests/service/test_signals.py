"""Shutdown: running requests finish, new ones are refused, and nobody can block it."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time

import httpx2
import pytest
from tests.service.support import API, id_of, service, soon, started

from vse.service import ServiceSettings
from vse.service.server import listen, until_sigterm

SLOW = """
import sys, time
from vse.service.state import LoadedCollection
ask = LoadedCollection.encode
LoadedCollection.encode = lambda self, query: (time.sleep(float(query.texts[0].split()[-1])), ask(self, query))[1]
"""


@pytest.fixture
def patched(monkeypatch):
    """Makes searches take as many seconds as their last word says."""
    from tests.service import support

    monkeypatch.setattr(support, "PROGRAM", SLOW + support.PROGRAM)


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, -signal.SIGINT)])
def test_running_request_finishes_before_exit(home, tmp_path, patched, number, code):
    """It is answered, new connections are refused meanwhile, and then the process ends: 0 for SIGTERM."""
    with service(home.index, tmp_path) as served:
        responses = []
        asked = threading.Thread(target=lambda: responses.append(served.client.get(f"{API}/search?q=snow 2")))
        asked.start()
        assert soon(
            lambda: "vse_requests_under_way 2.0" in httpx2.get(f"{served.address}metrics", trust_env=False).text
        )
        served.process.send_signal(number)
        assert soon(lambda: refuses(served.port))
        assert served.process.poll() is None
        asked.join()
        assert responses[0].status_code == 200
        assert len(responses[0].json()["results"]) > 3
        assert served.process.wait(5) == code


def test_idle_connections_do_not_delay_shutdown(home, tmp_path):
    """Kept alive or with incomplete headers, they are closed at once."""
    with service(home.index, tmp_path, limits={"drain_seconds": 20}) as served:
        assert served.client.get("/healthz").status_code == 200
        with socket.create_connection(("127.0.0.1", served.port)) as half:
            half.sendall(b"GET /healthz HTTP/1.1\r\n")
            time.sleep(0.2)
            served.process.send_signal(signal.SIGTERM)
            assert served.process.wait(5) == 0
        assert served.lines()[-1]["route"] == "/healthz"


@pytest.mark.parametrize("hanging", ["reads nothing", "sends nothing"])
def test_hanging_client_delays_shutdown_by_the_drain_time(own, tmp_path, hanging):
    """Then the service exits with 0, and the log has nothing but JSON and no traceback."""
    with (own.photos / "clip.mp4").open("ab") as file:
        file.truncate(60_000_000)
    with service(own.index, tmp_path, limits={"drain_seconds": 1}) as served:
        item = id_of(served.client, "clip.mp4")
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            if hanging == "reads nothing":
                client.sendall(f"GET {API}/items/{item}/media HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            else:
                kind = "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 1000"
                client.sendall(f"POST {API}/search HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n\r\n".encode())
            time.sleep(0.3)
            began = time.monotonic()
            served.process.send_signal(signal.SIGTERM)
            assert served.process.wait(10) == 0
            assert 0.8 < time.monotonic() - began < 6
            if hanging == "sends nothing":
                assert client.recv(1000).startswith(b"HTTP/1.1 503 ")
        assert "traceback" not in served.log.read_text().lower()
        assert served.lines()


def test_stuck_computation_does_not_block_shutdown(home, tmp_path, patched):
    """It got 503 and continues in its thread; the process exits with 0 without it."""
    with service(home.index, tmp_path, limits={"seconds": 0.5, "drain_seconds": 1}) as served:
        assert served.client.get(f"{API}/search?q=snow 60").status_code == 503
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(10) == 0


def test_serve_exit_codes_of_signals(home, tmp_path):
    """SIGTERM ends ``vse serve`` with 0 and Ctrl-C with 130, both without a traceback."""
    for number, code, words in ((signal.SIGTERM, 0, ""), (signal.SIGINT, 130, "vse: interrupted\n")):
        command = [sys.executable, "-m", "vse", "serve", str(home.index), "--port", "0"]
        with started(command, tmp_path / "log") as process:
            assert process.stdout
            line = process.stdout.readline()
            address = next(word for word in line.split() if word.startswith("http://"))
            assert httpx2.get(f"{address}healthz", trust_env=False).status_code == 200
            process.send_signal(number)
            assert process.wait(10) == code
        log = (tmp_path / "log").read_text()
        assert "Traceback" not in log
        assert log.endswith(words)


def test_until_sigterm_restores_the_handler():
    """SIGTERM leaves the block, continues after it, and the previous handler is back."""
    before, done = signal.getsignal(signal.SIGTERM), []
    with until_sigterm():
        done.append("begun")
        os.kill(os.getpid(), signal.SIGTERM)
        done.append("not stopped")
    assert done == ["begun"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_port_is_open_before_loading():
    """A client that got the URL can connect at once: the port listens before anything is loaded."""
    with listen(ServiceSettings(port=0)) as listener:
        assert not refuses(listener.getsockname()[1])
