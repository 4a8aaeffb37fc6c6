"""The log: lines of JSON on stderr, from the service and from the libraries below it."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

SERVICE = "vse.service"


class JsonLines(logging.Formatter):
    """One line for each record; those of the service are JSON already."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name == SERVICE:
            return record.getMessage()
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr(*, requests: bool) -> None:
    """Write errors, and requests if they are wanted, to stderr, unless the program has decided otherwise already."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger(SERVICE).setLevel(logging.INFO if requests else logging.WARNING)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # its warnings are about what strangers send
