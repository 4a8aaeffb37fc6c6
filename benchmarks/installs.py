"""What each install brings: packages, size on disk, and the cost of its first import, in clean environments.

``python benchmarks/installs.py`` creates a virtual environment per install in a temporary folder, installs from this
checkout under ``constraints.txt``, checks that the install does its job, and prints a Markdown table. It downloads
about 1 GB the first time. ``--only pooling`` measures one install; ``--wheels DIR`` installs the wheels in ``DIR``
(``make dist`` builds them) instead of the checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
REPEATS = 5


@dataclass(frozen=True)
class Install:
    """An install: its extras, whether it includes the photo model, and statements that prove that it works.

    ``first`` is the import that is measured; ``check`` prints ``ok``.
    """

    extras: str
    photo: bool
    first: str
    check: str


POOL = "import torch; from vse.pooling import GPO; print('ok' if GPO()(torch.zeros(2, 3, 4)).shape == (2, 4) else '')"
MODEL = "import vse; print('ok' if vse.load('photo').encode_texts(['a dog']).shape == (1, 512) else '')"
BUILT = "import vse.training, vse.evaluation, vse.models; from vse.models import VSEModel; print('ok')"
INSTALLS = {
    "base": Install("", False, "import vse", "import vse; print('ok' if vse.__version__ else '')"),
    "pooling": Install("pooling", False, "from vse.pooling import GPO", POOL),
    "search": Install("search", True, "from vse.index import open_collection, search", MODEL),
    "train": Install("train", False, "from vse.training import train_recipe", BUILT),
}


def run(*command: object, cwd: Path) -> str:
    """Run a command that sees neither this checkout nor this environment; return its stdout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def measure(name: str, install: Install, home: Path, wheels: Path | None) -> dict[str, object]:
    """Create the environment in ``home``, and return its figures."""
    run(sys.executable, "-m", "venv", home, cwd=home.parent)
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    before = size_of(home), packages_of(python, home)
    extras = f"[{install.extras}]" if install.extras else ""
    pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", REPOSITORY / "constraints.txt")
    if wheels is not None:  # by their paths: the names are not registered on the package index
        photo = tuple(wheels.glob("vse_infinity_photo-*.whl")) if install.photo else ()
        (wheel,) = wheels.glob("vse_infinity-*.whl")
        run(*pip, *photo, f"{wheel}{extras}", cwd=home)
    else:
        photo = (REPOSITORY / "packages" / "photo",) if install.photo else ()
        run(*pip, *photo, f"{REPOSITORY}{extras}", cwd=home)
    if run(python, "-c", install.check, cwd=home).strip() != "ok":
        sys.exit(f"{name}: the check failed: {install.check}")
    loaded = "import json, sys; print(json.dumps(sorted({n.partition('.')[0] for n in sys.modules})))"
    plain = set(json.loads(run(python, "-c", loaded, cwd=home)))
    roots = set(json.loads(run(python, "-c", f"{install.first}; {loaded}", cwd=home))) - plain
    heavy = sorted(roots & {"torch", "numpy", "onnxruntime", "faiss", "av", "PIL", "fastapi", "pydantic", "numba"})
    return {
        "install": name,
        "packages": len(packages_of(python, home) - before[1]),
        "megabytes": round((size_of(home) - before[0]) / 1e6, 1),
        "import": install.first,
        "seconds": round(statistics.median(timed(python, install.first, home) for _ in range(REPEATS)), 2),
        "loads": heavy,
    }


def packages_of(python: Path, home: Path) -> set[str]:
    """Return the names of the installed distributions."""
    listed = run(python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check", cwd=home)
    return {each["name"] for each in json.loads(listed)}


def size_of(folder: Path) -> int:
    """Return the bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def timed(python: Path, statement: str, home: Path) -> float:
    """Return the CPU seconds of a statement in a new interpreter, which other programs do not change much."""
    code = f"import time; began = time.process_time(); {statement}; print(time.process_time() - began)"
    return float(run(python, "-c", code, cwd=home))


def main() -> None:
    """Measure the installs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=INSTALLS, action="append", help="measure this install; may be repeated")
    parser.add_argument("--wheels", type=Path, help="install these wheels instead of the checkout")
    options = parser.parse_args()
    print("| install | packages | MB on disk | first import | CPU seconds | loads |")
    print("|---|--:|--:|---|--:|---|")
    for name in options.only or INSTALLS:
        with tempfile.TemporaryDirectory() as place:
            wheels = options.wheels.resolve() if options.wheels else None
            found = measure(name, INSTALLS[name], Path(place).resolve() / name, wheels)
        loads = ", ".join(map(str, found["loads"])) or "nothing"
        cells = (
            found["install"],
            found["packages"],
            found["megabytes"],
            f"`{found['import']}`",
            found["seconds"],
            loads,
        )
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
