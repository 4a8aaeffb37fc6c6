"""Exported towers: what ONNX Runtime computes is what torch computes, for any batch, set size and pooling."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from tests.support_models import (
    CAPTIONS,
    FEATURES,
    assert_unit,
    bert_config,
    bigru_config,
    build,
    draw_nothing,
    feature_sets,
    grid_config,
    picture,
    region_config,
)

import vse
from vse.convert.onnx_export import ExportReport, export_onnx
from vse.convert.onnx_graph import TowerAgreement, recalls
from vse.data.dataset import CaptionedImages, FeatureRows
from vse.errors import InputError, VSEError
from vse.models.config import PoolingConfig
from vse.models.onnx import OnnxModel
from vse.models.storage import load_model
from vse.models.vse_model import VSEModel
from vse.pooling import list_poolings

OPTIONS = {"k-max": {"k": 2}, "top-percent": {"percent": 50}}
TOLERANCE = 1e-4


@pytest.fixture
def quick(monkeypatch):
    draw_nothing(monkeypatch)


@pytest.fixture(scope="module")
def region(tmp_path_factory):
    """A region × BiGRU model and its float32 export."""
    model = build()
    folder = tmp_path_factory.mktemp("export") / "region"
    with pytest.MonkeyPatch.context() as patch:
        draw_nothing(patch)
        report = export_onnx(model, folder)
    return model, vse.load(folder), report


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """A grid × BERT model and its float32 export."""
    model = build(grid_config(), bert_config())
    folder = tmp_path_factory.mktemp("export") / "grid"
    with pytest.MonkeyPatch.context() as patch:
        draw_nothing(patch)
        export_onnx(model, folder)
    return model, vse.load(folder)


def test_exported_region_tower_agrees_for_any_batch(region):
    """Batch and set size are free, padding included; a single element and the largest set of the table too."""
    model, exported, _ = region
    for sizes in ([1], [36] * 3, [1, 2, 3, 4, 5, 9], [256], [7, 100, 2]):
        sets = feature_sets(*sizes)
        np.testing.assert_allclose(exported.encode_images(sets), model.encode_images(sets), atol=TOLERANCE)


def test_exported_text_tower_agrees_for_any_batch(region):
    """Sentences go through the same tokenizer and give the same vectors, alone or together."""
    model, exported, _ = region
    texts = [*CAPTIONS, "dog", "snow " * 40]
    expected = model.encode_texts(texts)
    np.testing.assert_allclose(exported.encode_texts(texts), expected, atol=TOLERANCE)
    for text, row in zip(texts, expected, strict=True):
        np.testing.assert_allclose(exported.encode_texts([text])[0], row, atol=TOLERANCE)


def test_exported_grid_and_transformer_towers_agree(grid):
    """The preprocessing travels with the towers: the same image gives the same vector, whatever its size."""
    model, exported = grid
    pictures = [picture(seed, 20 + 7 * seed, 33) for seed in range(5)]
    vectors = exported.encode_images(pictures, batch_size=2)
    assert_unit(vectors, 5)
    np.testing.assert_allclose(vectors, model.encode_images(pictures), atol=TOLERANCE)
    tokens, lengths = np.array([[5, 6, 7, 8], [5, 8, 0, 0]]), np.array([4, 2])
    np.testing.assert_allclose(
        exported.embed_tokens(tokens, lengths), model.embed_tokens(tokens, lengths), atol=TOLERANCE
    )


def test_exported_contributions_add_up_to_embedding(grid, region):
    """Every cell's part of the embedding is an output of its own, and the parts make the whole."""
    for (model, exported, *_), batch in (
        (grid, np.random.default_rng(0).normal(size=(3, 3, 40, 40))),
        (region, np.stack(feature_sets(9, 9))),
    ):
        inputs = batch.astype(np.float32)
        parts = exported.contributions(inputs)
        np.testing.assert_allclose(parts.sum(axis=1), model.embed_images(inputs), atol=TOLERANCE)
    rows, columns = grid[1].config.grid
    assert grid[1].contributions(np.zeros((1, 3, 40, 40), np.float32)).shape[1] == rows * columns


