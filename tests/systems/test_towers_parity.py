"""Systems of two towers compute what their formulas say."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from tests.systems import naive_towers as naive
from tests.systems.support_towers import GRAPH_F30K, REGION, SIZE, SYSTEMS, WORDS, built, inputs, rows_of, state_of
from torch.autograd import gradcheck

from vse.inputs.vocabulary import character_tokenizer
from vse.losses import contrastive_from_scores
from vse.models.config import ModelConfig
from vse.models.vse_model import VSEModel
from vse.systems.auxiliary import CaptionDecoder
from vse.systems.concepts import adjacency, co_occurrence
from vse.training.recipe import LossRecipe
from vse.training.schedule import Objective

CLOSE = {"rtol": 1e-6, "atol": 1e-6}
AUXILIARY = [name for name in SYSTEMS if name not in {"liwe", "de"}]


def projected(state, regions):
    return [naive.linear(state, "image_encoder.projection.fc", each) for each in regions]


def words(state, tokens):
    return [state["text_encoder.embed.weight"][each] for each in tokens]


def sides_of(model, batch):
    torch.manual_seed(5)
    return model.auxiliary.sides(model.image_encoder, model.text_encoder, batch)


def assert_rows(found, expected):
    np.testing.assert_allclose(found.detach().numpy(), np.stack(expected), **CLOSE)


def last_state(state, tokens):
    return naive.unit(naive.gru(naive.under(state, "text_encoder.rnn."), words(state, tokens))[-1])


@pytest.mark.parametrize("pooling", [None, GRAPH_F30K], ids=["coco", "f30k"])
def test_vsrn_equals_loops_over_regions_and_words(pooling):
    """Relation blocks, global reasoning, the GRU of texts, and the cost of generated captions up to one <pad>."""
    model = built("vsrn", **({"image": REGION | {"pooling": pooling}} if pooling else {}))
    batch, state = inputs(), state_of(model)
    images, texts, costs, sentences = *sides_of(model, batch), [], []
    for regions, tokens in rows_of(batch):
        elements = projected(state, regions)
        elements = elements if pooling else naive.unit_dimensions(elements)
        for block in range(2):
            elements = naive.relation(naive.under(state, f"image_encoder.pooling.blocks.{block}."), elements)
        elements = naive.unit_dimensions(elements)
        pooled = naive.gru(naive.under(state, "image_encoder.pooling.readout.gru."), elements)[-1]
        pooled = naive.norm(state, "image_encoder.pooling.norm", pooled) if pooling else pooled
        cost = naive.caption_cost(naive.under(state, "auxiliary.decoder."), elements, [*tokens, 0])
        costs.append(np.concatenate([naive.unit(pooled), [cost]]))
        sentences.append(last_state(state, tokens))
    assert_rows(torch.cat(images, 1), costs)
    assert_rows(texts[0], sentences)


def test_liwe_equals_words_spelt_one_by_one():
    """Characters to words to a BiGRU, whose state at the last word is the text; the mean of leaky unit regions."""
    model = built("liwe")
    state, distinct = state_of(model), (WORDS - 5) // 2
    tokens = torch.tensor(
        [[1, 5, 9, 12, 6, 2], [1, 7, 11, 10, 9, 12]]
    )  # <start> a##a##d b <end>; <start> c##c##b##a##d
    lengths = torch.tensor([6, 6])
    spelled = [[[1], [5, 5, 8], [6], [2]], [[1], [7, 7, 6, 5]]]  # of the last word four characters count
    assert distinct == 4
    expected = []
    for sentence in spelled:
        vectors = [
            naive.word_of_characters(naive.under(state, "text_encoder.words."), each, 4, 0.1) for each in sentence
        ]
        expected.append(naive.unit(naive.bigru(naive.under(state, "text_encoder.rnn."), vectors)[-1]))
    assert_rows(model.text_encoder(tokens, lengths=lengths), expected)
    batch = inputs()
    images = [
        naive.unit(np.mean([naive.leaky_unit(each) for each in projected(state, regions)], axis=0))
        for regions, _ in rows_of(batch)
    ]
    assert_rows(model.image_encoder(batch["images"], lengths=batch["image_lengths"]), images)


def test_cvse_equals_loops_over_concepts():
    """Attention, the graph of concepts, both sides' mixtures with the labels of the caption alone, and the losses."""
    model = built("cvse")
    batch, state = inputs(), state_of(model)
    graph = naive.under(state, "image_encoder.pooling.graph.")
    basis = naive.concept_basis(graph)
    options = {"sharpness": 10.0, "label_share": 0.4, "fusion": 0.75}
    image, text = ([], [], [], []), ([], [], [], [])
    for regions, tokens in rows_of(batch):
        labels = np.array([float(any(graph["of_token"][each] == concept for each in tokens)) for concept in range(5)])
        states = naive.bigru(naive.under(state, "text_encoder.rnn."), words(state, tokens))
        pooling = naive.under(state, "image_encoder.pooling.")
        for levels, found in (
            (image, naive.consensus(pooling, basis, projected(state, regions), None, options)),
            (text, naive.consensus(naive.under(state, "text_encoder.pooling."), basis, states, labels, options)),
        ):
            for level, value in zip(levels, found, strict=True):
                level.append(value)
    images, texts = sides_of(model, batch)
    for number in range(3):
        assert_rows(images[number], image[number])
        assert_rows(texts[number], text[number])
    seen, read = model(batch["images"], batch["tokens"], batch["image_lengths"], batch["text_lengths"])
    sides = (list(zip(levels[0], levels[2], strict=True)) for levels in (image, text))
    scores = [0.95 * f @ g + 0.05 * c @ d for (f, c), (g, d) in itertools.product(*sides)]
    np.testing.assert_allclose((seen @ read.T).detach().numpy().ravel(), scores, **CLOSE)
    divergence = [
        sum(t * math.log(t / v) for t, v in zip(*pair, strict=True)) for pair in zip(text[3], image[3], strict=True)
    ]
    losses = model.auxiliary.losses(images, texts, lambda scores: scores.sum(), "sum")
    matched = [sum(float(v @ t) for v in image[level] for t in text[level]) for level in (1, 2)]
    found = [losses[name].item() for name in ("instance", "consensus", "concepts")]
    np.testing.assert_allclose(found, [*matched, sum(divergence)], **CLOSE)


