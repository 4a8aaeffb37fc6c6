"""What all tests share: the hypothesis profiles and the reference numbers."""

from __future__ import annotations

import importlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:  # each worker has a core; threads of torch would wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Where the tests run in the background of a script, SIGINT is ignored, and by every process that they start, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = Path(__file__).resolve().parents[1]

# Timings are noise on a shared machine, so no deadline. Under CI the examples are the same on every run.
settings.register_profile("local", deadline=None, max_examples=50)
settings.register_profile("ci", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def extras_of_setup() -> set[str]:
    """Return the extras that ``make setup`` names."""
    lines = re.findall(r"^EXTRAS := (?:\$\(EXTRAS\),)?(.*)$", (REPOSITORY / "Makefile").read_text(), flags=re.MULTILINE)
    return {name for line in lines for name in line.split(",")}


def library(module: str, extra: str) -> Any:
    """Import a library that ``extra`` installs, or skip the test.

    Under CI, which runs ``make setup``, a library that cannot be imported is a failure and not a reason to skip.
    """
    if os.environ.get("CI") and extra in extras_of_setup():
        return importlib.import_module(module)
    return pytest.importorskip(module)


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Folders that tests index are recorded beside them, not among those of the user; other processes inherit it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def shared_reference() -> Path:
    """The folder of numbers that the released implementation computed, for parity tests.

    It is not part of the repository: it stands beside it, or where ``VSE_REFERENCE`` points.
    """
    folder = Path(os.environ.get("VSE_REFERENCE") or REPOSITORY.parent / "shared" / "reference")
    if not folder.is_dir():
        pytest.skip("no reference numbers here: set VSE_REFERENCE to their folder")
    return folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real datasets (images, captions, vocabularies), beside the repository or at ``VSE_DATA``."""
    folder = Path(os.environ.get("VSE_DATA") or REPOSITORY.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no real data here: set VSE_DATA to its folder")
    return folder