@pytest.mark.slow
@pytest.mark.parametrize("name", list_poolings())
def test_every_pooling_can_be_exported(name, tmp_path, quick):
    """No pooling of the paper is skipped; the ones that weight ranks explain themselves, the others say no."""
    pooling = PoolingConfig(name=name, options=OPTIONS.get(name, {}))
    model = build(region_config(pooling=pooling), bigru_config(pooling=pooling))
    report = export_onnx(model, tmp_path / "out", largest_set=40)
    assert all(tower.max_difference <= TOLERANCE for tower in report.agreement.values())
    exported = OnnxModel.load(tmp_path / "out")
    if not exported.config.explains:
        with pytest.raises(InputError, match="no evidence"):
            exported.contributions(np.zeros((1, 2, FEATURES), np.float32))


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> tuple[VSEModel, ExportReport]:
    """A model with weights that are worth a conversion, and its export in full."""
    model = build(region_config(feature_size=FEATURES, hidden_size=400), bigru_config(word_size=200))
    with pytest.MonkeyPatch.context() as patch:
        draw_nothing(patch)
        return model, export_onnx(model, tmp_path_factory.mktemp("wide") / "fp32")


@pytest.mark.parametrize("precision", ["fp16", "int8", "mixed"])
def test_reduced_precision_reports_size_and_loss(precision, tmp_path, wide, quick):
    """Half and eight bits shrink the files; the report gives the loss, on data in points of recall."""
    generator = np.random.default_rng(0)
    images = FeatureRows(generator.normal(size=(4, 6, FEATURES)).astype(np.float32), np.arange(4), tuple("abcd"))
    data = CaptionedImages("tiny", "test", "table", images, tuple(CAPTIONS), np.arange(4))
    model, full = wide
    report = export_onnx(model, tmp_path / precision, precision=precision, data=data)
    for tower in ("image", "text"):
        assert report.bytes[tower] < 0.8 * full.bytes[tower]
        assert report.agreement[tower].mean_cosine > 0.99
    assert set(report.recall_lost()) == {f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)}
    exported = vse.load(tmp_path / precision)
    assert exported.fingerprint() == f"{model.fingerprint()}-{precision}"
    assert_unit(exported.encode_texts(CAPTIONS), 4)
    assert exported.config.agreement["recall_lost_i2t_r10"] == report.recall_lost()["i2t_r10"]
    (score,) = exported.config.source["about"]["scores"]
    assert score["values"]["rsum"] == pytest.approx(sum(report.recalls["export"].values()))
    assert "4 images, 4 captions, the export" in (tmp_path / precision / "README.md").read_text("utf-8")


@pytest.mark.slow
def test_int8_export_calibrates_convolutions(tmp_path, quick):
    """Convolutions are quantized with ranges measured on images, and stay near float32."""
    model = build(grid_config())
    pictures = [picture(seed, 40, 40) for seed in range(16)]
    report = export_onnx(model, tmp_path / "out", precision="int8", images=pictures)
    graph = onnx.load(str(tmp_path / "out" / "image.onnx")).graph
    assert "QuantizeLinear" in {node.op_type for node in graph.node}
    assert report.agreement["image"].mean_cosine > 0.9


def test_exported_recurrence_is_one_operator(region):
    """The length of a text is not baked in: the graph has one GRU, not one step for each word of an example."""
    _, exported, _ = region
    operators = [node.op_type for node in onnx.load(str(exported.folder / "text.onnx")).graph.node]
    assert operators.count("GRU") == 1
    assert len(operators) < 60


def test_exported_pooling_is_a_table(region):
    """The coefficient generator stays at home: the image tower has no recurrence."""
    _, exported, _ = region
    assert "GRU" not in {node.op_type for node in onnx.load(str(exported.folder / "image.onnx")).graph.node}


def test_export_reports_its_limits(region, grid):
    """Sets beyond the table, texts beyond the longest, features where images are read: one line each."""
    _, exported, _ = region
    with pytest.raises(InputError, match=r"a set of 257 features; this export holds a pooling table up to 256"):
        exported.encode_images(feature_sets(257))
    with pytest.raises(InputError, match=r"a text of 21 tokens; this export reads 20"):
        exported.embed_tokens(np.ones((1, 21), np.int64), np.array([21]))
    with pytest.raises(InputError, match="not images"):
        exported.encode_images(["photo.jpg"])
    with pytest.raises(InputError, match="a set needs"):
        exported.embed_images(np.zeros((2, 3, FEATURES), np.float32), np.array([3, 0]))
    with pytest.raises(InputError, match="reads images"):
        grid[1].embed_images(np.zeros((1, 4, 64), np.float32))


