"""GPO inside networks of timm and transformers, and as a module of sentence-transformers."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from tests.conftest import library
from tests.support_models import BERT, build, grid_config, picture, write_wordpieces

import vse
from vse.adapters.torch_models import FeatureExtraction, MapPooling, set_global_pool
from vse.encoders.third_party import repair_torchvision
from vse.errors import InputError
from vse.pooling import GPO, AvgPool, MaxPool, create_pooling, list_poolings

transformers = library("transformers", "train")


@pytest.fixture(scope="module", autouse=True)
def _repaired():
    """A torchvision without its operators breaks what is imported first: transformers, timm, sentence-transformers."""
    repair_torchvision()


@pytest.mark.parametrize("name", list_poolings())
def test_attention_mask_equals_the_boolean_mask(name):
    """Every pooling takes the mask of a tokenizer as it is."""
    torch.manual_seed(0)
    options = {"k-max": {"k": 3}, "top-percent": {"percent": 30}}.get(name, {})
    if name in {"fspool", "self-attention", "seq2seq", "gcn-avg", "gcn-seq2seq"}:
        options = {"dim": 6}
    pool = create_pooling(name, **options).eval()
    features, mask = torch.randn(3, 5, 6), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]])
    torch.testing.assert_close(pool(features, attention_mask=mask), pool(features, mask=mask.bool()))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attention_mask": torch.zeros(2, 3)}, "must be a tensor of integers"),
        ({"attention_mask": torch.ones(2, 3).long(), "mask": torch.ones(2, 3).bool()}, "not both"),
        ({"attention_mask": torch.tensor([[1, 1, 1], [0, 0, 0]])}, r"mask\[1\] is all False"),
    ],
)
def test_attention_mask_that_cannot_be_read_is_one_line(given, message):
    """Additive masks, two masks, and sets without elements are refused."""
    with pytest.raises(InputError, match=message):
        GPO()(torch.randn(2, 3, 4), **given)


def test_map_pooling_pools_cells_in_either_layout():
    """A map pools like the set of its cells, whichever dimension holds the channels."""
    torch.manual_seed(0)
    pool, features = GPO(), torch.randn(2, 4, 3, 5)
    expected = pool(features.permute(0, 2, 3, 1).reshape(2, 15, 4))
    torch.testing.assert_close(MapPooling(pool)(features), expected)
    last = MapPooling(pool, channels_last=True, keep_map=True)(features.permute(0, 2, 3, 1))
    torch.testing.assert_close(last, expected[:, None, None])
    with pytest.raises(InputError, match="four dimensions"):
        MapPooling(pool)(features[0])


@pytest.fixture(scope="module")
def timm():
    """The library."""
    return library("timm", "train")


@pytest.mark.parametrize("name", ["resnet10t", "test_convnext"])
def test_timm_model_with_our_average_is_unchanged_and_gpo_trains(timm, name):
    """Replacing the global pooling by our average changes nothing; GPO receives gradients."""
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=3).eval()
    images = torch.randn(2, 3, 64, 64)
    before = model(images).detach()
    torch.testing.assert_close(set_global_pool(model, AvgPool())(images), before, rtol=1e-4, atol=1e-5)
    set_global_pool(model, "gpo", start="average")(images).square().sum().backward()
    assert any(parameter.grad is not None for key, parameter in model.named_parameters() if "pooling" in key)


@pytest.mark.parametrize("name", ["resnet10t", "test_convnext"])
def test_timm_reset_classifier_keeps_gpo(timm, name):
    """The usual step before fine-tuning changes the classes alone, in a copy too; a pooling that it names is built."""
    model, images = set_global_pool(timm.create_model(name, num_classes=3), "gpo").eval(), torch.randn(2, 3, 64, 64)
    pooling = next(each for each in model.modules() if isinstance(each, GPO))
    copied = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    copied.reset_classifier(7)
    model.reset_classifier(5)
    assert (model(images).shape, copied(images).shape) == ((2, 5), (2, 7))
    assert any(each is pooling for each in model.modules())
    model.reset_classifier(0)
    assert model(images).dim() == 2
    model.reset_classifier(4, "avg")
    assert model(images).shape == (2, 4)
    assert not any(isinstance(each, GPO) for each in model.modules())


def test_timm_vision_transformer_is_refused(timm):
    """It has tokens, not a map."""
    with pytest.raises(InputError, match="no global pooling over a feature map"):
        set_global_pool(timm.create_model("test_vit", num_classes=2))


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A tiny BERT, its tokenizer and their folder."""
    folder = write_wordpieces(tmp_path_factory.mktemp("bert"))
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**dict(BERT))).eval()
    model.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer, folder


