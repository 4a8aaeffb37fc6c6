"""What importing the poolings costs, and what happens when a library is not there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import vse


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, check=False
    )


def test_importing_brings_torch_and_nothing_heavier():
    """vse.pooling needs torch alone: everything else that we ever import may be absent, numpy included."""
    done = run("""
        import sys, warnings

        absent = (
            "numpy numba llvmlite matplotlib scipy transformers timm onnxruntime faiss pydantic typer rich PIL av "
            "tokenizers fastapi cachetools safetensors"
        )
        sys.modules.update(dict.fromkeys(absent.split()))  # None: as if not installed
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # torch's own
        import torch
        import vse.pooling
        pool = vse.pooling.GPO(return_coefficients=True)
        embedding, weights = pool(torch.randn(4, 9, 8), torch.tensor([9, 1, 3, 5]))
        torch.testing.assert_close(weights.sum(1), torch.ones(4))
        print(list(embedding.shape))
        print(sorted(name for name in sys.modules if name.startswith("vse.") and name.count(".") == 1))
    """)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[4, 8]", "['vse._util', 'vse._version', 'vse.errors', 'vse.pooling']"]
    assert done.stderr == ""


def test_without_torch_one_line_says_what_to_install():
    """Where torch is missing, importing raises MissingDependencyError, an ImportError, with the command to run."""
    done = run("""
        import sys
        sys.modules["torch"] = None
        from vse.errors import MissingDependencyError
        try:
            import vse.pooling
        except ImportError as error:
            assert isinstance(error, MissingDependencyError)
            print(error)
    """)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert "vse.pooling needs torch" in line
    assert 'pip install ".[pooling]"' in line


def test_without_numba_everything_works_on_the_plain_path():
    """Where numba is missing, poolings of any size work, forward and backward, with equal results and no noise."""
    done = run("""
        import sys, torch
        sys.modules["numba"] = None
        from vse.errors import InputError
        from vse.pooling import GPO, create_pooling, list_poolings, sorted_weighted_sum

        features, lengths = torch.randn(6, 30, 64), torch.tensor([30, 1, 2, 15, 30, 8])
        for name in list_poolings():
            options = {"k-max": {"k": 3}, "top-percent": {"percent": 30}}.get(name, {})
            if name in {"fspool", "self-attention", "seq2seq", "gcn-avg", "gcn-seq2seq"}:
                options["dim"] = 64
            leaf = features.clone().requires_grad_()
            create_pooling(name, **options)(leaf, lengths=lengths).sum().backward()
            assert leaf.grad.isfinite().all(), name
        assert GPO().table(50).shape == (50, 50)
        weights = torch.rand(30)
        plain = sorted_weighted_sum(features, weights, path="plain")
        assert torch.equal(sorted_weighted_sum(features, weights), plain)
        try:
            sorted_weighted_sum(features, weights, path="network")
        except InputError as error:
            print(error)
        assert "llvmlite" not in sys.modules
    """)
    assert done.returncode == 0, done.stderr
    assert 'pip install ".[fast]"' in done.stdout
    assert done.stderr == ""


def test_broken_numba_is_reported_once():
    """A numba that fails while loading costs a warning in the log, not the result."""
    done = run("""
        import logging, sys, torch

        class Broken:
            def find_spec(self, name, path=None, target=None):
                if name == "numba":
                    raise RuntimeError("numba needs another numpy")

        logging.basicConfig(level=logging.WARNING, format="%(name)s %(message)s")
        sys.meta_path.insert(0, Broken())
        from vse.pooling import GPO
        for _ in range(3):
            print(GPO()(torch.randn(6, 30, 64)).shape)
    """)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["torch.Size([6, 64])"] * 3
    assert done.stderr.count("numba needs another numpy") == 1
    assert done.stderr.startswith("vse.pooling")


def test_without_matplotlib_only_plotting_fails():
    """Where matplotlib is missing, plot_coefficients says what to install; the rest works."""
    done = run("""
        import sys, torch

        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name == "matplotlib":
                    raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")

        sys.meta_path.insert(0, Absent())
        from vse.errors import MissingDependencyError
        from vse.pooling import GPO, plot_coefficients
        GPO()(torch.randn(2, 5, 4))
        try:
            plot_coefficients(GPO(), 5)
        except MissingDependencyError as error:
            print(error)
    """)
    assert done.returncode == 0, done.stderr
    assert 'pip install ".[plot]"' in done.stdout


def test_uncacheable_kernels_fall_back_to_plain_path(tmp_path):
    """Where compiled code can be written nowhere, as in a read-only container, poolings work on the plain path."""
    package = tmp_path / "vse"
    shutil.copytree(Path(vse.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "pooling" / "kernels" / "__pycache__").touch()  # a file where a folder would have to be
    code = "import torch, vse; from vse.pooling import GPO; print(vse.__file__, GPO()(torch.randn(6, 30, 64)).shape)"
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"), os.devnull)
    environment = {**os.environ, **nowhere, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(maxsplit=1) == [str(package / "__init__.py"), "torch.Size([6, 64])\n"]
    assert "plain" in done.stderr
