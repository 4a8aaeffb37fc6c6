"""Scores of three levels: the fast formulation, the plain one, and the definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.hgr import naive
from tests.hgr.support import features
from torch.nn.functional import pad

from vse.errors import InputError
from vse.hgr import SentenceFeatures, VideoFeatures, level_scores
from vse.hgr.scores import FrameSet, phrase_scores, plain_level_scores, plain_phrase_scores

EXACT = {"rtol": 0, "atol": 1e-12}


def fast(frames, mask, phrases, phrase_mask):
    return phrase_scores(FrameSet.of(frames, mask), phrases, phrase_mask)


def parts(seed: int, dtype: torch.dtype = torch.float64, **sizes: int):
    """The arguments of a phrase score."""
    videos, sentences = features(4, 5, seed=seed, dtype=dtype, **sizes)
    return videos.verb_frames, videos.mask, sentences.nouns, sentences.noun_mask


@pytest.mark.parametrize("scores", [level_scores, plain_level_scores])
def test_three_levels_follow_the_definition(scores):
    """Every pair computed alone: the cosine of the wholes, the attended phrases that exist, and the mean of three."""
    videos, sentences = features(4, 6)
    assert not (sentences.verb_mask.any(dim=1) & sentences.noun_mask.any(dim=1)).all()
    found = scores(videos, sentences)
    for v in range(4):
        real = videos.mask[v]
        for t in range(6):
            whole = naive.cosine(videos.whole[v], sentences.whole[t])
            verb = naive.phrases_score(videos.verb_frames[v][real], sentences.verbs[t][sentences.verb_mask[t]])
            noun = naive.phrases_score(videos.noun_frames[v][real], sentences.nouns[t][sentences.noun_mask[t]])
            figures = [float(level[v, t]) for level in (found.sentence, found.verb, found.noun, found.mean)]
            assert figures == pytest.approx([whole, verb, noun, (whole + verb + noun) / 3], abs=1e-12)


@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 9))
def test_the_fast_scores_are_the_plain_ones(seed, frames, size):
    """In double precision to the last digits: any number of frames, any width, one included."""
    given_parts = parts(seed, frames=frames, size=size)
    torch.testing.assert_close(fast(*given_parts), plain_phrase_scores(*given_parts), rtol=0, atol=1e-9)


@given(st.integers(0, 10_000))
def test_the_fast_scores_in_single_precision(seed):
    """Within 1e-5 of the plain ones in double precision, at sizes of a real model."""
    frames, mask, phrases, present = parts(seed, torch.float32, frames=20, size=256)
    expected = plain_phrase_scores(frames.double(), mask, phrases.double(), present)
    torch.testing.assert_close(fast(frames, mask, phrases, present).double(), expected, rtol=0, atol=1e-5)


def test_hgr_score_gradients_match_finite_differences():
    """The fast scores' gradient is right by finite differences, and that of the plain ones."""
    frames, mask, phrases, present = parts(1)
    leaves = (frames.requires_grad_(), phrases.requires_grad_())
    assert torch.autograd.gradcheck(lambda x, q: fast(x, mask, q, present), leaves)
    toward = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found, expected = (
        torch.autograd.grad(scores(frames, mask, phrases, present), leaves, toward)
        for scores in (fast, plain_phrase_scores)
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@given(st.integers(0, 100), st.integers(0, 4), st.integers(0, 3), st.sampled_from([0.0, 5.0]))
def test_more_frames_and_more_nodes_of_padding_change_nothing(seed, frames, nodes, held):
    """Whatever finite numbers the padding holds, in the frames and in the nodes."""
    videos, sentences = features(3, 4, seed=seed)
    expected = level_scores(videos, sentences)
    wider = VideoFeatures(
        videos.whole,
        pad(videos.verb_frames, (0, 0, 0, frames), value=held),
        pad(videos.noun_frames, (0, 0, 0, frames), value=-held),
        pad(videos.mask, (0, frames)),
    )
    longer = SentenceFeatures(
        sentences.whole,
        pad(sentences.verbs, (0, 0, 0, nodes), value=held),
        pad(sentences.nouns, (0, 0, 0, nodes), value=held),
        pad(sentences.verb_mask, (0, nodes)),
        pad(sentences.noun_mask, (0, nodes)),
    )
    for scores in (level_scores, plain_level_scores):
        found = scores(wider, longer)
        for level in ("sentence", "verb", "noun", "mean"):
            torch.testing.assert_close(getattr(found, level), getattr(expected, level), **EXACT)


@pytest.mark.parametrize("scores", [fast, plain_phrase_scores])
def test_hgr_zero_features_score_zero(scores):
    """A black video and an empty phrase score 0, with gradients that are numbers."""
    frames, mask, phrases, present = parts(2)
    frames[0], phrases[1] = 0, 0
    present[1] = True
    frames.requires_grad_(), phrases.requires_grad_()
    found = scores(frames, mask, phrases, present)
    assert not found[0].any()
    assert not found[:, 1].any()
    found.sum().backward()
    assert frames.grad.isfinite().all()
    assert phrases.grad.isfinite().all()


@pytest.mark.parametrize(("dtype", "left"), [(torch.float32, 1e-6), (torch.float64, 1e-9)])
def test_hgr_scores_stay_bounded_when_frames_cancel(dtype, left):
    """Where next to nothing is left of the frames, rounding decides their length, but no score leaves [-1, 1]."""
    frames = torch.randn(50, 2, 16, generator=torch.Generator().manual_seed(0), dtype=dtype)
    frames[:, 1] = -frames[:, 0]
    frames[..., 0] = -left  # both against the phrase: they get equal weights, and this is their sum
    phrase = torch.eye(16, dtype=dtype)[:1].unsqueeze(0)
    found = fast(frames, torch.ones(50, 2, dtype=torch.bool), phrase, torch.ones(1, 1, dtype=torch.bool))
    assert float(found.max()) < 0
    assert float(found.min()) >= -1 - 1e-6


def test_a_frame_that_shows_the_phrase_is_attended():
    """Of one frame along the phrase and others across it, softmax(4 · (1, 0, 0)) goes to the first."""
    frames = torch.eye(3, dtype=torch.float64).unsqueeze(0)
    found = fast(frames, torch.ones(1, 3, dtype=torch.bool), 9 * frames[:, :1], torch.ones(1, 1, dtype=torch.bool))
    strong, weak = (float(torch.tensor([4.0, 0.0, 0.0], dtype=torch.float64).softmax(0)[place]) for place in (0, 1))
    assert float(found) == pytest.approx(strong / (strong**2 + 2 * weak**2) ** 0.5, abs=1e-12)


@pytest.mark.parametrize(("videos", "texts"), [(0, 3), (3, 0), (0, 0)])
def test_hgr_scores_of_an_empty_side_are_empty(videos, texts):
    """An empty side gives an empty matrix."""
    assert level_scores(*features(videos, texts)).mean.shape == (videos, texts)


def test_features_of_two_models():
    """Widths that differ are named."""
    with pytest.raises(InputError, match="videos of 10 and sentences of 8 dimensions"):
        level_scores(features(2, 2)[0], features(2, 2, size=8)[1])
