"""Evidence: contributions of cells sum to the score, in torch and ONNX, and are drawn in place."""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.index.examples import directions
from tests.support_models import SIDE, SIZE, build, feature_sets, grid_config, picture

from vse.convert.onnx_export import export_onnx
from vse.errors import InputError
from vse.index.evidence import (
    LONGEST,
    BoxEvidence,
    box_map,
    cell_evidence,
    heat_map,
    image_evidence,
    seen,
    write_png,
)
from vse.inputs.preprocessing import ImagePreprocessing, imagenet, load_pixels
from vse.models.config import PoolingConfig
from vse.models.onnx import OnnxModel
from vse.models.vse_model import VSEModel

LARGER = 96  # at least 3 × 3 cells
QUERIES = directions(3, SIZE, seed=20)


@cache
def torch_model() -> VSEModel:
    return build(grid_config(image_size=LARGER))


@cache
def exported_folder() -> Path:
    """Export the model once per test process."""
    folder = tempfile.TemporaryDirectory(prefix="vse-export-")
    atexit.register(folder.cleanup)
    export_onnx(torch_model(), Path(folder.name) / "export")
    return Path(folder.name) / "export"


@cache
def onnx_model() -> OnnxModel:
    return OnnxModel.load(exported_folder(), threads=1)


