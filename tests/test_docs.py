"""The README and the guides are correct: examples run, imports use public packages, links and names resolve."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.inputs.video.clips import write_clip
from tests.support_models import build, grid_config
from tests.systems.support_pairs import pair_config

from vse._util.plugins import GROUPS
from vse.data.vocabulary import VideoVocabulary
from vse.hgr import HGRConfig, HGRModel
from vse.inputs import Vocabulary
from vse.models.config import FramesConfig, WordsConfig
from vse.systems.pair_model import PairModel

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").rglob("*.md")))
RUNNABLE = ("collections.md", "models.md", "evaluation.md", "pooling.md", "scale.md", "training.md")
FACES = {
    "vse",
    "vse.adapters",
    "vse.batch",
    "vse.data",
    "vse.evaluation",
    "vse.index",
    "vse.inputs",
    "vse.losses",
    "vse.models",
    "vse.pooling",
    "vse.training",
}
"""What documentation may import from; everything below is internal."""


def blocks_of(page: Path, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def imports_of(program: str) -> Iterator[tuple[str, str | None]]:
    """Yield each imported module of ours, with each name that is taken from it."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if alias.name.partition(".")[0] == "vse")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "vse":
            yield from ((node.module or "", alias.name) for alias in node.names)


def run_program(program: str, cwd: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False, cwd=cwd
    )
    assert done.returncode == 0, done.stderr


def test_readme_examples_run(tmp_path):
    """Every Python block of the README runs by itself."""
    blocks = blocks_of(README)
    assert blocks
    for block in blocks:
        run_program(block, tmp_path)


@pytest.mark.parametrize("name", RUNNABLE)
def test_guide_examples_run_from_top_to_bottom(name, tmp_path):
    """The Python blocks of a guide, one after the other, form a working program."""
    run_program("\n".join(blocks_of(ROOT / "docs" / name)), tmp_path)


@pytest.mark.parametrize("name", ["search.md", pytest.param("adapters.md", marks=pytest.mark.slow)])
def test_guide_examples_over_photos_run(name, tmp_path):
    """The Python of these guides indexes a folder of images and searches it."""
    if name == "adapters.md":
        for library in ("sentence_transformers", "langchain_core", "llama_index.core"):
            if find_spec(library.partition(".")[0]) is None:
                pytest.skip(f"needs {library}")
    (tmp_path / "photos").mkdir()
    for image, colour in (("snow.jpg", "white"), ("sea.jpg", "blue")):
        Image.new("RGB", (64, 48), colour).save(tmp_path / "photos" / image)
    run_program("\n".join(blocks_of(ROOT / "docs" / name)), tmp_path)
    assert (tmp_path / "photos.vse").is_dir()