def test_failed_export_installs_nothing(tmp_path, monkeypatch, quick):
    """A float32 export that differs from torch is an error, and leaves neither the folder nor scraps behind."""
    monkeypatch.setattr("vse.convert.onnx_towers.unit_norm", lambda vectors: vectors * 1.01)
    with pytest.raises(VSEError, match="differs from torch"):
        export_onnx(build(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_export_replaces_only_an_export(tmp_path, region, quick):
    """A folder with other things in it is refused; an older export is replaced as a whole."""
    other = tmp_path / "photos"
    other.mkdir()
    (other / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(InputError, match="is not an export"):
        export_onnx(build(), other)
    assert (other / "holiday.jpg").exists()
    export_onnx(build(seed=1), tmp_path / "out")
    before = vse.load(tmp_path / "out").fingerprint()
    export_onnx(build(seed=2), tmp_path / "out")
    assert vse.load(tmp_path / "out").fingerprint() != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "photos"]


def test_export_names_no_folder_of_this_machine(region):
    """Torch's exporter records stack traces in the graph; an export that is shared must not carry them."""
    _, exported, _ = region
    for tower in ("image.onnx", "text.onnx"):
        content = (exported.folder / tower).read_bytes()
        assert str(Path(torch.__file__).parent).encode() not in content
        assert b"onnx_towers.py" not in content


def test_export_folder_is_complete(region):
    """Towers, configuration, tokenizer and card: nothing else is needed, and the card names the model."""
    _, exported, report = region
    names = {path.name for path in exported.folder.iterdir()}
    expected = {"config.json", "image.onnx", "text.onnx", "tokenizer.json", "tokenizer_settings.json", "README.md"}
    assert expected | {"pooling_curves.json"} <= names
    assert report.to_json()["agreement"]["image"]["max_difference"] <= TOLERANCE
    assert exported.fingerprint() == region[0].fingerprint()


@pytest.mark.parametrize("name", ["image.onnx", "text.onnx"])
def test_corrupt_tower_fails_in_one_line(name, region, tmp_path):
    """A tower that is truncated or absent is said so when it is needed."""
    import shutil

    folder = Path(shutil.copytree(region[1].folder, tmp_path / "copy"))
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2])
    for message in (r"{} is damaged", r"{}: not a complete ONNX model"):
        broken = vse.load(folder)
        with pytest.raises(InputError, match=message.format(name)):
            broken.encode_images(feature_sets(2)) if name == "image.onnx" else broken.encode_texts(["dog"])
        (folder / "checksums.json").unlink(missing_ok=True)  # exports of earlier versions have none
    (folder / name).unlink()
    with pytest.raises(InputError, match=rf"{name} is missing"):
        vse.load(folder)


def test_exporting_an_export_is_refused(region):
    """It has no torch weights, and says what is needed instead."""
    with pytest.raises(InputError, match="already an export"):
        load_model(region[1].folder)


def test_unknown_precision_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"unknown precision 'fp8': expected one of 'fp32', 'fp16', 'int8', 'mixed'"):
        export_onnx(build(), tmp_path / "out", precision="fp8")


def test_recalls_equal_a_naive_count():
    """Ranks by counting, ties against the truth, any number of captions: the same as sorting one query at a time."""
    generator = np.random.default_rng(0)
    for _ in range(20):
        images, owners = generator.normal(size=(7, 4)), generator.integers(0, 7, 15)
        owners[:7] = np.arange(7)
        texts = np.round(generator.normal(size=(15, 4)) + images[owners], 1)
        images = np.round(images, 1)
        found = recalls(images.astype(np.float32), texts.astype(np.float32), owners)
        scores = texts.astype(np.float32) @ images.astype(np.float32).T
        text_ranks, image_ranks = [], []
        for j, owner in enumerate(owners):
            text_ranks.append(1 + sum(scores[j, i] >= scores[j, owner] for i in range(7) if i != owner))
        for i in range(7):
            best = max(scores[j, i] for j in range(15) if owners[j] == i)
            image_ranks.append(1 + sum(scores[j, i] >= best for j in range(15) if owners[j] != i))
        for k in (1, 5, 10):
            assert found[f"t2i_r{k}"] == pytest.approx(100 * np.mean(np.array(text_ranks) <= k))
            assert found[f"i2t_r{k}"] == pytest.approx(100 * np.mean(np.array(image_ranks) <= k))


def test_agreement_counts_swapped_embeddings():
    """Two vectors exchanged are two twins lost; equal sets lose none."""
    vectors = torch.nn.functional.normalize(torch.randn(5, 8), dim=1).numpy()
    assert TowerAgreement.between(vectors, vectors).twins_lost == 0
    assert TowerAgreement.between(vectors, vectors[[1, 0, 2, 3, 4]]).twins_lost == 40