def test_cvse_drops_words_and_fuses_otherwise_in_training():
    """Equal words of a caption lose other dimensions; with dropout of 0, only the fusion of training differs."""
    calm = SYSTEMS["cvse"]["system"] | {"fusion": 0.9, "training_fusion": 0.85}
    model, batch = built("cvse", system=calm).train(), inputs()
    fused, instance, consensus = (each.detach() for each in sides_of(model, batch)[0][:3])
    torch.testing.assert_close(fused, torch.nn.functional.normalize(0.85 * instance + 0.15 * consensus))
    encoder = built("cvse", system=calm | {"dropout": 0.5}).text_encoder
    same = torch.full((64,), 7)
    assert len(encoder._distinct(same)[0]) == 1
    embedded, which = encoder.train()._distinct(same)
    assert len(embedded[which].unique(dim=0)) > 1
    assert (embedded == 0).float().mean() == pytest.approx(0.5, abs=0.15)


def test_configuration_of_cvse_without_consensus_share_is_unchanged():
    """Its fingerprint and the dimensions of its embeddings are those of models that were saved before."""
    plain, shared = (
        {"name": "cvse", "concepts": 5, "concept_size": 3, "consensus_share": share} for share in (0.0, 0.1)
    )
    one, other = built("cvse", system=plain), built("cvse", system=shared)
    assert "consensus_share" not in one.architecture()["system"]
    assert other.architecture()["system"]["consensus_share"] == 0.1
    assert (one.embed_size, other.embed_size) == (SIZE, 2 * SIZE)
    batch = inputs()
    assert one(batch["images"], batch["tokens"])[0].shape == (3, SIZE)


def test_sco_equals_gated_concepts_and_generated_captions():
    """The best region of each concept, the gate, the caption, and the cross-entropy of the caption's concepts."""
    model = built("sco")
    batch, state = inputs(), state_of(model)
    pooling, of_token = naive.under(state, "image_encoder.pooling."), state["auxiliary.of_token"]
    expected = []
    for regions, tokens in rows_of(batch):
        elements = projected(state, regions)
        logits = np.max([naive.linear(pooling, "concepts", each) for each in elements], axis=0)
        scores, context = naive.sigmoid(logits), np.mean(elements, axis=0)
        gate = naive.sigmoid(
            naive.linear(pooling, "local_gate", scores) + naive.linear(pooling, "context_gate", context)
        )
        local, whole = naive.unit(pooling["local.weight"] @ scores), naive.unit(pooling["context.weight"] @ context)
        fused = gate * local + (1 - gate) * whole
        cost = naive.caption_cost(naive.under(state, "auxiliary.decoder."), [fused], tokens)
        named = {int(of_token[each]) for each in tokens}
        entropy = -sum(math.log(p if c in named else 1 - p) for c, p in enumerate(naive.sigmoid(logits)))
        expected.append(np.concatenate([naive.unit(fused), [cost, entropy]]))
    images, texts = sides_of(model, batch)
    assert_rows(torch.cat(images, 1), expected)
    assert_rows(texts[0], [last_state(state, tokens) for _, tokens in rows_of(batch)])


