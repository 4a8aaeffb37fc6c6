"""The benchmarks are not run by the tests, but what they import exists."""

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.parametrize("path", sorted(BENCHMARKS.rglob("*.py")), ids=lambda path: path.stem)
def test_benchmark_imports_exist(path):
    """Every name that a benchmark imports from the package is there."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = [block for block in tree.body if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)]
    for_types = {id(node) for block in guarded for node in ast.walk(block)}  # names in annotations only
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and id(node) not in for_types
            and (node.module or "").partition(".")[0] == "vse"
        ):
            module = importlib.import_module(node.module)
            for alias in node.names:
                submodule = hasattr(module, "__path__") and importlib.util.find_spec(f"{node.module}.{alias.name}")
                assert hasattr(module, alias.name) or submodule, f"{path.name}: {node.module} has no {alias.name}"
