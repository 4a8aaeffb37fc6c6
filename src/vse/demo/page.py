"""The page over what was indexed: for a person until Ctrl-C, elsewhere for one question."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode
from urllib.request import urlopen

from vse.errors import VSEError

if TYPE_CHECKING:
    from vse.service.settings import ServiceSettings

SECONDS = 60.0


def show_page(collection: Path, say: Callable[[str], None]) -> None:
    """Serve the collection until Ctrl-C, which is the way to end it."""
    from vse.service.run import run_service

    def ready(address: str) -> None:
        say(f"the page: {address}   (Ctrl-C ends it; 'vse serve {collection}' shows it again)")

    with suppress(KeyboardInterrupt):
        run_service(str(collection), _settings(), ready=ready)


def try_page(collection: Path, question: str, say: Callable[[str], None]) -> None:
    """Start the service as its command does, get the page, ask one question, and stop it."""
    command = [sys.executable, "-m", "vse", "serve", str(collection), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as service:
        try:
            address = _address(service)
            page = _get(address)
            found = json.loads(_get(f"{address}api/v1/search?{urlencode({'q': question, 'k': 1})}"))
        finally:
            service.terminate()
            service.communicate(timeout=SECONDS)
    best = found["results"][0]
    place = "/".join(part for part in (best["folder"], best["name"]) if part)
    say(
        f"the page: {address} ({len(page):,} bytes) answered {question!r} with {place} in "
        f"{found['milliseconds']:.0f} ms, and was stopped; 'vse serve {collection}' shows it"
    )


def _settings() -> ServiceSettings:
    """The usual port, or any when something else has it."""
    from vse.service.server import listen
    from vse.service.settings import ServiceSettings

    usual = ServiceSettings(log_requests=False)
    try:
        listen(usual).close()
    except VSEError:
        return replace(usual, port=0)
    return usual


def _address(service: subprocess.Popen[str]) -> str:
    lines = []
    for line in service.stdout or ():
        lines.append(line)
        if line.startswith("}"):
            return str(json.loads("".join(lines))["address"])
    trouble = (service.stderr.read() if service.stderr else "").strip().splitlines()
    raise VSEError(f"the service did not start: {trouble[-1] if trouble else 'no reason was given'}")


def _get(address: str) -> str:
    with urlopen(address, timeout=SECONDS) as answer:
        return str(answer.read().decode())