def test_gxn_equals_two_levels_and_a_discriminator():
    """The cosine is the balanced sum of both levels'; captions and imagined features come from the grounded one."""
    model = built("gxn")
    batch, state = inputs(), state_of(model)
    torch.manual_seed(5)
    noise = torch.randn(3, 3, dtype=torch.float64).numpy()

    def levels(side, pooled):
        halves = [
            naive.unit(naive.linear(state, f"{side}.pooling.{half}", pooled)) for half in ("abstract", "grounded")
        ]
        return np.sqrt(0.5) * np.concatenate(halves), halves[1]

    def two_layers(name, values):
        hidden = naive.linear(state, f"auxiliary.{name}.0", values)
        return naive.linear(state, f"auxiliary.{name}.2", np.where(hidden > 0, hidden, 0.2 * hidden))

    seen, read = [], []
    for (regions, tokens), draw in zip(rows_of(batch), noise, strict=True):
        elements = projected(state, regions)
        image, grounded = levels("image_encoder", np.mean(elements, axis=0))
        states = naive.gru(naive.under(state, "text_encoder.rnn."), words(state, tokens))
        text, told = levels("text_encoder", states[-1])
        cost = naive.caption_cost(naive.under(state, "auxiliary.decoder."), [grounded], tokens)
        imagined = naive.unit(two_layers("generator", np.concatenate([told, draw])))
        real = naive.unit(np.sum(elements, axis=0))
        judged = [two_layers("discriminator", np.concatenate([each, told]))[0] for each in (real, imagined)]
        adversarial = math.log1p(math.exp(-judged[0])) + math.log1p(math.exp(judged[1]))
        seen.append(np.concatenate([image, [cost, adversarial]]))
        read.append(text)
    images, texts = sides_of(model, batch)
    assert_rows(torch.cat(images, 1), seen)
    assert_rows(texts[0], read)


