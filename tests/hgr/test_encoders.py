"""Both encoders against the definitions, and against padding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.hgr import naive
from tests.hgr.support import GRAPHS, SIZE, VOCABULARY, WIDTH, model, sentences
from torch.nn.functional import pad

from vse.encoders.text import WordStates
from vse.errors import InputError
from vse.pooling.kernels import runtime

EXACT = {"rtol": 0, "atol": 1e-12}
FRAMES = torch.randn(3, 6, WIDTH, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
LENGTHS = torch.tensor([6, 2, 1])


@pytest.mark.parametrize("pooling", ["attention", "gpo"])
def test_videos_follow_the_definition(pooling):
    """Every level of every video, computed alone and without padding; GPO makes it HGR∞."""
    ours = model(pooling)
    found = ours.embed_videos(FRAMES, LENGTHS)
    state = naive.part(ours.state_dict(), "video_encoder.")
    for row, length in enumerate(LENGTHS.tolist()):
        whole, verb, noun = naive.video(FRAMES[row, :length], state)
        torch.testing.assert_close(found.whole[row], whole, rtol=0, atol=1e-6)
        torch.testing.assert_close(found.verb_frames[row, :length], verb, **EXACT)
        torch.testing.assert_close(found.noun_frames[row, :length], noun, **EXACT)
        assert found.mask[row].tolist() == [place < length for place in range(6)]


@pytest.mark.parametrize("pooling", ["attention", "gpo"])
@pytest.mark.parametrize("compiled", [True, False])
def test_sentences_follow_the_definition(pooling, compiled, monkeypatch):
    """Root, verbs and nouns of every graph, computed alone, with our recurrence and with torch's."""
    monkeypatch.setattr(runtime, "_available", None if compiled else False)
    ours = model(pooling)
    inputs = sentences()
    found = ours.embed_sentences(**inputs)
    state = naive.part(ours.state_dict(), "text_encoder.")
    for row, graph in enumerate(GRAPHS):
        verbs, nouns = ([(phrase.role, phrase.words) for phrase in side] for side in (graph.verbs, graph.nouns))
        tokens = inputs["tokens"][row, : graph.n_words].tolist()
        whole, *levels = naive.sentence(tokens, verbs, nouns, graph.edges, state)
        torch.testing.assert_close(found.whole[row], whole, rtol=0, atol=1e-6)
        for nodes, mask, expected in zip(
            (found.verbs[row], found.nouns[row]), (found.verb_mask[row], found.noun_mask[row]), levels, strict=True
        ):
            assert mask.tolist() == [number < len(expected) for number in range(len(mask))]
            for number, node in enumerate(expected):
                torch.testing.assert_close(nodes[number], node, rtol=0, atol=1e-6)
            assert not nodes[len(expected) :].any()


@given(st.integers(0, 5), st.sampled_from(["attention", "gpo"]), st.sampled_from([0.0, -7.0, float("nan")]))
def test_more_frames_of_padding_change_nothing(more, pooling, held):
    """Whatever the padding holds: features and gradients of the weights."""
    ours = model(pooling)
    expected = ours.embed_videos(FRAMES, LENGTHS)
    padded = pad(FRAMES, (0, 0, 0, more))
    padded[~(torch.arange(6 + more) < LENGTHS[:, None])] = held
    found = ours.embed_videos(padded, LENGTHS)
    torch.testing.assert_close(found.whole, expected.whole, **EXACT)
    for level in ("verb_frames", "noun_frames"):
        torch.testing.assert_close(getattr(found, level)[:, :6], getattr(expected, level), **EXACT)
        assert not getattr(found, level)[:, 6:].any()
    assert not found.mask[:, 6:].any()
    (found.whole.sum() + found.verb_frames.sum() + found.noun_frames.sum()).backward()
    assert all(parameter.grad.isfinite().all() for parameter in ours.video_encoder.parameters())


