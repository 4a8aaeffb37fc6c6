"""Run ``vse serve`` as a separate process, and measure what it costs."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

ANSWER_SECONDS, STOP_SECONDS = 60, 30


class Answer(NamedTuple):
    """A response with status 200."""

    headers: http.client.HTTPMessage
    body: bytes


class Server:
    """A service over the collection at ``index`` for the duration of the ``with`` block."""

    def __init__(self, index: Path) -> None:
        self.index = index
        self.address = ""

    def __enter__(self) -> Self:
        command = [str(Path(sys.executable).with_name("vse")), "serve", str(self.index), "--port", "0", "--json"]
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)
        try:
            self.address = self._announced()
            self._connection = connect(self.address)
            self._await_answer()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def ask(self, path: str) -> Answer:
        """Return what is at ``path``, over a connection that is kept for the next request."""
        self._connection.request("GET", path)
        response = self._connection.getresponse()
        answer = Answer(response.headers, response.read())
        if response.status != http.client.OK:
            raise SystemExit(f"{path} was answered with {response.status}: {answer.body[:200]!r}")
        return answer

    def resident(self) -> int:
        """Return the resident bytes of the process."""
        status = Path(f"/proc/{self._process.pid}/status").read_text("utf-8")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def processor(self) -> float:
        """Return the processor seconds of the process so far, in all of its threads."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        user, system = fields[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def _announced(self) -> str:
        """Return the address from the JSON object that the command prints when it has opened the collection."""
        said = ""
        for line in self._process.stdout or ():
            said += line
            if line.rstrip() == "}":
                return str(json.loads(said)["address"])
        raise SystemExit(f"vse serve {self.index} did not start: {self._complaint()}")

    def _await_answer(self) -> None:
        try:
            self.ask("/healthz")
        except OSError as error:
            raise SystemExit(f"vse serve {self.index} does not answer ({error}): {self._complaint()}") from None

    def _complaint(self) -> str:
        self._log.seek(0)
        return self._log.read()[-2000:].strip() or f"exit code {self._process.poll()}, and no message"

    def _stop(self) -> None:
        if self.address:
            self._connection.close()
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()


def connect(address: str) -> http.client.HTTPConnection:
    """Return a keep-alive connection to ``http://HOST:PORT/``."""
    return http.client.HTTPConnection(address.removeprefix("http://").rstrip("/"), timeout=ANSWER_SECONDS)
