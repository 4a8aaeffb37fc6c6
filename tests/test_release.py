"""The files around the code agree with it: versions, extras, workflows, and what the README tells people to type."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from tests.conftest import REPOSITORY

import vse
from vse._util.plugins import GROUPS

yaml = pytest.importorskip("yaml")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))


def text_of(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def test_base_install_requires_nothing():
    """Extras choose the libraries; every extra that an extra names exists, and searching includes the photo model."""
    assert PROJECT["dependencies"] == []
    assert PROJECT["optional-dependencies"]["pooling"] == ["torch>=2.7"]
    assert any(each.startswith("vse-infinity-photo") for each in PROJECT["optional-dependencies"]["search"])
    for listed in PROJECT["optional-dependencies"].values():
        for names in re.findall(r"vse-infinity\[([\w,-]+)\]", " ".join(listed)):
            assert set(names.split(",")) <= EXTRAS


@pytest.mark.parametrize("name", ["README.md", "docs/architecture.md", "docs/search.md", "docs/video.md", "Makefile"])
def test_installed_extras_exist(name):
    """``pip install ".[a,b]"`` and ``vse-infinity[a]`` name extras of the project."""
    for names in re.findall(r"(?:\"\.|vse-infinity)\[([a-z,-]+)\]", text_of(name)):
        assert set(names.split(",")) <= EXTRAS, names
    for line in re.findall(r"^EXTRAS := (?:\$\(EXTRAS\),)?(.*)$", text_of(name), flags=re.MULTILINE):
        assert set(line.split(",")) <= EXTRAS, line


def test_citation_names_version_and_licence():
    """CITATION.cff is valid YAML with the version of the package."""
    citation = yaml.safe_load(text_of("CITATION.cff"))
    assert citation["version"] == vse.__version__
    assert citation["license"] == "MIT"
    assert citation["preferred-citation"]["year"] == 2021


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_commands_that_exist(path: Path):
    """Workflows are valid YAML with permissions and timeouts; the make targets and files that they use exist."""
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    targets = set(re.findall(r"^([a-z]+):", text_of("Makefile"), flags=re.MULTILINE))
    for name, job in workflow["jobs"].items():
        assert "timeout-minutes" in job or name == "publish"
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert set(re.findall(r"\bmake ([a-z]+)", step.get("run", ""))) <= targets
            for place in re.findall(r"packages/\w+|docs/images", step.get("run", "")):
                assert (REPOSITORY / place).is_dir()


def test_templates_and_hooks_are_valid():
    """Issue forms have the keys that forms need; pre-commit refuses large files, at the limit of the project."""
    for form in sorted((REPOSITORY / ".github" / "ISSUE_TEMPLATE").glob("*.yml")):
        content = yaml.safe_load(form.read_text(encoding="utf-8"))
        assert form.stem == "config" or {"name", "description", "body"} <= set(content)
    hooks = yaml.safe_load(text_of(".pre-commit-config.yaml"))
    assert "--maxkb=300" in str(hooks)


def test_plugin_guide_and_example_name_every_group():
    """The guide has a row for each group; the example registers one of each, except models."""
    guide = text_of("docs/plugins.md")
    example = tomllib.loads(text_of("examples/vse-plugin-example/pyproject.toml"))["project"]["entry-points"]
    assert [group for group in GROUPS if f"| `{group}` |" not in guide] == []
    assert set(example) == set(GROUPS) - {"vse.models"}


def test_changelog_has_the_usual_sections():
    """Keep a Changelog: Unreleased first, and only the sections of that form."""
    text = text_of("CHANGELOG.md")
    assert re.search(r"^## \[Unreleased\]", text, flags=re.MULTILINE)
    usual = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, flags=re.MULTILINE)) <= usual
