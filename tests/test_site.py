"""The documentation site and the notebooks: pages exist, the site builds strictly, notebooks and tutorials run."""

import ast
import json
import re
import shlex
import sys
from dataclasses import replace
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
needs_mkdocs = pytest.mark.skipif(
    not all(find_spec(name) for name in ("mkdocs", "material", "mkdocstrings")), reason='needs the extra "docs"'
)


@pytest.fixture(scope="module")
def hooks():
    spec = spec_from_file_location("docs_hooks", ROOT / "tools" / "docs_hooks.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pages_in_nav() -> list[str]:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    return re.findall(r": ([\w/.-]+\.md)$", nav, flags=re.MULTILINE)


@needs_mkdocs
def test_nav_and_docs_folder_hold_the_same_pages(hooks):
    """Every page of the navigation exists, and every page is in the navigation."""
    here = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    published = {page for page in hooks.PUBLISHED.values() if page.endswith(".md")}
    assert all((ROOT / source).is_file() for source in hooks.PUBLISHED)
    assert sorted(pages_in_nav()) == sorted(here | published)


@needs_mkdocs
@pytest.mark.parametrize(
    ("markdown", "page", "expected"),
    [
        ("[a](../SECURITY.md)", "search.md", "[a](security.md)"),
        ("[a](../../SECURITY.md#b)", "tutorials/gpo.md", "[a](../security.md#b)"),
        ("[`code`](../src/vse/errors.py)", "training.md", "`code`"),
        ("[a](docs/search.md#b)", "contributing.md", "[a](search.md#b)"),
        (
            "[a](#b), [c](data.md), [d](https://e.org/../f)",
            "video.md",
            "[a](#b), [c](data.md), [d](https://e.org/../f)",
        ),
        (
            "![curve](../src/vse/models/shipped/photo/pooling.png)",
            "results.md",
            "![curve](images/photo-pooling.png)",
        ),
    ],
)
def test_links_out_of_docs_resolve_on_the_site(hooks, markdown, page, expected):
    """A link to a published file leads to its page; of a link to another file the text remains."""
    assert hooks.relink(markdown, page) == expected


@needs_mkdocs
def test_docstrings_become_markdown(hooks):
    """Doctests are fenced up to the next empty line, without their flags, and roles become code."""
    docstring = "Pool a :class:`Set`.\n\n>>> pool(x)  # doctest: +SKIP\n1.0\n\nExample:\n    >>> 1\n    1\n"
    expected = "Pool a `Set`.\n\n```pycon\n>>> pool(x)\n1.0\n```\n\nExample:\n    ```pycon\n    >>> 1\n    1\n    ```\n"
    assert hooks.as_markdown(docstring) == expected


@needs_mkdocs
@pytest.mark.slow
def test_site_builds_strictly(tmp_path, monkeypatch):
    """Every link, anchor and docstring reference resolves, and no page loads anything from another host."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(tmp_path)))
    for page, name in (("pooling", "GPO"), ("evaluation", "ranks.ranks"), ("training", "train.train")):
        assert f'id="vse.{page}.{name}"' in (tmp_path / "reference" / f"{page}.html").read_text(encoding="utf-8")
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(?:https?:)?//', text), page.name
        assert not re.search(r":(?:class|func|mod):<code>|<blockquote>\s*<blockquote>", text), page.name


def run_cells(cells: list[str], name: str) -> None:
    """Run cells in one namespace, as a kernel does; ``!vse …`` runs the command in this process."""
    from vse.__main__ import main

    def vse_command(line: str) -> None:
        before, sys.argv = sys.argv, ["vse", *shlex.split(line)]
        try:
            assert main() == 0, line
        finally:
            sys.argv = before

    namespace = {"__name__": "__main__", "vse_command": vse_command}
    for number, cell in enumerate(cells):
        program = re.sub(r"^!vse (.*)$", lambda line: f"vse_command({line[1]!r})", cell, flags=re.MULTILINE)
        exec(compile(program, f"{name}[{number}]", "exec"), namespace)  # noqa: S102 (our own notebooks)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_valid_and_have_no_outputs(path):
    """Format 4.5 with unique cell ids, nothing executed, and only public imports."""
    from tests.test_docs import FACES, imports_of

    book = json.loads(path.read_text(encoding="utf-8"))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in book["cells"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[\w-]{1,64}", value) for value in ids)
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            program = re.sub(r"^!.*$", "pass", "".join(cell["source"]), flags=re.MULTILINE)
            assert ast.parse(program).body
            assert all(module in FACES for module, _ in imports_of(program))


@pytest.mark.parametrize(
    "name",
    [
        "gpo",
        "photos",
        pytest.param("training", marks=pytest.mark.slow),
        pytest.param("synthetic", marks=pytest.mark.slow),
    ],
)
def test_notebook_runs_from_top_to_bottom(name, tmp_path, monkeypatch, capfd):
    """Every code cell of a notebook runs, after those above it."""
    from vse.experiments import synthetic

    if name == "photos":
        pytest.importorskip("skimage")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(synthetic, "QUICK", replace(synthetic.QUICK, steps=2))
    book = json.loads((ROOT / "examples" / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    run_cells(["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"], name)
    shown = {"gpo": "GPO 0.", "photos": "chelsea.png", "training": "best dev rsum", "synthetic": "paper 0.0"}
    assert shown[name] in capfd.readouterr().out


@pytest.mark.parametrize("name", ["gpo", "photos", "training"])
def test_tutorial_code_is_that_of_the_notebook(name):
    """The Python of a tutorial, and its recipe, are in the notebook that the tests run."""
    from tests.test_docs import blocks_of

    book = json.loads((ROOT / "examples" / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]).strip() for cell in book["cells"]]
    page = ROOT / "docs" / "tutorials" / f"{name}.md"
    for block in blocks_of(page):
        assert block.strip() in cells
    for recipe in blocks_of(page, "toml"):
        assert f'"""\n{recipe}"""' in "\n".join(cells)
