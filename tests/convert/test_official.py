"""The four families of released checkpoints, put together by hand, give what slow versions of them give."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.convert.official_style import (
    SIZE,
    WORDS,
    bert_state,
    bigru_state,
    grid_state,
    region_state,
    resnet_state,
    write,
)
from tests.encoders import naive
from tests.support_models import assert_same_model, assert_unit, draw_nothing, feature_sets, picture, write_wordpieces
from torch import Tensor

import vse
from vse.convert import load_official
from vse.errors import InputError
from vse.inputs import Vocabulary, butd, imagenet
from vse.inputs.vocabulary import FIRST

GRID = {"precomp_enc_type": "backbone", "backbone_source": "detector_x"}
CLOSE = {"rtol": 0, "atol": 1e-5}
TOKENS, LENGTHS = torch.tensor([[1, 5, 20, 6, 2], [1, 7, 2, 0, 0]]), torch.tensor([5, 3])
REGIONS, COUNTS = torch.randn(3, 4, 10, generator=torch.Generator().manual_seed(5)), torch.tensor([4, 1, 3])
PIXELS = torch.randn(2, 3, 70, 50, generator=torch.Generator().manual_seed(6))


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch):
    draw_nothing(monkeypatch)


def texts(by: str, state: dict[str, Tensor]) -> Tensor:
    encode = {"bigru": naive.bigru, "bert": naive.bert}[by]
    return torch.stack([encode(row[:n], state) for row, n in zip(TOKENS, LENGTHS, strict=True)])


def images(by: str, state: dict[str, Tensor], layout: str = "caffe") -> Tensor:
    if by == "region":
        return torch.stack([naive.region(rows[:n], state) for rows, n in zip(REGIONS, COUNTS, strict=True)])
    maps = naive.resnet(PIXELS, naive.part(state, "backbone.resnet."), layout)
    return torch.stack([naive.grid(cells, state) for cells in maps])


@pytest.mark.parametrize("text", ["bigru", "bert"])
@pytest.mark.parametrize("image", ["region", "grid"])
@torch.no_grad()
def test_official_checkpoints_of_all_four_families_convert(image, text, tmp_path):
    """Region or grid images × BiGRU or BERT text: both halves compute what their tensors say, to 1e-5."""
    if text == "bert":
        pytest.importorskip("transformers")
    image_state = region_state() if image == "region" else grid_state(resnet_state(blocks=(1, 2, 1, 1)))
    text_state = bigru_state() if text == "bigru" else bert_state()
    model = load_official(write(tmp_path / "a.pth", image_state, text_state, **(GRID if image == "grid" else {})))
    assert (model.config.image.kind, model.config.text.kind) == (image, "transformer" if text == "bert" else text)
    assert not model.training
    given = {"features": REGIONS, "lengths": COUNTS} if image == "region" else {"pixels": PIXELS}
    torch.testing.assert_close(model.image_encoder(**given).double(), images(image, image_state), **CLOSE)
    torch.testing.assert_close(model.text_encoder(TOKENS, lengths=LENGTHS).double(), texts(text, text_state), **CLOSE)
    assert_same_model(vse.load(model.save(tmp_path / "model")), model)


@pytest.mark.parametrize("source", ["wsl", "resnext_wsl", "imagenet_resnext"])
@torch.no_grad()
def test_weakly_supervised_resnext_has_the_usual_layout(source, tmp_path):
    """The ResNeXts of the released code stride on the 3×3 convolution, the plain ResNets do not."""
    pytest.importorskip("timm")
    state = grid_state(resnet_state(stem=64, width=1, groups=32))
    model = load_official(write(tmp_path / "a.pth", state, bigru_state(), backbone_source=source))
    assert model.config.image.backbone.name.startswith("timm:")
    torch.testing.assert_close(model.image_encoder(PIXELS).double(), images("grid", state, "usual"), **CLOSE)
    assert model.preprocessing == imagenet(256)


@torch.no_grad()
def test_option_selects_resnet_layout(tmp_path):
    """The same tensors through the other layout load without a complaint and compute something else."""
    pytest.importorskip("timm")
    resnet = resnet_state(stem=64, width=64)  # one group: a plain ResNet that either layout can hold
    state = grid_state(resnet)
    found = {}
    for source in ("detector", "wsl"):
        model = load_official(write(tmp_path / "a.pth", state, bigru_state(), backbone_source=source))
        found[source] = model.image_encoder.backbone.feature_map(PIXELS[:, :, :, :40]).double()
    for source, layout in (("detector", "caffe"), ("wsl", "usual")):
        expected = naive.resnet(PIXELS[:, :, :, :40], resnet, layout)
        torch.testing.assert_close(found[source], expected, rtol=1e-4, atol=1e-4)
    assert found["detector"].shape == found["wsl"].shape
    assert (found["detector"] - found["wsl"]).norm() / found["wsl"].norm() > 0.05


@pytest.mark.parametrize(
    ("source", "scale", "expected"),
    [
        ("detector", 2, butd(512)),
        ("detector_x", 1, butd(256)),
        ("butd_detector", 1.5, butd(384)),
        ("imagenet", 2.0, imagenet(512)),
        ("imagenet_res50", 0.3, imagenet(76)),  # int(256 * 0.3)
        ("imagenet_res152", 1, imagenet(256)),
    ],
)
def test_converted_preprocessing_is_the_released_one(source, scale, expected, tmp_path):
    """BGR and Caffe's means for the detector, ImageNet's else; stretched by plain bilinear to int(256 · scale)."""
    path = write(
        tmp_path / "a.pth",
        grid_state(resnet_state()),
        bigru_state(),
        backbone_source=source,
        input_scale_factor=scale,
    )
    model = load_official(path)
    assert model.preprocessing == expected
    assert model.preprocessing.resize == "plain-bilinear"
    assert model.preprocessing.fit == "stretch"
    assert model.config.image.backbone.options["detector"] == ("detector" in source)


def test_converted_model_prepares_images_as_released(tmp_path):
    """``encode_images`` on an image of the model's own size equals subtracting the means in BGR by hand."""
    path = write(tmp_path / "a.pth", grid_state(resnet_state()), bigru_state(), **GRID, input_scale_factor=0.25)
    model = load_official(path)
    photo = picture(1, 64, 64)
    by_hand = photo[:, :, ::-1].astype(np.float32) - np.array([102.9801, 115.9465, 122.7717], np.float32)
    with torch.no_grad():
        expected = model.image_encoder(torch.from_numpy(by_hand.transpose(2, 0, 1).copy())[None])
    np.testing.assert_allclose(model.encode_images([photo]), expected.numpy(), atol=1e-6)


