"""Report what a release still lacks, such as a public address: ``python tools/check_release.py`` then exits with 1.

The release workflow runs it before it builds anything; it needs the standard library alone.
"""

from __future__ import annotations

import re
import runpy
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECTS = (".", "packages/photo")
RELATIVE_LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)\s]+)\)")
CITED = re.compile(r'^(version|date-released|repository-code): *"?([^"\n]+?)"? *$', re.MULTILINE)


def problems(root: Path = REPOSITORY) -> list[str]:
    """Return one line for each thing that is missing."""
    found = []
    for folder in PROJECTS:
        place = (root / folder).resolve().relative_to(root.resolve())
        project = tomllib.loads((root / place / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        if not project.get("urls"):
            found.append(f"{(place / 'pyproject.toml').as_posix()} has no [project.urls]: add the public address")
        links = RELATIVE_LINK.findall((root / place / "README.md").read_text(encoding="utf-8"))
        if links:
            name = (place / "README.md").as_posix()
            found.append(
                f"{name} has relative links, which a package index cannot follow: {links[0]}, {len(links)} in all"
            )
    version = runpy.run_path(str(root / "src" / "vse" / "_version.py"))["__version__"]
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    stated = dict(CITED.findall(citation))
    if stated.get("version") != version:
        found.append(f"CITATION.cff has version {stated.get('version')}, the package {version}")
    if "repository-code" not in stated:
        found.append("CITATION.cff has no repository-code: add the public address")
    log = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    dated = re.search(rf"^## \[{re.escape(version)}\] - (\d{{4}}-\d\d-\d\d)$", log, flags=re.MULTILINE)
    if dated is None:
        found.append(f"CHANGELOG.md has no section '## [{version}] - DATE'")
    elif stated.get("date-released") != dated[1]:
        found.append(f"CITATION.cff has date-released {stated.get('date-released')}, CHANGELOG.md {dated[1]}")
    return found


if __name__ == "__main__":
    missing = problems()
    for line in missing:
        print(f"not ready for a release: {line}", file=sys.stderr)
    sys.exit(bool(missing))
