"""Copying and saving: a pooling survives deepcopy, state dicts and torch.save, and its keys are stable."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from tests.pooling.support import ALL, build

DIM = 6


@pytest.mark.parametrize("name", ALL)
def test_deepcopy_is_independent(name):
    """A copy pools alike and shares no memory with the original, gradients and used state included."""
    pool, features = build(name, DIM), torch.randn(3, 7, DIM)
    pooled = pool(features.requires_grad_(), lengths=[7, 2, 4])
    pooled.sum().backward()
    twin = copy.deepcopy(pool)
    torch.testing.assert_close(twin(features, lengths=[7, 2, 4]), pooled, rtol=0, atol=0)
    own = {tensor.data_ptr() for tensor in pool.state_dict().values()}
    assert own.isdisjoint(tensor.data_ptr() for tensor in twin.state_dict().values())


@pytest.mark.parametrize("name", ALL)
def test_pooling_state_dict_loads_by_name(name):
    """Weights saved by one instance and loaded safely and strictly by another make it pool to the same bits."""
    pool, other, features = build(name, DIM), build(name, DIM, seed=1), torch.randn(3, 7, DIM)
    file = io.BytesIO()
    torch.save(pool.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True), strict=True)
    torch.testing.assert_close(other(features, lengths=[7, 2, 4]), pool(features, lengths=[7, 2, 4]), rtol=0, atol=0)


@pytest.mark.parametrize("name", ALL)
def test_whole_modules_can_be_pickled(name):
    """torch.save of the module itself works, for those who send modules to other processes."""
    pool, features, file = build(name, DIM), torch.randn(3, 7, DIM), io.BytesIO()
    pool(features)
    torch.save(pool, file)
    file.seek(0)
    twin = torch.load(file, weights_only=False)
    torch.testing.assert_close(twin(features), pool(features), rtol=0, atol=0)


def test_gpo_state_dict_has_released_names():
    """A GPO's state dict has exactly the nine released keys."""
    gates = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    expected = {f"gru.{gate}_l0{suffix}" for gate in gates for suffix in ("", "_reverse")} | {"linear.weight"}
    assert set(build("gpo").state_dict()) == expected


def test_loading_refuses_missing_and_unknown_keys():
    """A missing or a foreign key is an error, not a shrug."""
    state = build("gpo").state_dict()
    with pytest.raises(RuntimeError, match="more"):
        build("gpo").load_state_dict({**state, "more": torch.zeros(1)})
    del state["linear.weight"]
    with pytest.raises(RuntimeError, match=r"linear\.weight"):
        build("gpo").load_state_dict(state)


@pytest.mark.parametrize("name", ALL)
def test_repr_is_short_and_says_what_it_is(name):
    """repr works for every pooling and names its class."""
    pool = build(name, DIM)
    assert repr(pool).startswith(type(pool).__name__)