def test_conversion_records_data_recipe_and_score(tmp_path):
    """Dataset, recipe and score of the checkpoint end up in the model, with where they come from."""
    entries = {"best_rsum": np.float64(400.5), "epoch": 17}
    path = write(tmp_path / "name.pth", region_state(), bigru_state(), entries=entries, learning_rate=0.0005)
    about = load_official(path).config.about
    assert (about.name, about.data) == ("name", "f30k_precomp")
    assert "name.pth" in about.source
    assert about.recipe == {
        "margin": 0.2,
        "learning_rate": 0.0005,
        "backbone_source": "detector",
        "precomp_enc_type": "basic",
        "epoch": 17,
    }
    (score,) = about.scores
    assert score.values == {"rsum": 400.5}
    assert score.split == "dev"


@pytest.mark.parametrize("best", [np.float64(1.5), np.float32(1.5), 1.5, torch.tensor(1.5).item(), np.int64(2), 2])
def test_numpy_scores_are_read(best, tmp_path):
    """A numpy scalar is the only thing beyond tensors and options that the released script leaves behind."""
    model = load_official(write(tmp_path / "a.pth", region_state(), bigru_state(), entries={"best_rsum": best}))
    assert model.config.about.scores[0].values == {"rsum": float(best)}


@pytest.mark.parametrize("best", [float("nan"), float("inf"), None])
def test_non_finite_score_is_not_recorded(best, tmp_path):
    """Training that was stopped before its first evaluation leaves no number: nothing is recorded."""
    model = load_official(write(tmp_path / "a.pth", region_state(), bigru_state(), entries={"best_rsum": best}))
    assert model.config.about.scores == ()
    assert_same_model(vse.load(model.save(tmp_path / "model")), model)


