"""Contracts of the two encoders of videos and their captions."""

from __future__ import annotations

import pytest
import torch

from vse.encoders import BiGRUEncoder, FrameEncoder, WordEncoder
from vse.errors import InputError
from vse.models.build import build_image_encoder, build_text_encoder
from vse.models.config import FramesConfig, WordsConfig
from vse.pooling import create_pooling

SIZE, WIDTH, WORDS = 6, 5, 9


def frame_encoder(pooling: str = "avg", dropout: float = 0.2) -> FrameEncoder:
    torch.manual_seed(0)
    return FrameEncoder(WIDTH, SIZE, create_pooling(pooling), dropout).double()


def word_encoder(pooling: str = "avg", dropout: float = 0.2) -> WordEncoder:
    torch.manual_seed(0)
    return WordEncoder(WORDS, 4, SIZE, create_pooling(pooling), dropout).double()


@pytest.mark.parametrize("pooling", ["avg", "gpo"])
def test_a_video_is_its_frames_projected_and_pooled(pooling):
    """One video at a time, without padding; what the padding holds, NaN too, changes neither vectors nor gradients."""
    encoder = frame_encoder(pooling).eval()
    frames = torch.randn(3, 7, WIDTH, dtype=torch.float64)
    lengths = torch.tensor([7, 2, 4])
    for row, length in enumerate(lengths):
        frames[row, length:] = float("nan")
    found = encoder(frames, lengths=lengths)
    for row, length in enumerate(lengths):
        projected = encoder.fc(frames[row : row + 1, :length])
        pooled = encoder.pooling.pool(projected, None)[0]
        torch.testing.assert_close(found[row], pooled / pooled.norm(), rtol=1e-7, atol=1e-7)
    found.sum().backward()
    assert encoder.fc.weight.grad.isfinite().all()


def test_frames_are_dropped_out_while_training_alone():
    """Projected values are zeroed and scaled, as dropout does; in evaluation every call gives the same."""
    encoder = frame_encoder(dropout=0.5)
    frames = torch.randn(4, 50, WIDTH, dtype=torch.float64)
    elements, _ = encoder.train().elements(frames)
    plain = encoder.fc(frames)
    zero = elements == 0
    assert 0.4 < float(zero.double().mean()) < 0.6
    torch.testing.assert_close(elements[~zero], 2 * plain[~zero])
    torch.testing.assert_close(encoder.eval().elements(frames)[0], plain)


@pytest.mark.parametrize("pooling", ["avg", "gpo"])
def test_without_training_words_are_read_as_by_the_other_bigru(pooling):
    """The same tensors under the same names, the same vectors."""
    encoder = word_encoder(pooling).eval()
    other = BiGRUEncoder(WORDS, 4, SIZE, create_pooling(pooling)).double().eval()
    other.load_state_dict(encoder.state_dict())
    tokens, lengths = torch.randint(WORDS, (5, 8)), torch.tensor([8, 1, 3, 8, 5])
    torch.testing.assert_close(encoder(tokens, lengths=lengths), other(tokens, lengths=lengths))


def test_words_begin_as_hgr_has_them():
    """Embeddings within ±1/√W, orthogonal weights, no biases; dropout while training."""
    encoder = word_encoder(dropout=0.5)
    assert encoder.embed.weight.abs().max() <= 0.5
    weight = encoder.rnn.weight_hh_l0
    torch.testing.assert_close(weight.T @ weight, torch.eye(SIZE, dtype=torch.float64), rtol=0, atol=1e-6)
    assert not encoder.rnn.bias_ih_l0_reverse.any()
    tokens = torch.arange(8)[None]
    first, second = encoder.train()(tokens), encoder(tokens)
    assert not torch.allclose(first, second)
    torch.testing.assert_close(encoder.eval()(tokens), encoder(tokens))


def test_video_encoders_are_built_from_configuration():
    """Sizes, dropout and poolings; frames of another width are refused with both widths."""
    image, _ = build_image_encoder(FramesConfig(feature_size=WIDTH, dropout=0.1, pooling="max"), SIZE)
    text, _ = build_text_encoder(WordsConfig(vocabulary_size=WORDS, word_size=4, dropout=0.3, pooling="avg"), SIZE)
    assert (type(image), image.dropout.p, image.feature_size) == (FrameEncoder, 0.1, WIDTH)
    assert (type(text), text.dropout.p, text.embed.num_embeddings) == (WordEncoder, 0.3, WORDS)
    with pytest.raises(InputError, match=r"must have shape \(B, N, 5\), got \(1, 2, 6\)"):
        image(torch.zeros(1, 2, 6))