@given(st.integers(0, 6), st.integers(0, 3), st.integers(0, 3), st.sampled_from(["attention", "gpo"]))
def test_longer_sentences_and_empty_nodes_change_nothing(more, verbs, nouns, pooling):
    """Words past the end, and room for more nodes of either kind, whatever roles these claim."""
    ours = model(pooling)
    inputs = sentences()
    expected = ours.embed_sentences(**inputs)
    wider = dict(inputs)
    wider["tokens"] = pad(inputs["tokens"], (0, more), value=VOCABULARY - 1)
    wider["verb_words"] = pad(inputs["verb_words"], (0, more, 0, verbs))
    wider["noun_words"] = pad(inputs["noun_words"], (0, more, 0, nouns))
    places = [*range(4), *range(4 + verbs, 10 + verbs)]
    wider["roles"] = torch.full((4, 10 + verbs + nouns), 7)
    wider["roles"][:, places] = inputs["roles"]
    wider["edges"] = torch.zeros(4, 11 + verbs + nouns, 11 + verbs + nouns)
    kept = torch.tensor([0, *(1 + place for place in places)])
    wider["edges"][:, kept[:, None], kept] = inputs["edges"]
    found = ours.embed_sentences(**wider)
    torch.testing.assert_close(found.whole, expected.whole, **EXACT)
    torch.testing.assert_close(found.verbs[:, :4], expected.verbs, **EXACT)
    torch.testing.assert_close(found.nouns[:, :6], expected.nouns, **EXACT)
    assert not found.verb_mask[:, 4:].any()
    assert not found.noun_mask[:, 6:].any()


@pytest.mark.parametrize("compiled", [True, False])
def test_dropout_is_drawn_for_every_word_while_training(compiled, monkeypatch):
    """Equal words differ while training and agree in evaluation; the gradient reaches their embedding alone."""
    monkeypatch.setattr(runtime, "_available", None if compiled else False)
    torch.manual_seed(0)
    words = WordStates(9, 16, 8, dropout=0.5)
    tokens = torch.full((5, 1), 4)
    states, _ = words(tokens)
    assert len(states.detach().unique(dim=0)) == 5
    states.sum().backward()
    assert words.embed.weight.grad.any(dim=1).nonzero().flatten().tolist() == [4]
    states = words.eval()(tokens)[0].detach()
    torch.testing.assert_close(states, states[:1].expand_as(states))


def test_hgr_encoders_initialise_as_released():
    """Embeddings within ±1/√300, orthogonal recurrences without bias, and the parameters of the released sizes."""
    words = WordStates(50, 300, 16, dropout=0.2)
    assert 0.9 / 300**0.5 < float(words.embed.weight.detach().abs().max()) <= 1 / 300**0.5
    weight = words.rnn.weight_hh_l0
    torch.testing.assert_close(weight.T @ weight, torch.eye(16), rtol=0, atol=1e-5)
    assert not words.rnn.bias_ih_l0.any()
    assert not words.rnn.bias_hh_l0_reverse.any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"verb_words": torch.zeros(4, 4, 9, dtype=torch.bool)},
            r"verb_words must be boolean of shape \(B, nodes, L\)",
        ),
        ({"noun_words": torch.zeros(4, 6, 8)}, "noun_words must be boolean"),
        ({"roles": torch.zeros(4, 9, dtype=torch.int64)}, r"roles must have shape \(4, 10\)"),
        ({"edges": torch.zeros(4, 10, 10)}, r"edges must have shape \(4, 11, 11\)"),
        ({"lengths": torch.tensor([8, 3, 1, 5]) - torch.tensor([1, 0, 0, 0])}, "sentence 0 names words past its end"),
        ({"tokens": torch.full((4, 8), VOCABULARY)}, "outside the vocabulary"),
    ],
)
def test_graphs_that_do_not_fit_their_sentences(changes, message):
    """One line names the argument and what would fit."""
    with pytest.raises(InputError, match=message):
        model().embed_sentences(**(sentences() | changes))


def test_frames_of_another_width():
    """The error names the width that is expected; half precision from disk is welcome."""
    with pytest.raises(InputError, match=rf"\(B, F, {WIDTH}\)"):
        model().embed_videos(torch.zeros(2, 3, WIDTH + 1))
    assert model().embed_videos(torch.zeros(2, 3, WIDTH, dtype=torch.float16)).whole.shape == (2, SIZE)