class TestVocabulary:
    """The words of a BiGRU checkpoint come from a file beside it."""

    @staticmethod
    def words(path, size: int):
        """A file in the layout of SCAN, which holds no <mask>."""
        words = [*FIRST, "a", "dog", "runs", *(f"word{n}" for n in range(size - 8))]
        Vocabulary(words).save(path)
        return path

    def test_converted_model_with_vocabulary_reads_text(self, tmp_path):
        """Sentences become the tokens that the checkpoint was trained on."""
        path = write(tmp_path / "a.pth", region_state(), bigru_state(), vocab_size=WORDS)
        model = load_official(path, vocabulary=self.words(tmp_path / "vocab.json", WORDS))
        found = model.encode_texts(["A dog runs", "a zebra"])
        assert_unit(found, 2, SIZE)
        with torch.no_grad():
            by_hand = model.text_encoder(torch.tensor([[1, 4, 5, 6, 2]]))
        np.testing.assert_allclose(found[:1], by_hand.numpy(), atol=1e-6)

    @pytest.mark.parametrize("size", [WORDS - 1, WORDS + 1])
    def test_converting_with_other_vocabulary_is_refused(self, size, tmp_path):
        """Both sizes are named."""
        path = write(tmp_path / "a.pth", region_state(), bigru_state())
        vocabulary = self.words(tmp_path / "vocab.json", size)
        with pytest.raises(InputError, match=rf"vocab\.json: {size} words.*{WORDS}"):
            load_official(path, vocabulary=vocabulary)

    def test_converted_model_without_vocabulary_takes_tokens(self, tmp_path):
        """It loads, and says what it lacks when it is asked to read."""
        model = load_official(write(tmp_path / "a.pth", region_state(), bigru_state()))
        with pytest.raises(InputError, match="--vocab FILE"):
            model.encode_texts(["a dog"])
        assert_unit(model.encode_images(feature_sets(3, 1, width=10)), 2, SIZE)

    def test_vocabulary_and_tokenizer_must_match_text_encoder(self, tmp_path):
        """A tokenizer for a BiGRU, or a vocabulary for BERT, is a mistake that is named."""
        pytest.importorskip("transformers")
        gru = write(tmp_path / "gru.pth", region_state(), bigru_state())
        bert = write(tmp_path / "bert.pth", region_state(), bert_state())
        with pytest.raises(InputError, match="BiGRU text encoder: give its vocabulary"):
            load_official(gru, tokenizer=tmp_path)
        with pytest.raises(InputError, match="BERT text encoder: give its tokenizer"):
            load_official(bert, vocabulary=tmp_path / "vocab.json")

    def test_converted_bert_reads_text_with_tokenizer(self, tmp_path):
        """A folder with ``vocab.txt`` is enough."""
        pytest.importorskip("transformers")
        path = write(tmp_path / "a.pth", region_state(), bert_state())
        model = load_official(path, tokenizer=write_wordpieces(tmp_path / "pieces"))
        found = model.encode_texts(["a dog runs"])
        assert_unit(found, 1, SIZE)
        with torch.no_grad():
            by_hand = model.text_encoder(torch.tensor([[2, 5, 6, 7, 3]]))
        np.testing.assert_allclose(found, by_hand.numpy(), atol=1e-6)

    def test_tokenizer_larger_than_bert_is_refused(self, tmp_path):
        """Ids beyond the embeddings are found before the first text, and both sizes are named."""
        pytest.importorskip("transformers")
        path = write(tmp_path / "a.pth", region_state(), bert_state())
        with pytest.raises(InputError, match=r"41.*30|30.*41"):
            load_official(path, tokenizer=write_wordpieces(tmp_path / "pieces", 41))


@pytest.mark.parametrize("image", ["region", "grid"])
def test_converted_model_is_trainable(image, tmp_path):
    """A step of an optimiser changes every parameter that a batch reaches; loss and gradients are finite."""
    state = region_state() if image == "region" else grid_state(resnet_state())
    model = load_official(write(tmp_path / "a.pth", state, bigru_state(), **(GRID if image == "grid" else {})))
    model.train()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0)
    given = (REGIONS[:2], TOKENS, COUNTS[:2], LENGTHS) if image == "region" else (PIXELS, TOKENS, None, LENGTHS)
    image_vectors, text_vectors = model(*given)
    loss = (0.2 + image_vectors @ text_vectors.T).clamp(min=0).sum() + image_vectors.sum()
    loss.backward()
    optimiser.step()
    assert loss.isfinite()
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad, name
        assert parameter.grad.isfinite().all(), name
        assert not torch.equal(parameter, before[name]), name
    assert_same_model(vse.load(model.save(tmp_path / "model")), model)


def test_converted_model_survives_save_and_load(tmp_path):
    """State, configuration, tokenizer, fingerprint, and vectors exactly."""
    path = write(tmp_path / "a.pth", grid_state(resnet_state()), bigru_state(), **GRID, input_scale_factor=0.2)
    model = load_official(path, vocabulary=TestVocabulary.words(tmp_path / "vocab.json", WORDS))
    loaded = vse.load(model.save(tmp_path / "model"))
    assert_same_model(loaded, model)
    photos = [picture(n) for n in range(3)]
    np.testing.assert_array_equal(loaded.encode_images(photos), model.encode_images(photos))
    np.testing.assert_array_equal(loaded.encode_texts(["a dog", "runs"]), model.encode_texts(["a dog", "runs"]))
