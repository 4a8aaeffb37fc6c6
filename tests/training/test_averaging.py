"""The average of the weights follows its recurrence and never disturbs the weights that are trained."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vse.training.schedule import AveragedWeights


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()


def move(model: nn.Module, step: int) -> None:
    """Other weights and statistics, as a training step leaves them."""
    generator = torch.Generator().manual_seed(step)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
        model(torch.randn(8, 3, generator=generator, dtype=torch.float64))


def copies(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize("decay", [0.05, 0.5, 0.999])
def test_average_follows_its_recurrence(decay):
    """a ← d · a + (1 - d) · w with d = min(decay, (1 + n) / (10 + n)); statistics and counters are copied."""
    model = network()
    average = AveragedWeights(model, decay)
    names = {name for name, _ in model.named_parameters()}
    expected = copies(model)
    for step in range(30):
        move(model, step)
        average.update(model)
        factor = min(decay, (1 + step) / (10 + step))
        for name, value in model.state_dict().items():
            expected[name] = factor * expected[name] + (1 - factor) * value if name in names else value.clone()
        for name, value in expected.items():
            torch.testing.assert_close(average.tensors[name], value, rtol=1e-12, atol=1e-12)
    assert average.steps == 30
    assert int(average.tensors["1.num_batches_tracked"]) == 30
    assert average.tensors["1.num_batches_tracked"].dtype == torch.int64


def test_in_place_puts_the_average_in_and_restores_the_weights():
    """Inside the block the model computes with the average; after it every tensor is as before, exactly."""
    model = network()
    average = AveragedWeights(model, 0.9)
    for step in range(3):
        move(model, step)
        average.update(model)
    before, averaged = copies(model), {name: value.clone() for name, value in average.tensors.items()}
    parameters = list(model.parameters())
    with average.in_place(model):
        assert_equal(model.state_dict(), averaged)
        move(model, 7)  # whatever the block does to the model does not reach the average
    assert_equal(model.state_dict(), before)
    assert_equal(average.tensors, averaged)
    assert all(one is other for one, other in zip(model.parameters(), parameters, strict=True))  # the optimiser's


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_in_place_restores_after_an_exception(error):
    """An evaluation that fails, or is interrupted, leaves the trained weights."""
    model = network()
    average = AveragedWeights(model, 0.9)
    move(model, 0)
    before = copies(model)
    with pytest.raises(error), average.in_place(model):
        raise error
    assert_equal(model.state_dict(), before)


def test_going_on_from_a_checkpoint():
    """Tensors and the number of steps are all its memory."""
    straight_model, model = network(), network()
    straight, first = AveragedWeights(straight_model, 0.99), AveragedWeights(model, 0.99)
    for step in range(8):
        move(straight_model, step)
        straight.update(straight_model)
    for step in range(4):
        move(model, step)
        first.update(model)
    stored = {name: value.clone() for name, value in first.tensors.items()}
    second = AveragedWeights(network(5), 0.99)
    second.load(stored, first.steps)
    for step in range(4, 8):
        move(model, step)
        second.update(model)
    assert_equal(second.tensors, straight.tensors)
    assert second.steps == straight.steps
    assert_equal(stored, {name: value.clone() for name, value in first.tensors.items()})  # not trained on
