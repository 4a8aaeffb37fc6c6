"""What the benchmarks import exists, and the parts of the scale benchmark run on a few rows; Ray is left out."""

import argparse
import ast
import importlib
import importlib.util
import queue
import sys
from pathlib import Path

import numpy as np
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


linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
ROWS, WIDTH = 600, 32


@pytest.fixture
def part(monkeypatch):
    """Yield a function that imports a part of the scale benchmark, and its options from a command line."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    from scale_parts import crossmodal, sizes, synthetic
    from vse.index.store import approximate

    for module in (synthetic, sizes, crossmodal):
        monkeypatch.setattr(module, "DIMENSIONS", WIDTH)
    smaller = {"PROJECTED": 16, "CODE_BYTES": 4, "TRIALS": 10, "ITERATIONS": 1}
    for module, values in ((synthetic, {"CLUSTERS": 50, "TOPICS": 5}), (approximate, smaller)):
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(synthetic.Mixture.__init__, "__defaults__", (0, WIDTH))

    threads = approximate.library().omp_get_max_threads()
    approximate.library().omp_set_num_threads(1)  # several wait for each other

    def made(name, *arguments):
        module = importlib.import_module("scale").module_of(name)
        parser = argparse.ArgumentParser()
        module.add_arguments(parser)
        return module, parser.parse_args([str(each) for each in arguments])

    yield made
    approximate.library().omp_set_num_threads(threads)


def test_every_part_of_the_scale_benchmark_has_defaults(part):
    """All can be imported, also that which needs Ray."""
    from scale import PARTS

    assert all(vars(part(name)[1]) for name in PARTS)


@linux
@pytest.mark.filterwarnings("ignore:Data has no positive values")  # times of nothing, on logarithmic axes
def test_size_benchmark_measures_every_phase(part, tmp_path):
    """On vectors and lists of its own, and in a real collection; a table and a plot of the figures."""
    row = {"size": ROWS, "storage": "float16"}
    for phase in ("write", "build", "truth", "search", "collection"):
        sizes, options = part("sizes", "--sizes", ROWS, "--queries", 4, "--into", tmp_path, "--phase", phase)
        row[phase] = sizes._phase(options)
    assert row["write"]["vector_bytes"] == 2 * WIDTH * ROWS
    assert row["search"]["recall_at_10"] > 0.9
    assert row["collection"]["recall_at_10"] == 1
    assert sizes.lines({"": row})[2].startswith("| 600 | float16 | 0 MB ")
    sizes.draw({"": row}, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


@pytest.mark.parametrize(("name", "cases"), [("crossmodal", 3), ("storage", 6)])
def test_benchmark_of_real_embeddings_prints_its_table(part, name, cases, tmp_path, capsys):
    """With embeddings that an earlier run left."""
    for number, side in enumerate(("texts", "images")):
        vectors = np.random.default_rng(number).standard_normal((ROWS, WIDTH), np.float32)
        np.save(tmp_path / f"flickr_{side}.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    module, options = part(name, "--into", tmp_path)
    module.run(options)
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 2 + cases
    assert len({line.count("|") for line in table}) == 1


@linux
def test_transfer_benchmark_runs_its_steps(part, tmp_path):
    """Each step reads what those before it wrote."""
    module, options = part("transfer", "--rows", 50, "--dimensions", 8)
    module.write_source(tmp_path, options.rows, options.dimensions)
    module.write_shards(tmp_path / "shards", options.rows, options.dimensions)
    results = queue.Queue()
    for step in options.steps:
        module.run_step(step, tmp_path, options.rows, results)
        seconds, busy, peak = results.get_nowait()
        module.shown(step, options.rows, seconds, busy, peak)
    assert len(list((tmp_path / "out export shards").glob("*.parquet"))) == 1