def naive_evidence(model: VSEModel, image: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Sort, weight by rank and normalise, cell by cell and dimension by dimension."""
    how = model.preprocessing
    assert how is not None
    encoder = model.image_encoder
    with torch.no_grad():
        cells = encoder.elements(torch.from_numpy(load_pixels(image, how)[None]))[0][0].double().numpy()  # (N, D)
        theta = encoder.pooling.coefficients(len(cells)).double().numpy()  # (N,)
    shares = np.zeros_like(cells)
    for d in range(cells.shape[1]):
        for rank, n in enumerate(sorted(range(len(cells)), key=lambda n: -cells[n, d])):
            shares[n, d] = theta[rank] * cells[n, d]
    return shares @ query.astype(np.float64) / np.linalg.norm(shares.sum(axis=0))


@pytest.mark.parametrize("runtime", [torch_model, onnx_model])
def test_the_cells_add_up_to_the_score(runtime):
    """The sum over the cells is the dot product of image and query embedding, within 1e-5."""
    model = runtime()
    for seed, query in enumerate(QUERIES):
        cells = cell_evidence(model, picture(seed), query)
        assert cells.dtype == np.float32
        assert cells.shape == torch_model().image_encoder.backbone.grid(LARGER, LARGER)
        assert cells.size > 1
        assert float(cells.sum()) == pytest.approx(float(model.encode_images([picture(seed)])[0] @ query), abs=1e-5)


@pytest.mark.parametrize("runtime", [torch_model, onnx_model])
def test_a_cell_has_the_weights_of_its_ranks(runtime):
    """Equal to the formula computed cell by cell."""
    found = cell_evidence(runtime(), picture(4), QUERIES[0])
    np.testing.assert_allclose(found.ravel(), naive_evidence(torch_model(), picture(4), QUERIES[0]), atol=1e-5)


def test_evidence_refuses_unsuitable_models():
    """Features without positions, pooling without ranks, query embeddings of another width."""
    attention = build(grid_config(pooling=PoolingConfig(name="self-attention")))
    for model, source, query, words in (
        (build(), feature_sets(3)[0], QUERIES[0], "no evidence"),
        (attention, picture(), QUERIES[0], "no evidence"),
        (torch_model(), picture(), QUERIES[0][:5], r"\(5,\)"),
        (torch_model(), b"no picture", QUERIES[0], "not an image"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            cell_evidence(model, source, query)
        assert "\n" not in str(caught.value)


def test_the_map_is_drawn_over_the_cells():
    """Red where a cell supports the query, blue where it counts against it, grey elsewhere."""
    image = np.full((60, 90, 3), 128, np.uint8)
    cells = np.zeros((3, 3), np.float32)
    cells[0, 0], cells[2, 2] = 0.2, -0.1
    drawn = heat_map(image, cells, imagenet(SIDE)).astype(int)
    assert drawn.shape == image.shape
    assert drawn[5, 5, 0] > 150
    assert drawn[5, 5, 2] < 90
    assert drawn[55, 85, 2] > 140
    assert drawn[55, 85, 0] < 115
    assert (drawn[30, 45] == 128).all()
    assert (heat_map(image, np.zeros((3, 3)), imagenet(SIDE)) == image).all()
    blank = heat_map(picture(3), np.zeros((3, 3)), imagenet(SIDE))
    assert (blank == blank[:, :, :1]).all()
    assert blank.std() > 10


@pytest.mark.parametrize("shape", [(200, 30_000, 3), (4000, 1000, 3)])
def test_large_pictures_are_drawn_smaller(shape):
    """The longer side has 1600 pixels, and the aspect ratio is kept."""
    drawn = heat_map(np.zeros(shape, np.uint8), np.ones((2, 2), np.float32), imagenet(SIDE))
    assert max(drawn.shape) == LONGEST
    assert drawn.shape[0] / drawn.shape[1] == pytest.approx(shape[0] / shape[1], rel=0.1)


def test_only_what_the_model_saw_is_covered():
    """With a centre crop there is no evidence for the edges."""
    how = ImagePreprocessing((32, 32), mean=(0, 0, 0), std=(1, 1, 1), resize="bilinear", fit="crop", crop_ratio=0.8)
    assert seen((100, 200), how) == (10, 60, 80, 80)
    assert seen((200, 100), how) == (60, 10, 80, 80)
    assert seen((7, 9), imagenet(SIDE)) == (0, 0, 7, 9)
    image = np.full((100, 200, 3), 128, np.uint8)
    changed = (heat_map(image, np.ones((2, 2)), how) != image).any(axis=2)
    rows, columns = np.nonzero(changed)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (10, 89, 60, 139)


def test_evidence_is_written_as_png(tmp_path):
    """A PNG of the image's size, in a folder created on demand; other extensions are rejected."""
    model = torch_model()
    assert model.preprocessing is not None
    cells = cell_evidence(model, picture(1), QUERIES[1])
    drawn = heat_map(picture(1), cells, model.preprocessing)
    path = write_png(tmp_path / "new" / "map.png", drawn)
    with Image.open(path) as image:
        assert (image.format, image.size) == ("PNG", (50, 30))
    assert [each.name for each in path.parent.iterdir()] == ["map.png"]
    with pytest.raises(InputError, match="jpg"):
        write_png(tmp_path / "map.jpg", drawn)


@pytest.mark.parametrize("runtime", ["torch", "onnx"])
def test_windows_add_up_to_the_score(runtime, tmp_path):
    """A model that pools windows tells the share of each box; shares and their spread both sum to the score."""
    model = build(grid_config(image_size=LARGER, windows=6))
    if runtime == "onnx":
        export_onnx(model, tmp_path / "export")
        model = OnnxModel.load(tmp_path / "export", threads=1)
    score = float(model.encode_images([picture(2)])[0] @ QUERIES[0])
    found = image_evidence(model, picture(2), QUERIES[0])
    assert isinstance(found, BoxEvidence)
    assert found.boxes.shape == (6, 4)
    assert float(found.shares.sum()) == pytest.approx(score, abs=1e-5)
    assert float(found.density(28, 28).sum()) == pytest.approx(score, abs=1e-5)
    np.testing.assert_allclose(
        found.shares,
        naive_evidence(build(grid_config(image_size=LARGER, windows=6)), picture(2), QUERIES[0]),
        atol=1e-5,
    )
    with pytest.raises(InputError, match="6 windows, not cells"):
        cell_evidence(model, picture(2), QUERIES[0])


def test_the_strongest_boxes_are_outlined():
    """Red for the query, blue against it, at the sides of the box; a weak box has no outline."""
    image = np.full((60, 90, 3), 128, np.uint8)
    boxes = np.array([[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1], [0, 0.5, 0.5, 1], [0.5, 0, 1, 0.5]], np.float32)
    shares = np.array([0.4, -0.3, 0.0001, 0.00001], np.float32)
    drawn = box_map(image, BoxEvidence(boxes, shares), imagenet(SIDE)).astype(int)
    assert drawn.shape == (60, 90, 3)
    red, blue = drawn[15, 0], drawn[59, 70]
    assert red[0] - red[2] > 150
    assert blue[2] - blue[0] > 150