def test_feature_extraction_pools_valid_tokens_alone(bert):
    """A text has the same embedding alone and beside a longer one, as by hand."""
    model, tokenizer, _ = bert
    extract = FeatureExtraction(model, tokenizer, "avg", normalize=False)
    together = extract(["a dog", "a dog runs snow a dog"])
    np.testing.assert_allclose(together[:1], extract("a dog"), rtol=1e-4, atol=1e-5)
    states = model(**tokenizer(["a dog"], return_tensors="pt")).last_hidden_state
    np.testing.assert_allclose(together[0], states.mean(1)[0].detach(), rtol=1e-4, atol=1e-5)
    assert np.linalg.norm(FeatureExtraction(model, tokenizer, MaxPool())("a")) == pytest.approx(1, abs=1e-5)
    with pytest.raises(InputError, match="no texts"):
        extract([])


def test_gpo_pooling_of_sentence_transformers_saves_and_loads(bert, tmp_path):
    """A model with a GPO gives the same embeddings after it is saved in modules.json and loaded."""
    sbert = library("sentence_transformers", "adapters")
    from sentence_transformers.sentence_transformer.modules import Transformer

    from vse.adapters.sentence_transformers import GPOPooling

    words = Transformer(str(bert[2]))
    pooling = GPOPooling(words.get_embedding_dimension(), options={"start": "average"})
    model = sbert.SentenceTransformer(modules=[words, pooling], device="cpu")
    expected = model.encode(["a dog", "snow"])
    assert expected.shape == (2, words.get_embedding_dimension())
    model.save(str(tmp_path / "saved"))
    again = sbert.SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True, device="cpu")
    np.testing.assert_allclose(again.encode(["a dog", "snow"]), expected, rtol=1e-5, atol=1e-6)
    assert isinstance(again[1], GPOPooling)


def test_vse_model_encodes_as_a_sentence_transformer(tmp_path):
    """Texts and images have the embeddings of the model itself, also where the saved folder was moved alone."""
    sbert = library("sentence_transformers", "adapters")
    from vse.adapters.sentence_transformers import VSEEncoder

    folder = build(image=grid_config()).save(tmp_path / "model")
    own, image = vse.load(folder), tmp_path / "image.png"
    Image.fromarray(picture()).save(image)
    model = sbert.SentenceTransformer(modules=[VSEEncoder(str(folder))], device="cpu")
    np.testing.assert_allclose(model.encode(["a dog"]), own.encode_texts(["a dog"]), atol=1e-6)
    np.testing.assert_allclose(model.encode([Image.open(image)]), own.encode_images([image]), atol=1e-6)
    odd = model.encode(["a dog", "qqqq", " "])  # a text without a known word does not end an encode
    np.testing.assert_allclose(odd[:2], own.encode_texts(["a dog", "qqqq"], unknown="allow"), atol=1e-6)
    assert np.isfinite(odd[2]).all()
    for _ in range(2):  # the second time over the first
        model.save(str(tmp_path / "saved"))
    moved = (tmp_path / "saved").rename(tmp_path / "moved")
    folder.rename(tmp_path / "gone")
    again = sbert.SentenceTransformer(str(moved), trust_remote_code=True, device="cpu")
    np.testing.assert_array_equal(again.encode(["a dog"]), model.encode(["a dog"]))
    again.save(str(moved))  # over itself
    assert vse.load(moved / "model").fingerprint() == own.fingerprint()