def test_guide_examples_over_trained_models_run(tmp_path):
    """The Python of the guides to systems and to videos scores with the models that they train, tiny ones here."""
    sentences, runs = ["two dogs play in the snow", "a man is singing"], tmp_path / "runs"
    tokenizer = VideoVocabulary.build(sentences).tokenizer()
    words = WordsConfig(vocabulary_size=tokenizer.vocab_size, word_size=5)
    level = {"feature_size": 5, "vocabulary_size": tokenizer.vocab_size, "word_size": 5, "embed_size": 8}
    of_images = Vocabulary.build(sentences, min_count=1).tokenizer()
    scan = pair_config(text={"kind": "bigru", "vocabulary_size": of_images.vocab_size, "word_size": 4})
    PairModel.build(scan, of_images).save(runs / "scan" / "best")
    build(grid_config()).save(runs / "own" / "best")
    build(FramesConfig(feature_size=5), words, tokenizer=tokenizer).save(runs / "vse" / "best")
    HGRModel(HGRConfig(**level), tokenizer).save(runs / "hgr" / "best")
    generator = np.random.default_rng(0)
    np.save(tmp_path / "regions.npy", generator.standard_normal((4, 5)).astype(np.float32))
    np.save(tmp_path / "frames.npy", generator.standard_normal((6, 5)).astype(np.float32))
    for name, codec in (("clip.mp4", "libx264"), ("other.webm", "libvpx-vp9")):
        write_clip(tmp_path / name, seconds=1, codec=codec)
    program = "\n".join(block for page in ("systems", "video") for block in blocks_of(ROOT / "docs" / f"{page}.md"))
    run_program(program + "\nassert scores.shape == (1, 1)\n", tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_documentation_imports_only_public_packages(page):
    """No example imports from below a package face, and every imported name exists."""
    for block in blocks_of(page):
        for module, name in imports_of(block):
            assert module in FACES, f"{page.name} imports {module}; public are {', '.join(sorted(FACES))}"
            if name is not None:
                assert hasattr(importlib.import_module(module), name), f"{page.name}: {module} has no {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_dotted_names_in_documentation_exist(page):
    """``vse.a.b`` in code or between backticks is a module, an attribute of one, or a group of entry points."""
    text = page.read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n.*?```|`[^`\n]+`", text, flags=re.DOTALL))
    for dotted in sorted(set(re.findall(r"(?<![\w./-])vse(?:\.[A-Za-z_]\w*)+", code))):
        assert dotted in GROUPS or resolves(dotted), f"{page.name} names {dotted}, which does not exist"


def resolves(dotted: str) -> bool:
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            if not hasattr(found, name):
                return False
            found = getattr(found, name)
        return True
    return False


def test_paths_in_architecture_exist():
    """Every source path between backticks in the architecture page is a file or folder of the repository."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    roots = (ROOT, ROOT / "src", ROOT / "src" / "vse", ROOT / "src" / "vse" / "pooling")
    for path in sorted(set(re.findall(r"`([\w/]+(?:\.(?:py|toml|txt)|/[\w]*))`", text))):
        assert any((root / path).exists() for root in roots), f"architecture.md names {path}, which does not exist"


def commands_of(page: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield each ``vse`` command of a page's code blocks, with its options."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for block in re.findall(r"```(?:\w*)\n(.*?)```", text, flags=re.DOTALL):
        for line in block.splitlines():
            call = re.search(r"(?:^|\s)vse ((?:collection |data )?[a-z]+)(.*)", line.partition("  #")[0])
            if call and "=" not in line.partition("vse ")[0].strip("$ "):
                yield call[1], set(re.findall(r"(?<=\s)--[a-z][a-z-]*|(?<=\s)-k\b", call[2]))


def test_documented_options_exist():
    """Every option that a page shows for a command is in the help of that command."""
    wanted: dict[str, dict[str, str]] = {}
    for page in PAGES:
        for command, options in commands_of(page):
            wanted.setdefault(command, {}).update(dict.fromkeys(options, page.name))
    assert {"index", "search", "train", "eval", "collection upgrade", "data check"} <= set(wanted)
    for command, options in wanted.items():
        called = [sys.executable, "-m", "vse", *command.split(), "--help"]
        done = subprocess.run(called, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        for option, page in options.items():
            assert re.search(rf"(?<![\w-]){option}\b", done.stdout), f"{page}: vse {command} has no {option}"


def test_documentation_links_point_to_files():
    """Every relative link of the README and of the guides points to a file of the repository."""
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_documentation_anchors_point_to_headings():
    """Every ``page.md#anchor`` and ``#anchor`` link names a heading of that page."""
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
            text = (page.parent / target if target else page).read_text(encoding="utf-8")
            headings = {
                re.sub(r"[^\w -]", "", line.lstrip("#").strip().lower()).replace(" ", "-")
                for line in text.splitlines()
                if line.startswith("#")
            }
            assert anchor in headings, f"{page.name} links to {target}#{anchor}"


def test_guarantees_name_tests_that_exist():
    """Every promise has a row with its test, ``path::name``."""
    text = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text)
    rows = [line for line in text.splitlines() if line.startswith("|") and not line.startswith(("| promise", "|---"))]
    assert len(named) == len(rows) > 20
    missing = [f"{path}::{name}" for path, name in named if f"def {name}(" not in (ROOT / path).read_text("utf-8")]
    assert not missing


def test_environment_variables_are_documented():
    """Every variable that the package reads is explained in a page."""
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    read = set(re.findall(r"""["'](VSE_(?!PLUS)[A-Z_]+)["']""", source))
    assert "VSE_MILVUS_TOKEN" in read
    assert [name for name in sorted(read) if name not in pages] == []


def test_documentation_promises_no_list_of_plans():
    """The README and the architecture page describe what is there; plans are kept elsewhere."""
    for page in (README, ROOT / "docs" / "architecture.md"):
        assert not re.search(r"\b(?:the|our|of) plans?\b|\broadmap\b", page.read_text(encoding="utf-8")), page.name
