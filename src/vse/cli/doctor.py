"""``vse doctor``: report versions, libraries, devices, models and plugins, and test that searching works."""

from __future__ import annotations

import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from vse._version import __version__
from vse.cli.console import show
from vse.cli.options import JsonOption
from vse.errors import DISTRIBUTION, VSEError, first_line

FAILED = 1
HIDDEN_EXTRAS = {"dev", "torch"}  # for contributors; a former name


@dataclass(frozen=True)
class Check:
    """One step of the self-test; ``problem`` is None if it passed."""

    name: str
    detail: str
    problem: str | None = None


@dataclass(frozen=True)
class DoctorReport:
    """What is installed, and whether it works.

    ``extras`` maps an extra to the libraries that it lacks here; ``plugins`` are (group, name, distribution).
    """

    versions: dict[str, str]
    extras: dict[str, list[str]]
    devices: list[str]
    models: dict[str, str]
    plugins: list[tuple[str, str, str]]
    checks: list[Check]

    @property
    def ok(self) -> bool:
        """Whether every step of the self-test passed."""
        return all(check.problem is None for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def doctor(
    test: Annotated[
        bool, typer.Option("--test/--no-test", help="Encode a text and images, and search a small collection.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Report what is installed, and test that it works.

    Reports versions, extras, devices, models and plugins. The exit code is 1 if the self-test fails.
    """
    report = examine(test=test)
    show(report, as_json=as_json)
    if not report.ok:
        raise typer.Exit(FAILED)


def examine(*, test: bool = True) -> DoctorReport:
    """Return the report; without ``test`` it has no checks, and is quick."""
    from vse._util.plugins import list_plugins

    versions = {
        "vse": f"{__version__} in {Path(__file__).parents[1]}",
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.platform()}, {os.cpu_count()} cores",
    }
    libraries, extras = _libraries()
    checks = self_test() if test else []
    return DoctorReport(versions | libraries, extras, _devices(), _models(), list_plugins(), checks)


def _libraries() -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the versions of the installed libraries, and what each extra lacks; nothing is imported."""
    from importlib.metadata import PackageNotFoundError, requires, version

    try:
        declared = requires(DISTRIBUTION) or []
    except PackageNotFoundError:  # the source tree on the path
        return {}, {}
    installed: dict[str, str] = {}
    missing: dict[str, list[str]] = {}
    for requirement in declared:
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        group = extra[1] if extra else "base"
        if group in HIDDEN_EXTRAS or name == DISTRIBUTION or "win32" in requirement:
            continue
        missing.setdefault(group, [])
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            missing[group].append(name)
    return installed, missing


def _devices() -> list[str]:
    """Return the devices that models can run on."""
    found = ["cpu"]
    try:
        import onnxruntime

        providers = onnxruntime.get_available_providers()
        found += [f"ONNX Runtime: {name.removesuffix('ExecutionProvider')}" for name in providers if "CPU" not in name]
    except ImportError:
        pass
    try:
        import torch
    except (ImportError, OSError):  # OSError: a build for another system
        return found
    found += [f"torch: cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append("torch: mps")
    return found


def _models() -> dict[str, str]:
    """Return the folders of bundled and installed models by name."""
    from vse.models.sources import list_installed, shipped_folder

    try:
        return {name: str(shipped_folder(name)) for name in list_installed()}
    except VSEError as error:  # a broken plugin; the rest of the report is still of use
        return {"": str(error)}


def self_test() -> list[Check]:
    """Load the default model, encode, index and search, in a temporary folder; stop at the first failure."""
    state: dict[str, Any] = {}
    checks: list[Check] = []
    with tempfile.TemporaryDirectory(prefix="vse-doctor-") as place:
        for name, step in (("model", _load), ("encode", _encode), ("index", _index), ("search", _search)):
            check = _tried(name, step, state, Path(place))
            checks.append(check)
            if check.problem is not None:
                break
    return checks


def _tried(name: str, step: Callable[[dict[str, Any], Path], str], state: dict[str, Any], place: Path) -> Check:
    try:
        return Check(name, step(state, place))
    except Exception as error:  # noqa: BLE001 (a failure of any kind is what is reported here)
        kind = "" if isinstance(error, VSEError) else f"{type(error).__name__}: "
        return Check(name, "failed", f"{kind}{first_line(error)}")


def _load(state: dict[str, Any], place: Path) -> str:
    from vse.models.sources import DEFAULT, load_towers

    state["model"] = load_towers(DEFAULT)
    return f"{DEFAULT}, fingerprint {state['model'].fingerprint()}"


def _encode(state: dict[str, Any], place: Path) -> str:
    import numpy as np
    from PIL import Image

    colours = {"red": (200, 30, 30), "green": (30, 160, 60), "blue": (40, 60, 200)}
    for name, colour in colours.items():
        (place / "images").mkdir(exist_ok=True)
        Image.new("RGB", (96, 64), colour).save(place / "images" / f"{name}.png")
    images = state["model"].encode_images(sorted((place / "images").glob("*.png")))
    texts = state["model"].encode_texts(["a red wall"])
    norms = np.linalg.norm(np.concatenate([images, texts]), axis=1)
    if not np.allclose(norms, 1, atol=1e-3):
        raise VSEError(f"embeddings have norms {norms.round(3).tolist()}, expected 1")
    return f"{len(images)} images and a text to {images.shape[1]} dimensions"


def _index(state: dict[str, Any], place: Path) -> str:
    from vse.index.open import create_collection
    from vse.index.pipeline import index_folder
    from vse.models.sources import DEFAULT

    model = state["model"]
    where = place / "test.vse"
    with closing(
        create_collection(where, model=model.fingerprint(), model_source=DEFAULT, dimensions=model.embed_size)
    ) as collection:
        index_folder(collection, model, place / "images")
        files = collection.info().files
    if files != 3:
        raise VSEError(f"{files} of 3 images were indexed")
    return f"{files} images"


def _search(state: dict[str, Any], place: Path) -> str:
    from vse.index.item_search import search
    from vse.index.open import open_collection
    from vse.index.query import Query

    with closing(open_collection(place / "test.vse")) as collection:
        query = Query(images=(place / "images" / "blue.png",))
        found = search(collection, query, 1, model=state["model"], cutoff=0.0).results
        words = search(collection, "a red wall", 3, model=state["model"], cutoff=0.0).results
    if not found or Path(found[0].path).name != "blue.png":
        raise VSEError(f"an image did not find itself but {found[0].path if found else 'nothing'}")
    if len(words) != 3:
        raise VSEError(f"a text found {len(words)} of 3 images")
    return "by image and by text"
