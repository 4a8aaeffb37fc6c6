"""SCAN, IMRAM and CAAN compute the formulas of their papers, for all pairs at once and in bounded memory."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.systems import naive_pairs
from tests.systems.support_pairs import (
    SIZE,
    SYSTEMS,
    elements,
    options_of,
    pair_config,
    random_sets,
    scoring,
    weights_of,
)
from torch.utils._python_dispatch import TorchDispatchMode

from vse.errors import InputError
from vse.systems.cross_attention import Sets
from vse.systems.pair_model import create_scoring, pair_scores, score_blocks

VARIANTS = [
    *(
        ("scan", {"direction": way, "aggregation": how})
        for way in ("t2i", "i2t")
        for how in ("lse", "mean", "max", "sum")
    ),
    *(
        ("scan", {"raw_feature_norm": norm, "direction": way})
        for norm in ("l2norm", "clipped_l1norm", "l1norm", "clipped", "softmax", "no_norm")
        for way in ("t2i", "i2t")
    ),
    ("scan", {"slope": 0.0, "lambda_softmax": 4.0, "lambda_lse": 20.0}),
    *(("imram", {"mode": mode}) for mode in ("text", "image", "full")),
    ("imram", {"steps": 1}),
    ("imram", {"steps": 4, "unit_memory": True, "mode": "text", "raw_feature_norm": "softmax"}),
    *(("caan", {"intra": intra}) for intra in ("semantic", "feature", "none")),
    ("caan", {"hidden_size": 3}),
    ("caan", {"normalise": "softmax"}),
]
REGIONS, WORDS = [4, 1, 3], [5, 2, 1, 3]


def naive(system: str, options, weights, images: Sets, texts: Sets) -> np.ndarray:
    """Every pair by itself."""
    given = () if system == "scan" else (weights,)
    score = getattr(naive_pairs, system)
    return np.array([[score(v, u, options, *given) for u in elements(texts)] for v in elements(images)])


@pytest.mark.parametrize(("system", "options"), VARIANTS)
def test_scores_of_all_pairs_equal_the_loops_of_the_papers(system, options):
    """Ragged sets, float64, to 1e-6."""
    made = scoring(system, options)
    images, texts = random_sets(REGIONS), random_sets(WORDS, seed=1)
    with torch.no_grad():
        found = made(images, texts).numpy()
    np.testing.assert_allclose(
        found, naive(system, options_of(system, options), weights_of(made), images, texts), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize(
    ("system", "options"),
    [("scan", {}), ("scan", {"direction": "i2t", "aggregation": "mean"}), ("imram", {}), ("caan", {})],
)
def test_gradients_of_pair_scores_are_exact(system, options):
    """With respect to both sets and to the parameters."""
    made = scoring(system, options, size=3)
    images, texts = random_sets([2, 1], size=3), random_sets([2, 1], size=3, seed=1)
    parameters = tuple(made.parameters())

    def scores(seen, read, *_):
        sides = ((seen, images.mask), (read, texts.mask))
        return made(*(Sets(each.masked_fill(~mask[..., None], 0), mask) for each, mask in sides))

    leaves = tuple(each.elements.clone().requires_grad_() for each in (images, texts))
    assert torch.autograd.gradcheck(scores, (*leaves, *parameters))


@given(
    st.sampled_from(SYSTEMS),
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.integers(0, 3),
    st.integers(0, 2**16),
)
@settings(max_examples=30, deadline=None)
def test_padding_and_the_order_of_elements_do_not_change_pair_scores(system, regions, words, padding, seed):
    """Whatever the sizes, the padding and the permutation."""
    made = scoring(system)
    images, texts = random_sets(regions, seed=seed), random_sets(words, seed=seed + 1)
    padded = []
    for sets in (images, texts):
        order = torch.randperm(sets.mask.shape[1] + padding, generator=torch.Generator().manual_seed(seed))
        grown = torch.nn.functional.pad(sets.elements, (0, 0, 0, padding))[:, order]
        padded.append(Sets(grown, torch.nn.functional.pad(sets.mask, (0, padding))[:, order]))
    with torch.no_grad():
        torch.testing.assert_close(made(*padded), made(images, texts), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("system", SYSTEMS)
def test_blocks_of_pair_scores_are_those_of_the_whole(system):
    """Any bound of memory gives the same scores, every pair once, and the same gradients."""
    made = scoring(system)
    images, texts = random_sets([4, 1, 3, 2, 4]), random_sets([5, 2, 1, 3, 5, 4, 2], seed=1)
    whole = made(images, texts)
    each = made.numbers(4, 5, SIZE) * 8
    for pairs in (1, 2, 6, 100):
        blocks = torch.full_like(whole, torch.nan)
        for rows, columns, block in score_blocks(made, images, texts, max_bytes=pairs * each):
            assert block.numel() <= pairs
            assert blocks[rows, columns].isnan().all()
            blocks[rows, columns] = block
        torch.testing.assert_close(blocks, whole.detach())
    leaf = images.elements.clone().requires_grad_()
    expected = torch.autograd.grad(made(Sets(leaf, images.mask), texts).square().sum(), [leaf, *made.parameters()])
    scores = pair_scores(made, Sets(leaf, images.mask), texts, max_bytes=8 * each)
    for found, wanted in zip(
        torch.autograd.grad(scores.square().sum(), [leaf, *made.parameters()]), expected, strict=True
    ):
        torch.testing.assert_close(found, wanted)


class _Peak(TorchDispatchMode):
    """The most bytes that tensors made inside held at once, those that share memory counted once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for each in found if isinstance(found, tuple | list) else (found,):
            if isinstance(each, torch.Tensor):
                self._count(each.untyped_storage())
        return found

    def _count(self, storage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self.known:
            return
        self.known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size


@pytest.mark.parametrize(
    ("system", "options"),
    [
        ("scan", {}),
        ("scan", {"direction": "i2t"}),
        ("imram", {"mode": "text"}),
        ("imram", {"mode": "full"}),
        ("caan", {}),
        ("caan", {"intra": "feature", "normalise": "softmax"}),
    ],
)
def test_scores_of_pairs_take_no_more_memory_than_they_say(system, options):
    """The estimate by which blocks are cut: what a block allocates at once, projections of the sets aside."""
    made = scoring(system, options, size=16)
    images, texts = random_sets([12] * 20, size=16), random_sets([8] * 20, size=16, seed=1)
    with torch.no_grad(), _Peak() as peak:
        made(images, texts)
    sets = images.elements.nbytes + texts.elements.nbytes
    assert peak.peak <= 1.1 * made.numbers(12, 8, 16) * 8 * 400 + 8 * sets


@pytest.mark.parametrize("system", SYSTEMS)
def test_pair_scores_of_float32_follow_float64(system):
    """Also where attended elements nearly cancel, which would make a cosine of rounding errors."""
    made = scoring(system)
    images, texts = random_sets([4, 2, 6]), random_sets([5, 2], seed=1)
    opposed = torch.cat((images.elements[:, :3], -images.elements[:, :3] * (1 + 1e-9)), dim=1)
    images = Sets(opposed, images.mask[:, :3].repeat(1, 2))
    with torch.no_grad():
        exact = made(images, texts)
        single = made.float()(*(Sets(each.elements.float(), each.mask) for each in (images, texts)))
    assert single.isfinite().all()
    assert single.abs().max() <= 10
    np.testing.assert_allclose(single.numpy(), exact.numpy(), atol=1e-4)


PAPER = 1024
PARAMETERS = {"scan": 0, "imram": 2 * 2 * (2 * PAPER * PAPER + PAPER), "caan": 5 * PAPER * PAPER + 2 * PAPER}


@pytest.mark.parametrize("system", SYSTEMS)
def test_parameters_of_scoring_are_those_of_the_papers(system):
    """At 1024 dimensions: SCAN none; IMRAM a gate and an output layer for each direction; CAAN K and four Q, two w."""
    with torch.device("meta"):
        made = create_scoring(pair_config(system, embed_size=PAPER))
    assert sum(parameter.numel() for parameter in made.parameters()) == PARAMETERS[system]


@pytest.mark.parametrize(
    ("system", "options", "said"),
    [
        ("scan", {"direction": "both"}, "'direction' is 'both'"),
        ("scan", {"aggregaton": "lse"}, "did you mean 'aggregation'?"),
        ("scan", {"lambda_softmax": 0.0}, "'lambda_softmax' is 0.0"),
        ("scan", {"lambda_lse": float("nan")}, "'lambda_lse' is nan"),
        ("scan", {"raw_feature_norm": "l3norm"}, "'raw_feature_norm' is 'l3norm'"),
        ("imram", {"steps": 0}, "'steps' is 0"),
        ("imram", {"steps": True}, "'steps' is True"),
        ("imram", {"direction": "t2i"}, "unknown key 'direction'"),
        ("caan", {"hidden_size": -1}, "'hidden_size' is -1"),
        ("caan", {"intra": "both"}, "'intra' is 'both'"),
    ],
)
def test_wrong_options_of_a_system_are_named(system, options, said):
    """The option, its value, and the closest name."""
    with pytest.raises(InputError) as caught:
        options_of(system, options)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"options of '{system}': ")
