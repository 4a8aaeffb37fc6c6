"""The cross-encoder against a second forward pass in float64, its scoring of pairs, and its files."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tests.support_models import CAPTIONS, word_tokenizer

import vse
from vse.errors import InputError
from vse.evaluation.rerank import score_pairs_of
from vse.models.config import CrossConfig
from vse.models.protocols import CandidateScorer, PairScorer
from vse.models.sources import load_torch
from vse.models.storage import create_model
from vse.systems import cross_encoder as module
from vse.systems.cross_encoder import CrossEncoder

FEATURES, HEADS, LAYERS = 6, 2, 2
TOKENIZER = word_tokenizer()
BERT = {
    "model_type": "bert",
    "vocab_size": TOKENIZER.vocab_size,
    "hidden_size": 8,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 12,
    "max_position_embeddings": 24,
}


def build(*, boxes: bool = False, tags: tuple[str, ...] = (), seed: int = 0, **changes) -> CrossEncoder:
    torch.manual_seed(seed)
    config = CrossConfig(feature_size=FEATURES, boxes=boxes, tags=tags, architecture=BERT | changes)
    model = create_model(config, TOKENIZER).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # BERT starts with zero biases, which would hide some of them
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def images_of(boxes: bool, counts=(3, 5, 4)) -> list[np.ndarray]:
    draw = np.random.default_rng(1)
    return [draw.normal(size=(count, FEATURES + 4 * boxes)).astype(np.float32) for count in counts]


def naive_norm(x, weight, bias):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-12) * weight + bias


def naive_score(
    state: dict[str, np.ndarray], regions: np.ndarray, tokens: list[int], boxes: bool, tags: tuple[int, ...] = ()
) -> float:
    """One pair in float64: attention of every word and region to every other, head by head."""

    def linear(x, name):
        return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    def norm(x, name):
        return naive_norm(x, state[f"{name}.weight"], state[f"{name}.bias"])

    table = "transformer.embeddings."
    words = np.stack([state[f"{table}word_embeddings.weight"][token] for token in (*tokens, *tags)])
    words = words + state[f"{table}position_embeddings.weight"][: len(words)]
    types = state[f"{table}token_type_embeddings.weight"][[0] * len(tokens) + [1] * len(tags)]
    words = norm(words + types, f"{table}LayerNorm")
    seen = norm(linear(regions[:, :FEATURES], "regions.linear"), "regions.norm") + state["kind"]
    if boxes:
        left, top, right, bottom = regions[:, FEATURES:].T
        sides = [left, top, right, bottom, right - left, bottom - top, (right - left) * (bottom - top)]
        seen = seen + norm(linear(np.stack(sides, axis=1), "regions.box_linear"), "regions.box_norm")
    states = np.concatenate([words, norm(seen, "regions.whole_norm")])
    for layer in range(LAYERS):
        name = f"transformer.encoder.layer.{layer}"
        query, key, value = (linear(states, f"{name}.attention.self.{each}") for each in ("query", "key", "value"))
        width = query.shape[1] // HEADS
        heads = []
        for head in range(HEADS):
            part = slice(head * width, (head + 1) * width)
            logits = query[:, part] @ key[:, part].T / np.sqrt(width)
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            heads.append(weights / weights.sum(axis=1, keepdims=True) @ value[:, part])
        attended = linear(np.concatenate(heads, axis=1), f"{name}.attention.output.dense")
        states = norm(states + attended, f"{name}.attention.output.LayerNorm")
        inner = torch.nn.functional.gelu(torch.from_numpy(linear(states, f"{name}.intermediate.dense"))).numpy()
        states = norm(states + linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
    return float(linear(np.tanh(linear(states[0], "pooler")), "head")[0])


@pytest.mark.parametrize("boxes", [False, True])
def test_cross_encoder_equals_a_naive_forward_pass(boxes):
    """Sets and texts of different sizes share a padded batch, and each pair scores as it does alone, to 1e-6."""
    model = build(boxes=boxes).double()
    state = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    images = [image.astype(np.float64) for image in images_of(boxes)]
    batch = TOKENIZER.encode(CAPTIONS[:3])
    padded = np.full((3, 5, images[0].shape[1]), np.nan)  # padding may hold anything
    for row, image in zip(padded, images, strict=True):
        row[: len(image)] = image
    lengths = torch.tensor([len(image) for image in images])
    found = model(
        torch.from_numpy(padded), torch.from_numpy(batch.tokens), lengths, torch.from_numpy(batch.lengths)
    ).tolist()
    wanted = [
        naive_score(state, image, batch.tokens[row, : batch.lengths[row]].tolist(), boxes)
        for row, image in enumerate(images)
    ]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
    assert np.ptp(wanted) > 1e-3


def test_cross_encoder_reads_tags_as_a_second_segment(tmp_path):
    """Behind each text, each tag once, cut where the positions end; as a naive pass of the pair alone, to 1e-6."""
    names = ("dog", "zzz", "red dog", "snow")
    tokens = {name: [int(each) for each in TOKENIZER.encode([name]).tokens[0][1:-1]] for name in names}
    model = build(tags=names).double()
    state = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    own = [(2, 3, 2, -1, -1), (-1,) * 5, (0, 1, -1, -1, -1)]
    images = [
        np.concatenate([image, np.array(numbers[: len(image)])[:, None]], axis=1).astype(np.float32)
        for image, numbers in zip(images_of(False, (5, 5, 4)), own, strict=True)
    ]
    wanted = np.empty((3, len(CAPTIONS)))
    for column, text in enumerate(CAPTIONS):
        batch = TOKENIZER.encode([text])
        for row, listed in enumerate(((2, 3), (), (0,))):  # no word of "zzz" is known
            tags = tuple(token for number in listed for token in tokens[names[number]])
            regions = images[row][:, :FEATURES].astype(np.float64)
            wanted[row, column] = naive_score(state, regions, batch.tokens[0].tolist(), False, tags)
    np.testing.assert_allclose(model.score_pairs(images, CAPTIONS), wanted, atol=1e-6)
    loaded = vse.load(str(build(tags=names).save(tmp_path / "m")))
    assert loaded.tags == names
    assert loaded.fingerprint() != build().fingerprint()
    assert "tags" not in build().architecture()
    with pytest.raises(InputError, match="tag 7 of an image: the model knows 4 tags"):
        model.score_pairs([np.full((2, FEATURES + 1), 7, np.float32)], CAPTIONS[:1])
    tight = build(tags=names, max_position_embeddings=int(max(TOKENIZER.encode(CAPTIONS).lengths)) + 1)
    assert np.isfinite(tight.score_pairs(images, CAPTIONS)).all()


def test_cross_encoder_scores_listed_pairs_in_any_blocks(monkeypatch):
    """The matrix, the listed pairs and single pairs agree, whatever the size of a block."""
    model, images = build(), images_of(False)
    assert isinstance(model, PairScorer)
    assert isinstance(model, CandidateScorer)
    whole = model.score_pairs(images, CAPTIONS)
    assert whole.shape == (3, 4)
    rows, columns = np.array([2, 0, 0, 1, 2]), np.array([3, 1, 0, 2, 3])
    for size in (1, 2, 64):
        monkeypatch.setattr(module, "PAIRS", size)
        found = model.score_candidates(images, CAPTIONS, rows, columns)
        np.testing.assert_allclose(found, whole[rows, columns], atol=2e-6)
    np.testing.assert_allclose(score_pairs_of(model, images, CAPTIONS)(rows, columns), whole[rows, columns], atol=2e-6)
    assert not model.training


def test_saved_cross_encoder_is_loaded_with_equal_scores(tmp_path):
    """Weights, box geometry and tokenizer are saved; a folder that describes no transformer is refused."""
    model, images = build(boxes=True), images_of(True)
    loaded = vse.load(str(model.save(tmp_path / "m")))
    np.testing.assert_array_equal(loaded.score_pairs(images, CAPTIONS), model.score_pairs(images, CAPTIONS))
    assert loaded.fingerprint() == model.fingerprint()
    assert loaded.capabilities == model.capabilities
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    (tmp_path / "m" / "config.json").write_text(json.dumps(config | {"architecture": {}, "pretrained": "bert-base"}))
    with pytest.raises(InputError, match="'architecture' is missing; a saved model describes its transformer itself"):
        vse.load(str(tmp_path / "m"))


def test_cross_encoder_keeps_the_first_layers_of_a_bert():
    """``layers`` cuts a transformer, and the saved configuration has the layers that are left."""
    model = create_model(CrossConfig(feature_size=FEATURES, architecture=BERT, layers=1), TOKENIZER)
    assert len(model.transformer.encoder.layer) == model.config.architecture["num_hidden_layers"] == 1
    with pytest.raises(InputError, match="layers is 3, and the transformer has 2: lower it"):
        create_model(CrossConfig(feature_size=FEATURES, architecture=BERT, layers=3), TOKENIZER)


def test_base_size_has_the_parameters_of_uniter():
    """BERT-base without its pooler's language head, 2048-d regions with boxes: about the 86 M of UNITER-base."""
    with torch.device("meta"):
        config = CrossConfig(boxes=True, architecture={"model_type": "bert", "vocab_size": 28996})
        model = create_model(config)
    count = sum(parameter.numel() for parameter in model.parameters())
    layers = sum(parameter.numel() for parameter in model.transformer.encoder.parameters())
    assert layers == 85_054_464  # 12 layers of BERT-base
    words = (28996 + 512 + 2) * 768 + 2 * 768
    image = 2048 * 768 + 768 + 7 * 768 + 768 + 3 * 2 * 768
    assert count == layers + words + image + 768 + (768 * 768 + 768) + (768 + 1)


