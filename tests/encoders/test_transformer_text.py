"""Sentences as the last hidden states of a Hugging Face encoder, whichever it is."""

from __future__ import annotations

import json

import pytest
import torch
from tests.convert.official_style import BERT_INNER, BERT_POSITIONS, BERT_SIZE, PIECES, SIZE, bert_state
from tests.encoders import naive

from vse.encoders import TransformerTextEncoder
from vse.encoders.transformer_text import TOGETHER, architecture_of, create_transformer, load_transformer
from vse.errors import InputError
from vse.pooling import GPO

pytest.importorskip("transformers")

COMMON = {"vocab_size": 30, "max_position_embeddings": 20}
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
ARCHITECTURES = {
    "bert": COMMON | SMALL,
    "roberta": COMMON | SMALL | {"pad_token_id": 1},
    "distilbert": COMMON | {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 8},
    "electra": COMMON | SMALL | {"embedding_size": 8},
    "mpnet": COMMON | SMALL,
}
kinds = pytest.mark.parametrize("kind", list(ARCHITECTURES))


def encoder(kind: str, seed: int = 0) -> TransformerTextEncoder:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        transformer = create_transformer({"model_type": kind, **ARCHITECTURES[kind]})
        return TransformerTextEncoder(transformer, SIZE, GPO()).eval()


def test_transformer_text_follows_its_definition():
    """Embeddings, attention, the two layers after it, a linear map and GPO: one sentence at a time, step by step."""
    state = bert_state()
    architecture = {
        "model_type": "bert",
        "vocab_size": PIECES,
        "hidden_size": BERT_SIZE,
        "num_hidden_layers": 2,
        "num_attention_heads": BERT_SIZE // 64,
        "intermediate_size": BERT_INNER,
        "max_position_embeddings": BERT_POSITIONS,
    }
    model = TransformerTextEncoder(create_transformer(architecture), SIZE, GPO()).eval()
    ours = {"transformer.": "bert.", "pooling.": "gpool.", "linear.": "linear."}
    renamed = {}
    for name in model.state_dict():
        prefix = next(prefix for prefix in ours if name.startswith(prefix))
        renamed[name] = state[ours[prefix] + name.removeprefix(prefix)]
    model.load_state_dict(renamed)
    tokens = torch.tensor([[2, 5, 9, 29, 3], [2, 7, 3, 0, 0], [2, 3, 0, 0, 0]])
    lengths = torch.tensor([5, 3, 2])
    expected = torch.stack([naive.bert(row[:n], state) for row, n in zip(tokens, lengths, strict=True)])
    with torch.no_grad():
        found = model(tokens, lengths=lengths)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)


@kinds
@torch.no_grad()
def test_any_encoder_gives_unit_vectors_that_padding_does_not_change(kind):
    """Whichever family: one unit vector a sentence, the same alone and beside longer ones."""
    model = encoder(kind)
    pad = model.transformer.config.pad_token_id or 0
    rows = [[2, 5, 9, 11, 3], [2, 7, 3], [2, 12, 13, 3]]
    tokens = torch.tensor([row + [pad] * (7 - len(row)) for row in rows])
    found = model(tokens, lengths=torch.tensor([len(row) for row in rows]))
    torch.testing.assert_close(found.norm(dim=1), torch.ones(3), rtol=0, atol=1e-5)
    alone = torch.cat([model(torch.tensor([row])) for row in rows])
    torch.testing.assert_close(found, alone, rtol=0, atol=1e-5)


@kinds
def test_the_described_architecture_builds_the_same_network(kind):
    """What is written into a configuration, as JSON, builds a network that takes the same weights, offline."""
    model = encoder(kind).transformer
    described = json.loads(json.dumps(architecture_of(model)))
    again = create_transformer(described).eval()
    again.load_state_dict(model.state_dict(), strict=True)
    assert architecture_of(again) == architecture_of(model)
    tokens = torch.tensor([[2, 5, 9, 3]])
    with torch.no_grad():
        torch.testing.assert_close(
            again(input_ids=tokens).last_hidden_state, model(input_ids=tokens).last_hidden_state, rtol=0, atol=0
        )


@kinds
def test_transformer_text_trains_every_parameter(kind):
    """No weights are kept that no sentence can reach: one backward pass gives each a gradient."""
    model = encoder(kind).train()
    model(torch.tensor([[2, 5, 9, 3]])).square().mul(torch.arange(SIZE)).sum().backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert without == []


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
@torch.no_grad()
def test_the_longest_text_is_taken_and_a_longer_one_refused(kind):
    """At the last position that the network has, it answers; beyond, one line says how many there are."""
    model = encoder(kind)
    # RoBERTa numbers its positions from pad + 1 on, so two of them are never used.
    longest = 20 - (model.transformer.config.pad_token_id + 1 if kind == "roberta" else 0)
    assert model(torch.full((1, longest), 5)).shape == (1, SIZE)
    with pytest.raises(InputError, match=rf"{longest + 1} tokens.*\b{longest}\b"):
        model(torch.full((1, longest + 1), 5))


@pytest.mark.parametrize(
    ("tokens", "lengths", "said"),
    [
        (torch.tensor([[2, 30]]), None, "token id 30 is outside the vocabulary of 30"),
        (torch.tensor([[-1, 3]]), None, "token id -1"),
        (torch.tensor([[0.5]]), None, "must be integers"),
        (torch.tensor([[2, 3]]), torch.tensor([0]), r"lengths\[0\] is 0"),
        (torch.tensor([[2, 3]]), torch.tensor([5]), r"lengths\[0\] is 5"),
    ],
)
def test_transformer_text_refuses_invalid_tokens_and_lengths(tokens, lengths, said):
    """As for every text encoder."""
    with pytest.raises(InputError, match=said):
        encoder("bert")(tokens, lengths=lengths)


@pytest.mark.parametrize(
    ("architecture", "said"),
    [
        ({"vocab_size": 30}, "no 'model_type'"),
        ({"model_type": "brt"}, "'brt'"),
        ({"model_type": "bert", **SMALL, "num_attention_heads": 3}, "transformers cannot build a 'bert'"),
    ],
)
def test_invalid_transformer_architecture_fails_in_one_line(architecture, said):
    """A type that transformers does not know, or sizes that do not go together."""
    with pytest.raises(InputError, match=said) as caught:
        create_transformer(architecture)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_pretrained_weights_come_from_a_folder(tmp_path):
    """A local folder of Hugging Face files is loaded with its weights, and nothing is asked of the network."""
    original = encoder("bert").transformer
    original.save_pretrained(tmp_path)
    loaded = load_transformer(str(tmp_path))
    for name, tensor in original.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name


def test_folder_without_transformer_fails_in_one_line(tmp_path):
    """Neither weights nor configuration: the folder is named."""
    with pytest.raises(InputError, match="no pretrained encoder") as caught:
        load_transformer(str(tmp_path))
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@kinds
def test_transformer_batching_does_not_change_texts(kind):
    """A large batch goes through in parts of similar length; order and values are those of one by one."""
    model = encoder(kind)
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 18, (2 * TOGETHER + 5,), generator=generator)
    tokens = torch.randint(2, 30, (len(lengths), 18), generator=generator)
    with torch.no_grad():
        together = model(tokens, lengths)
        alone = torch.cat([model(row[None, :n]) for row, n in zip(tokens, lengths.tolist(), strict=True)])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)
