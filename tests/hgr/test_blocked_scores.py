"""Score matrices in blocks of bounded memory."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.hgr.support import features
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vse.errors import InputError
from vse.hgr import SentenceFeatures, VideoFeatures, level_scores, score_blocks
from vse.hgr.scores import MAX_BYTES, block_shape, plain_level_scores


class Allocations(TorchDispatchMode):
    """What operators allocate within the block: the largest tensor, and the most that is alive at once, in bytes.

    ``given`` are features that exist before; views of them allocate nothing.
    """

    def __init__(self, *given: VideoFeatures | SentenceFeatures) -> None:
        super().__init__()
        self.largest = 0
        self.peak = 0
        self._given = {address(tensor) for features_ in given for tensor in vars(features_).values()}
        self._returned: list[weakref.ref[Tensor]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        self._returned += [weakref.ref(value) for value in tree_leaves(result) if isinstance(value, Tensor)]
        self._returned = [reference for reference in self._returned if reference() is not None]
        alive = [tensor for reference in self._returned if (tensor := reference()) is not None]
        sizes = {address(tensor): tensor.untyped_storage().nbytes() for tensor in alive}
        sizes = {place: size for place, size in sizes.items() if place not in self._given}
        self.largest = max([self.largest, *sizes.values()])
        self.peak = max(self.peak, sum(sizes.values()))
        return result


def address(tensor: Tensor) -> int:
    """The same for tensors that share memory."""
    return tensor.untyped_storage()._cdata


@given(st.integers(0, 9), st.integers(0, 30), st.integers(8_000, 60_000))
def test_blocks_are_the_matrix(videos, texts, max_bytes):
    """Each pair of a video and a sentence once, with the score that the whole matrix has."""
    seen, said = features(videos, texts, seed=videos)
    expected = level_scores(seen, said).mean
    found, times = torch.full_like(expected, torch.nan), torch.zeros_like(expected)
    for rows, columns, block in score_blocks(seen, said, max_bytes=max_bytes):
        assert block.shape == (rows.stop - rows.start, columns.stop - columns.start)
        found[rows, columns] = block
        times[rows, columns] += 1
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert (times == 1).all()


@pytest.mark.parametrize("max_bytes", [1 << 16, 1 << 18, 1 << 21])
def test_blocks_stay_within_their_bytes(max_bytes):
    """Everything that is alive while a block is made, the block included, of phrases that all exist."""
    videos, sentences = features(20, 90, frames=9, size=64, dtype=torch.float32)
    for mask in (sentences.verb_mask, sentences.noun_mask):
        mask.fill_(True)
    with Allocations(videos, sentences) as seen:
        for _ in score_blocks(videos, sentences, max_bytes=max_bytes):
            pass
    assert max_bytes / 2 < seen.peak <= max_bytes


def test_blocked_scores_allocate_no_attended_frames():
    """Neither the fast scores nor their gradients hold an array of V × T × P × D numbers; the plain ones do."""
    videos, sentences = features(12, 12, frames=5, size=256, dtype=torch.float32)
    leaves = [videos.verb_frames, videos.noun_frames, sentences.verbs, sentences.nouns]
    for leaf in leaves:
        leaf.requires_grad_()
    attended = 12 * 12 * 4 * 256 * 4  # bytes, of the verbs
    largest = {}
    for scores in (level_scores, plain_level_scores):
        with Allocations(videos, sentences) as seen:
            scores(videos, sentences).mean.sum().backward()
        largest[scores] = seen.largest
    assert largest[plain_level_scores] >= attended
    assert largest[level_scores] < attended / 4


def test_blocks_have_no_gradients():
    """Features that still hang on their encoders are scored all the same, and the blocks let go of them."""
    videos, sentences = features(2, 3)
    videos.whole.requires_grad_()
    sentences.whole.requires_grad_()
    assert not any(block.requires_grad for _, _, block in score_blocks(videos, sentences))
    assert torch.is_grad_enabled()


def test_blocked_scores_name_sufficient_memory():
    """The error names a number that suffices."""
    videos, sentences = features(2, 3)
    with pytest.raises(InputError, match="max_bytes 100 is too little") as caught:
        next(score_blocks(videos, sentences, max_bytes=100))
    least = int(str(caught.value).split()[-1])
    assert block_shape(videos, sentences, least) == (1, 1)
    with pytest.raises(InputError):
        block_shape(videos, sentences, least - 8)


def test_blocks_of_real_sizes_are_large():
    """With the default, twenty frames and 1024 dimensions: enough pairs that a block is worth its calls."""
    videos, sentences = features(64, 4, frames=20, size=1024, dtype=torch.float32)
    many = sentences.rows(slice(0, 1))
    wide = type(sentences)(*(getattr(many, name).expand(5000, *getattr(many, name).shape[1:]) for name in vars(many)))
    high, across = block_shape(videos, wide, MAX_BYTES)
    assert high == 64
    assert across >= 200