def test_what_a_cross_encoder_cannot_do_is_one_line(monkeypatch, tmp_path):
    """Other features, too many pairs (with their cost), embeddings, an export, unknown words, other transformers."""
    model, images = build(), images_of(False)
    with pytest.raises(InputError, match=r"image 0 is an array \(3, 10\); this cross-encoder takes sets of features"):
        model.score_pairs(images_of(True), CAPTIONS)
    with pytest.raises(InputError, match=r"image 0 is 'a.jpg'; this cross-encoder takes sets of features \(N, 6\)"):
        model.score_pairs(["a.jpg"], CAPTIONS)
    monkeypatch.setattr(module, "MAX_PAIRS", 11)
    with pytest.raises(InputError, match=r"12 pairs, about 0\.0 hours .* at most 11 are scored: .*--rerank") as error:
        model.score_pairs(images, CAPTIONS)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="cross-encoder scores pairs"):
        load_torch(model.save(tmp_path / "cross"))  # as vse export does
    for encode in (model.encode_images, model.encode_texts):
        with pytest.raises(InputError, match="has no single vector of either: use it with --rerank"):
            encode(images)
    with pytest.raises(InputError, match="the model knows none of its words"):
        model.score_pairs(images[:1], ["zzz"])
    distil = {"model_type": "distilbert", "vocab_size": 30, "dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 8}
    with pytest.raises(InputError, match="not of a 'distilbert'"):
        create_model(CrossConfig(feature_size=6, architecture=distil))
