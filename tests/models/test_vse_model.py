"""Two encoders and their similarity: built from a configuration, called, saved, loaded."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.support_models import (
    CAPTIONS,
    FEATURES,
    SIDE,
    SIZE,
    assert_same_model,
    assert_unit,
    bert_config,
    bigru_config,
    build,
    draw_nothing,
    feature_sets,
    grid_config,
    picture,
    region_config,
    word_tokenizer,
    write_wordpieces,
)

import vse
from vse.errors import InputError
from vse.inputs import TextTokenizer
from vse.models.config import BackboneConfig, ModelConfig
from vse.models.vse_model import VSEModel
from vse.pooling import list_poolings

OPTIONS = {"k-max": {"k": 3}, "top-percent": {"percent": 40}}
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 24, "patch_size": 8}
poolings = pytest.mark.parametrize("pooling", list_poolings())


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch):
    draw_nothing(monkeypatch)


def named(pooling: str) -> dict[str, object]:
    return {"pooling": {"name": pooling, "options": OPTIONS.get(pooling, {})}}


def kept(model: VSEModel, folder) -> VSEModel:
    """The model after a round trip through the disk, which must not have changed it."""
    loaded = vse.load(model.save(folder))
    assert isinstance(loaded, VSEModel)
    assert_same_model(loaded, model)
    assert not loaded.training
    return loaded


class TestEveryPooling:
    """Each of them, in each tower: builds, encodes unit vectors, saves and loads exactly."""

    @poolings
    @pytest.mark.parametrize("tower", ["region", "grid"])
    def test_model_encodes_regions_and_images(self, pooling, tower, tmp_path):
        """Region sets and images."""
        config = region_config(**named(pooling)) if tower == "region" else grid_config(**named(pooling))
        model = build(config)
        items = feature_sets(5, 1, 3) if tower == "region" else [picture(n) for n in range(3)]
        found = model.encode_images(items)
        assert_unit(found, 3)
        np.testing.assert_array_equal(kept(model, tmp_path).encode_images(items), found)

    @poolings
    @pytest.mark.parametrize("tower", ["bigru", "bert"])
    def test_model_encodes_words_and_word_pieces(self, pooling, tower, tmp_path):
        """Words and word pieces."""
        if tower == "bert":
            pytest.importorskip("transformers")
            tokenizer = TextTokenizer.from_pretrained(write_wordpieces(tmp_path / "pieces"))
            model = build(text=bert_config(**named(pooling)), tokenizer=tokenizer)
        else:
            model = build(text=bigru_config(**named(pooling)))
        texts = ["a dog runs", "snow", "dogs in the snow"]
        found = model.encode_texts(texts)
        assert_unit(found, 3)
        np.testing.assert_array_equal(kept(model, tmp_path / "model").encode_texts(texts), found)


@pytest.mark.parametrize(
    "options", [{"decoder": "transformer"}, {"per_dimension": True}, {"data_dependent": True}, {"temperature": 0.5}]
)
def test_pooling_options_survive_save_and_load(options, tmp_path):
    """A variant of GPO is built again with its options."""
    pooling = {"pooling": {"name": "gpo", "options": options}}
    model = build(region_config(**pooling), bigru_config(**pooling))
    kept(model, tmp_path)


@pytest.mark.parametrize("kind", ["clip_vision_model", "siglip_vision_model", "vit", "dinov2"])
def test_vision_tower_loads_offline(kind, tmp_path):
    """A tower from transformers is written out in full and built again without asking anybody."""
    pytest.importorskip("transformers")
    extra = {"mlp_ratio": 1} if kind == "dinov2" else {"intermediate_size": 8}
    architecture = {"model_type": kind, **SMALL, **extra}
    backbone = BackboneConfig(name="transformers", options={"architecture": architecture})
    model = build(grid_config(backbone=backbone, image_size=None))
    assert model.preprocessing.size == (24, 24)
    photos = [picture(1), picture(2)]
    found = model.encode_images(photos)
    assert_unit(found, 2)
    np.testing.assert_array_equal(kept(model, tmp_path).encode_images(photos), found)


def test_saved_tower_is_independent_of_its_source(tmp_path):
    """Built from a folder of weights, saved, and loaded after the folder is gone."""
    transformers = pytest.importorskip("transformers")
    config = transformers.CLIPVisionConfig(**SMALL, intermediate_size=8)
    source = tmp_path / "source"
    transformers.CLIPVisionModel(config).save_pretrained(source)
    text_source = tmp_path / "text"
    transformers.BertModel(transformers.BertConfig(**dict(bert_config().architecture))).save_pretrained(text_source)
    model = build(
        grid_config(backbone=BackboneConfig(name=f"transformers:{source}"), image_size=None),
        bert_config(architecture={}, pretrained=str(text_source)),
    )
    found = model.encode_images([picture()])
    model.save(tmp_path / "model")
    source.rename(tmp_path / "gone")
    text_source.rename(tmp_path / "gone too")
    loaded = vse.load(tmp_path / "model")
    assert_same_model(loaded, model)
    np.testing.assert_array_equal(loaded.encode_images([picture()]), found)


def test_timm_model_survives_save_and_load(tmp_path):
    """By its name and options."""
    pytest.importorskip("timm")
    model = build(grid_config(backbone=BackboneConfig(name="timm:resnet18"), image_size=64))
    found = model.encode_images([picture()])
    np.testing.assert_array_equal(kept(model, tmp_path).encode_images([picture()]), found)


class TestCalling:
    """The model as a module."""

    def test_forward_returns_both_embeddings(self):
        """``forward`` gives the unit vectors of both sides, with gradients."""
        model = build()
        features, tokens = torch.randn(2, 4, FEATURES), torch.tensor([[1, 4, 2], [1, 2, 0]])
        images, texts = model(features, tokens, torch.tensor([4, 2]), torch.tensor([3, 2]))
        assert images.requires_grad
        assert texts.requires_grad
        torch.testing.assert_close(images, model.image_encoder(features, lengths=torch.tensor([4, 2])))
        torch.testing.assert_close(texts, model.text_encoder(tokens, lengths=torch.tensor([3, 2])))
        for vectors in (images, texts):
            torch.testing.assert_close(vectors.norm(dim=1), torch.ones(2), rtol=0, atol=1e-5)

    def test_model_reports_sizes_device_and_preprocessing(self):
        """Sizes, device and preprocessing."""
        region, grid = build(), build(grid_config())
        assert (region.embed_size, region.feature_size, region.preprocessing) == (SIZE, FEATURES, None)
        assert (grid.embed_size, grid.feature_size) == (SIZE, 64)
        assert grid.preprocessing.size == (SIDE, SIDE)
        assert grid.device == torch.device("cpu")

    def test_embed_methods_take_batches(self):
        """``embed_images`` and ``embed_tokens`` are the towers on numpy arrays, in evaluation mode."""
        model = build().train()
        batch, lengths = np.stack(feature_sets(4, 4)), np.array([4, 2])
        found = model.embed_images(batch, lengths)
        np.testing.assert_allclose(found, model.encode_images([batch[0], batch[1, :2]]), atol=1e-6)
        tokens = word_tokenizer().encode(CAPTIONS)
        np.testing.assert_allclose(
            model.embed_tokens(tokens.tokens, tokens.lengths), model.encode_texts(CAPTIONS), atol=1e-6
        )
        assert model.training

    def test_embeddings_carry_no_gradients(self):
        """``encode_*`` leaves nothing behind in the parameters."""
        model = build()
        model.encode_images(feature_sets(3))
        model.encode_texts(CAPTIONS)
        assert all(parameter.grad is None for parameter in model.parameters())

    def test_encoding_restores_training_mode(self):
        """Tensors made while encoding are not left in the model where they would refuse a gradient."""
        model = build(grid_config())
        model.encode_images([picture()])
        model.encode_texts(CAPTIONS)
        model.train()
        pixels = torch.randn(2, 3, SIDE, SIDE)
        images, texts = model(pixels, torch.tensor([[1, 4, 2], [1, 5, 2]]))
        (images * texts).sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())

    def test_bfloat16_model_returns_float32(self):
        """A model in bfloat16 still answers in float32."""
        model = build().to(torch.bfloat16)
        with torch.inference_mode():
            vectors = model.encode_texts(CAPTIONS)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=0.02)


class TestFingerprint:
    """Equal for models that give equal vectors, else different."""

    def test_fingerprint_depends_on_weights_and_inputs(self):
        """A weight, a word, the preprocessing change it; a name does not."""
        model = build(grid_config())
        mark = model.fingerprint()
        assert build(grid_config()).fingerprint() == mark
        assert build(grid_config(), about={"name": "another"}).fingerprint() == mark
        assert build(grid_config(), seed=1).fingerprint() != mark
        assert build(grid_config(image_size=SIDE + 8)).fingerprint() != mark
        assert build(grid_config(), tokenizer=word_tokenizer(19)).fingerprint() != mark

    def test_fingerprint_changes_with_a_single_bit(self):
        """Of the smallest buffer too."""
        model = build()
        marks = {model.fingerprint()}
        with torch.no_grad():
            model.image_encoder.projection.norm.num_batches_tracked += 1
            marks.add(model.fingerprint())
            model.text_encoder.embed.weight[3, 2] = torch.nextafter(
                model.text_encoder.embed.weight[3, 2], torch.tensor(9.0)
            )
            marks.add(model.fingerprint())
        assert len(marks) == 3

    def test_fingerprint_ignores_training_mode(self):
        """Training and evaluation mode are not part of the model."""
        model = build(grid_config())
        mark = model.fingerprint()
        assert model.train().fingerprint() == mark


def test_model_refuses_tokenizer_of_another_size():
    """Both sizes are named."""
    size = word_tokenizer().vocab_size
    config = ModelConfig(embed_size=SIZE, image=region_config(), text=bigru_config(vocabulary_size=size + 1))
    with pytest.raises(InputError, match=rf"{size} .*{size + 1}"):
        VSEModel.build(config, word_tokenizer())


def test_new_models_follow_the_seed():
    """Weights are drawn from torch's generator: one seed, one model."""
    assert build(seed=3).fingerprint() == build(seed=3).fingerprint()
    assert build(seed=3).fingerprint() != build(seed=4).fingerprint()