@pytest.mark.parametrize("name", SYSTEMS)
def test_padding_changes_no_embedding_or_auxiliary_loss(name):
    """Rubbish after the last region and the last token is ignored."""
    model = built(name)
    plain, padded = inputs(), inputs(padding=2)
    with torch.no_grad():
        if name in AUXILIARY:
            for one, other in zip(sides_of(model, plain), sides_of(model, padded), strict=True):
                for tensor, same in zip(one, other, strict=True):
                    torch.testing.assert_close(tensor, same, rtol=1e-9, atol=1e-9)
        for one, other in zip(model(**plain), model(**padded), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", AUXILIARY)
def test_auxiliary_sides_begin_with_the_embeddings_of_training(name):
    """The first tensor of each side is what the towers return."""
    model, batch = built(name).train(), inputs()
    with torch.no_grad():
        for side, embedding in zip(sides_of(model, batch), model(**batch), strict=True):
            torch.testing.assert_close(side[0], embedding, rtol=1e-7, atol=1e-7)


def test_caption_decoder_has_right_gradients():
    """With respect to the elements, through reader, attention and writer."""
    torch.manual_seed(0)
    decoder = CaptionDecoder(3, 6, built("vsrn").config.system.decoder).double().eval()
    elements = torch.randn(2, 2, 3, dtype=torch.float64, requires_grad=True)
    mask, tokens = torch.tensor([[True, True], [False, True]]), torch.tensor([[1, 4, 2], [1, 2, 0]])
    assert gradcheck(lambda given: decoder(given, mask, tokens, torch.tensor([3, 2])), (elements,))


def test_generator_is_trained_against_discriminator():
    """One backward pass lowers the discriminator's loss and raises it for the generator."""
    model, batch = built("gxn"), inputs()

    def adversarial():
        return sides_of(model, batch)[0][2].mean()

    parts = {name: list(getattr(model.auxiliary, name).parameters()) for name in ("discriminator", "generator")}
    before = adversarial()
    gradients = {name: torch.autograd.grad(before, part, retain_graph=True) for name, part in parts.items()}
    for name, part in parts.items():
        with torch.no_grad():
            torch._foreach_sub_(part, torch._foreach_mul(gradients[name], 1e-3))
            assert (adversarial() < before) == (name == "discriminator")
            torch._foreach_add_(part, torch._foreach_mul(gradients[name], 1e-3))


def test_concept_graph_equals_counting_by_hand():
    """Shares of captions, damping, threshold and normalisation."""
    captions = [{0, 1}, {0, 1, 2}, {2}, {0, 3}, {1, 3}, {3}, {2, 4}]
    together, numbers = co_occurrence([sorted(each) for each in captions], 5)
    np.testing.assert_allclose(adjacency(together, numbers), naive.adjacency(captions, 5), rtol=1e-6)
    assert naive.adjacency(captions, 5)[0, 1] > 0


def test_blended_negatives_move_from_all_to_the_hardest():
    """LIWE's loss: β^n of all and 1 - β^n of the hardest at step n."""
    scores = torch.rand(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    objective = Objective(LossRecipe(negatives="blended", warmup_epochs=0, blend=0.9), 10, 2)
    for step in (0, 7):
        share = 0.9 ** (step + 1)
        each, hardest = (naive.hinge(scores.numpy(), 0.2, hardest=flag) for flag in (False, True))
        assert objective(scores, torch.arange(4), step).item() == pytest.approx(share * each + (1 - share) * hardest)


def test_softmax_margin_lowers_scores_of_pairs_in_both_directions():
    """DE's loss with an additive margin, term by term."""
    scores = torch.rand(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logits = scores.numpy() / 0.1 - np.identity(3) * 0.2 / 0.1
    expected = -sum(math.log(naive.softmax(each[i])[i]) for each in (logits, logits.T) for i in range(3)) / 3
    found = contrastive_from_scores(scores, temperature=0.1, margin=0.2).item()
    assert found == pytest.approx(expected)


def test_character_tokenizer_marks_where_words_begin():
    """A character has two ids; an unknown word is spelt with known characters."""
    tokenizer = character_tokenizer(["a dog", "café"])
    batch = tokenizer.encode(["Dog zebra"])
    half = (tokenizer.vocab_size - 5) // 2
    letters = [tokenizer.pipeline.id_to_token(int(each)) for each in batch.tokens[0]]
    assert letters == ["<start>", "d", "##o", "##g", "z", *(f"##{each}" for each in "ebra"), "<end>"]
    assert not batch.unknown[0]
    for word in ("d", "é"):
        assert tokenizer.pipeline.token_to_id(f"##{word}") - tokenizer.pipeline.token_to_id(word) == half


def test_parameters_are_as_many_as_the_papers_layers_have():
    """VSRN's image tower at 2,048 dimensions, LIWE's words at 624-384-448-300, and CVSE's graph at 300-512-1,024."""
    with torch.device("meta"):
        graph = {"name": "gcn-seq2seq", "options": {"normalised": True}}
        vsrn = VSEModel.build(_paper("vsrn", 2048, {"pooling": graph}, {"kind": "gru", "vocabulary_size": 100}))
        liwe = VSEModel.build(_paper("liwe", 1024, {}, {"kind": "characters", "vocabulary_size": 105}))
        text = {"kind": "bigru", "vocabulary_size": 100, "pooling": "avg"}
        cvse = VSEModel.build(_paper("cvse", 1024, {"pooling": "avg"}, text))

    def count(module):
        return sum(parameter.numel() for parameter in module.parameters())

    square = 2048 * 2048
    blocks, reasoning = 4 * (4 * (square + 2048) + 2 * 2048), 6 * square + 6 * 2048
    assert count(vsrn.image_encoder) == square + 2048 + blocks + reasoning
    layers = ((624, 384), (384, 448), (448, 300))
    assert count(liwe.text_encoder.words) == 55 * 24 + sum(narrow * wide + 4 * wide for narrow, wide in layers)
    assert count(cvse.image_encoder.pooling.graph) == 300 * 300 + 300 * 512 + 512 * 1024
    assert not any("graph" in name for name, _ in cvse.text_encoder.named_parameters())


def _paper(system, size, image, text):
    region = {"kind": "region", "head": "linear", "pooling": "avg"}
    return ModelConfig.model_validate({"embed_size": size, "image": region | image, "text": text, "system": system})
