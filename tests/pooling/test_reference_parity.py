"""Parity with the released implementation: numbers it computed on small random inputs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from vse.pooling import GPO

safetensors = pytest.importorskip("safetensors.torch")
TOLERANCE = {"rtol": 0, "atol": 1e-5}


def _load(folder: Path, name: str) -> tuple[dict[str, Tensor], GPO]:
    numbers = safetensors.load_file(folder / f"{name}.safetensors")
    pool = GPO()
    pool.load_state_dict({key.removeprefix("state."): v for key, v in numbers.items() if key.startswith("state.")})
    return numbers, pool


@pytest.mark.parametrize("as_mask", [False, True])
def test_gpo_matches_released_outputs(shared_reference, as_mask):
    """Released parameters load by name and give the released outputs and coefficients, by lengths and by mask."""
    numbers, pool = _load(shared_reference, "gpo")
    features, lengths = numbers["features"], numbers["lengths"]
    sets = {"mask": torch.arange(features.shape[1]) < lengths[:, None]} if as_mask else {"lengths": lengths}
    pooled, weights = pool(features, return_coefficients=True, **sets)
    torch.testing.assert_close(pooled, numbers["pooled"], **TOLERANCE)
    torch.testing.assert_close(weights, numbers["weights"], **TOLERANCE)


def test_gpo_gradients_match_released(shared_reference):
    """The released gradients of the features and of all nine parameters are met."""
    numbers, pool = _load(shared_reference, "gpo")
    features = numbers["features"].requires_grad_()
    pool(features, lengths=numbers["lengths"]).backward(numbers["grad_output"])
    torch.testing.assert_close(features.grad, numbers["grad_features"], **TOLERANCE)
    expected = {key.removeprefix("grad."): value for key, value in numbers.items() if key.startswith("grad.")}
    assert expected.keys() == dict(pool.named_parameters()).keys()
    for name, parameter in pool.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], **TOLERANCE, msg=name)


def test_gpo_table_matches_released(shared_reference):
    """The table of sizes 1 to 64 is the released one."""
    numbers, pool = _load(shared_reference, "gpo_table")
    torch.testing.assert_close(pool.table(64), numbers["table"], **TOLERANCE)


def test_frozen_gpo_matches_released(shared_reference):
    """A frozen GPO gives the released outputs."""
    numbers, pool = _load(shared_reference, "gpo")
    frozen = pool.freeze(int(numbers["lengths"].max()))
    torch.testing.assert_close(frozen(numbers["features"], lengths=numbers["lengths"]), numbers["pooled"], **TOLERANCE)
