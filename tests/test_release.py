"""The files around the code agree with it: versions, extras, workflows, and what the README tells people to type."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tarfile
import textwrap
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import REPOSITORY, extras_of_setup, library

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


def test_installed_extras_exist():
    """Pages and the Makefile name extras of the project and install by path: no index has the names yet."""
    pages = sorted(each.relative_to(REPOSITORY).as_posix() for each in (REPOSITORY / "docs").rglob("*.md"))
    for name in ("README.md", "Makefile", *pages):
        text = text_of(name)
        for names in re.findall(r"(?:\"\.|vse-infinity)\[([a-z,-]+)\]", text):
            assert set(names.split(",")) <= EXTRAS, (name, names)
        assert not re.search(r"pip install [^`\n]*\"?vse-infinity|--find-links dist", text), name


def test_readme_names_the_wheels_of_this_version():
    """Their names hold the versions of both distributions."""
    photo = re.search(r'__version__ = "(.+)"', text_of("packages/photo/src/vse_infinity_photo/__init__.py"))
    assert photo is not None
    assert re.findall(r"dist/(vse_infinity\w*)-([\d.]+)-py3-none-any\.whl", text_of("README.md")) == [
        ("vse_infinity_photo", photo[1]),
        ("vse_infinity", vse.__version__),
    ]


def test_setup_installs_every_extra():
    """By name or as part of another, or tests are skipped; ``ocr`` is installed by hand, ``torch`` is a former name."""
    chosen, reached = extras_of_setup(), set()
    assert chosen <= EXTRAS
    while chosen - reached:
        name = (chosen - reached).pop()
        reached.add(name)
        listed = " ".join(PROJECT["optional-dependencies"][name])
        chosen |= {part for parts in re.findall(r"vse-infinity\[([\w,-]+)\]", listed) for part in parts.split(",")}
    assert EXTRAS - reached == {"ocr", "torch"}


def test_missing_library_fails_under_ci(monkeypatch):
    """If ``make setup`` installs it: a broken import must not look like a choice. Elsewhere its tests are skipped."""
    monkeypatch.setenv("CI", "true")
    with pytest.raises(ModuleNotFoundError):
        library("no_such_library", "mteb")
    with pytest.raises(pytest.skip.Exception):
        library("no_such_library", "ocr")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception):
        library("no_such_library", "mteb")


def test_citation_names_version_and_licence():
    """CITATION.cff is valid YAML with the version of the package."""
    citation = yaml.safe_load(text_of("CITATION.cff"))
    assert citation["version"] == vse.__version__
    assert citation["license"] == "MIT"
    assert citation["preferred-citation"]["year"] == 2021


def test_release_check_names_what_is_missing(tmp_path):
    """It stops a release without a public address, and accepts one that has it everywhere."""
    check = runpy.run_path(str(REPOSITORY / "tools" / "check_release.py"))
    for name in ("pyproject.toml", "README.md", "packages/photo/pyproject.toml", "packages/photo/README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("[project]\n" if name.endswith("toml") else "[here](#here) ![shown](docs/a.png)\n")
    for name in ("src/vse/_version.py", "CITATION.cff", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text_of(name) if name != "CHANGELOG.md" else "## [Unreleased]\n")
    missing = check["problems"](tmp_path)
    assert [line.partition(" has")[0] for line in missing] == [
        *("pyproject.toml", "README.md", "packages/photo/pyproject.toml", "packages/photo/README.md"),
        *("CITATION.cff", "CHANGELOG.md"),
    ]
    assert missing[1].endswith("docs/a.png, 1 in all")
    for folder in (tmp_path, tmp_path / "packages" / "photo"):
        (folder / "pyproject.toml").write_text('[project.urls]\nSource = "https://example.org"\n')
        (folder / "README.md").write_text("![shown](https://example.org/a.png)\n")
    (tmp_path / "CHANGELOG.md").write_text(f"## [Unreleased]\n\n## [{vse.__version__}] - 2026-12-01\n")
    cited = text_of("CITATION.cff") + "date-released: 2026-12-02\nrepository-code: https://example.org\n"
    (tmp_path / "CITATION.cff").write_text(cited)
    (line,) = check["problems"](tmp_path)
    assert line == "CITATION.cff has date-released 2026-12-02, CHANGELOG.md 2026-12-01"
    (tmp_path / "CITATION.cff").write_text(cited.replace("12-02", "12-01"))
    assert check["problems"](tmp_path) == []
    steps = yaml.safe_load(text_of(".github/workflows/release.yml"))["jobs"]["build"]["steps"]
    commands = [step.get("run", "") for step in steps]
    assert commands.index("python tools/check_release.py") < commands.index("python -m build --outdir dist .")


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


def test_continuous_integration_covers_what_is_promised():
    """Tests on every Python of the classifiers, the documentation, and the linters once, as part of ``make test``."""
    jobs = yaml.safe_load(text_of(".github/workflows/ci.yml"))["jobs"]
    versions = {each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each}
    assert set(jobs["test"]["strategy"]["matrix"]["python"]) == versions
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    targets = re.findall(r"^make (\w+)", "\n".join(commands), flags=re.MULTILINE)
    assert {"test", "docs"} <= set(targets)
    assert "lint" not in targets


def test_container_files_fit_the_repository():
    """compose.yaml builds the Containerfile, whose sources exist, and serves this machine alone."""
    compose = yaml.safe_load(text_of("compose.yaml"))
    service = compose["services"]["vse"]
    assert (REPOSITORY / service["build"]["dockerfile"]).is_file()
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    named = {volume.partition(":")[0] for each in compose["services"].values() for volume in each["volumes"]}
    assert {name for name in named if name.isidentifier()} == set(compose["volumes"])
    assert set(service["depends_on"]) < set(compose["services"])
    command, *rest = service["command"]
    assert command == "serve"
    assert {part for part in rest if part.startswith("-")} <= {"--host", "--port", "--root"}
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text_of("Containerfile"), flags=re.MULTILINE):
        assert all((REPOSITORY / source).exists() for source in sources.split())


BUILD = (sys.executable, "-m", "build", "--no-isolation")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> dict[str, Path]:
    """Both distributions, built without a network: file by kind."""
    out = tmp_path_factory.mktemp("dist")
    with ThreadPoolExecutor() as both:  # compressing the models takes as long as the rest
        places = (REPOSITORY / "packages" / "photo", REPOSITORY)
        list(both.map(lambda place: checked(*BUILD, "--outdir", out / place.name, place), places))
    return {
        ("photo-" if "photo" in path.name else "") + ("wheel" if path.suffix == ".whl" else "sdist"): path
        for path in out.glob("*/*")
    }


def checked(*command: object, **options: Any) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_distributions_hold_what_they_should(built):
    """twine accepts all; wheels hold the package and no model twice, the sdist also what tests and pages refer to."""
    assert set(built) == {"wheel", "sdist", "photo-wheel", "photo-sdist"}
    assert checked(sys.executable, "-m", "twine", "check", "--strict", *built.values()).count("PASSED") == 4
    wheel, photo = (set(zipfile.ZipFile(built[kind]).namelist()) for kind in ("wheel", "photo-wheel"))
    assert {each.partition("/")[0] for each in wheel} == {"vse", f"vse_infinity-{vse.__version__}.dist-info"}
    assert {"vse/py.typed", "vse/recipes/photo.toml", "vse/service/static/index.html"} <= wheel
    assert not [each for each in wheel if "shipped" in each or each.endswith(".onnx")]
    assert [each for each in photo if each.endswith("models/photo/config.json")]
    assert not [each for each in photo if "photo-v1" in each]
    assert any(each.endswith("licenses/LICENSE-APACHE-2.0.txt") for each in photo)
    with tarfile.open(built["sdist"]) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    listed = checked("git", "ls-files", cwd=REPOSITORY).splitlines() if (REPOSITORY / ".git").exists() else []
    kept = [each for each in listed if not each.startswith(("src/vse/models/shipped/", ".ci/"))]
    assert [each for each in kept if each not in names] == []
    assert {"SECURITY.md", "Makefile", ".github/workflows/ci.yml", "packages/photo/pyproject.toml", "PKG-INFO"} <= names


@pytest.mark.slow
def test_base_wheel_works_alone(built, tmp_path):
    """In an empty environment the wheel alone imports; what needs an extra says so in one line. Poolings need torch."""
    checked(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-compile", "-qq")
    checked(*pip, built["wheel"])  # with its requirements: there are none
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    program = """
        import vse
        print(vse.__file__)
        for line in ("from vse.pooling import GPO", "from vse.index import search", "from vse.training import train"):
            try:
                exec(line)
            except ImportError as error:
                print(error)
    """
    where, *errors = checked(python, "-c", textwrap.dedent(program), env=clean, cwd=tmp_path).splitlines()
    assert Path(where).is_relative_to(tmp_path / "venv")
    for error, extra in zip(errors, ("pooling", "search", "train"), strict=True):
        assert f'".[{extra}]" (or make setup) in a clone' in error
    zipfile.ZipFile(built["wheel"]).extractall(tmp_path / "site")
    alone = """
        import sys, warnings
        sys.modules.update(dict.fromkeys("numpy numba scipy transformers timm PIL pydantic typer safetensors".split()))
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # torch's own
        import torch
        from vse.pooling import GPO
        print(sys.modules["vse"].__file__, list(GPO()(torch.randn(4, 9, 8), torch.tensor([9, 1, 3, 5])).shape))
    """
    path = {**clean, "PYTHONPATH": str(tmp_path / "site")}
    found = checked(sys.executable, "-c", textwrap.dedent(alone), env=path, cwd=tmp_path)
    assert found.split(maxsplit=1) == [str(tmp_path / "site" / "vse" / "__init__.py"), "[4, 8]\n"]


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
