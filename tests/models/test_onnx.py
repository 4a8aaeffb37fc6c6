"""An exported model in a process that has no torch."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from tests.support_models import build, feature_sets, grid_config, picture

from vse.convert.onnx_export import export_onnx

# What the light install does not have; importing any of it raises, as if it were not there.
ABSENT = [
    "torch",
    "torchvision",
    "timm",
    "transformers",
    "safetensors",
    "onnx",
    "nltk",
    "scipy",
    "matplotlib",
    "huggingface_hub",
]
PROGRAM = """
import sys, json
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
import numpy as np
import vse
model = vse.load(sys.argv[1])
images = model.encode_images([np.load(path) for path in sys.argv[2:]])
texts = model.encode_texts(["a dog runs in the snow", "two cats"])
many = model.encode_texts(["a dog runs in the snow", "two cats"] * 20)  # more than a query: another session
assert np.allclose(many, np.tile(texts, (20, 1)), atol=1e-6)
loaded = sorted(set({absent!r}) & set(sys.modules))
print(json.dumps({{"images": images.tolist(), "texts": texts.tolist(), "loaded": loaded}}))
"""


@pytest.mark.parametrize("kind", ["region", "grid"])
def test_export_encodes_without_torch(kind, tmp_path):
    """Where torch cannot be imported at all, ``vse.load`` of an export encodes, and gives torch's vectors."""
    model = build(grid_config()) if kind == "grid" else build()
    items = [picture(n) for n in range(2)] if kind == "grid" else feature_sets(3, 3)
    export_onnx(model, tmp_path / "out")
    paths = []
    for number, item in enumerate(items):
        np.save(tmp_path / f"{number}.npy", item)
        paths.append(str(tmp_path / f"{number}.npy"))
    program = textwrap.dedent(PROGRAM).format(absent=ABSENT)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "out"), *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["loaded"] == []
    np.testing.assert_allclose(answer["images"], model.encode_images(items), atol=1e-4)
    np.testing.assert_allclose(answer["texts"], model.encode_texts(["a dog runs in the snow", "two cats"]), atol=1e-4)


def test_torch_model_without_torch_fails_in_one_line(tmp_path):
    """The error says what to install."""
    build().save(tmp_path / "model")
    program = textwrap.dedent(PROGRAM).format(absent=ABSENT)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "model")], capture_output=True, text=True, check=False
    )
    assert 'pip install ".[train]"' in done.stderr.strip().splitlines()[-1]
