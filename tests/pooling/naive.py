"""Every pooling a second time: slow, one set at a time, in float64, straight from the definitions.

Nothing here imports ``vse``. A set is a float64 tensor ``(n, D)`` of valid elements only; ``each_set`` and
``over_batch`` bridge to batches. Sorting is Python's ``sorted``; the results are differentiable by torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Parameters = Mapping[str, Tensor]


def each_set(features: Tensor, mask: Tensor | None = None) -> list[Tensor]:
    """The valid elements of each set of a batch, in their order, as float64."""
    sets = []
    for b in range(features.shape[0]):
        rows = [n for n in range(features.shape[1]) if mask is None or bool(mask[b, n])]
        sets.append(features[b, rows].double())
    return sets


def over_batch(pool: Callable[[Tensor], Tensor], features: Tensor, mask: Tensor | None = None) -> Tensor:
    """``pool`` applied to each set by itself, ``(B, D)``."""
    return torch.stack([pool(elements) for elements in each_set(features, mask)])


def descending_order(elements: Tensor) -> Tensor:
    """``order[k, d]`` is the row of the k-th largest value of dimension d; -inf < numbers < inf < NaN."""
    columns = []
    for column in elements.detach().T.tolist():
        nans = [n for n, value in enumerate(column) if math.isnan(value)]
        numbers = [n for n, value in enumerate(column) if not math.isnan(value)]
        columns.append(nans + sorted(numbers, key=lambda n, values=column: -values[n]))
    return torch.tensor(columns, dtype=torch.int64).reshape(elements.shape[1], elements.shape[0]).T


def sort_descending(elements: Tensor) -> Tensor:
    """Every dimension in descending order, ``(n, D)``."""
    return elements.gather(0, descending_order(elements))


def weighted_sum(elements: Tensor, weights: Tensor) -> Tensor:
    """``sum_k weights[k] * max_k``; ``weights (n,)`` or ``(n, D)``, longer ones are cut."""
    weights = weights.double()[: elements.shape[0]]
    return (sort_descending(elements) * (weights.unsqueeze(-1) if weights.dim() == 1 else weights)).sum(dim=0)


def coefficients_of_mean(size: int) -> list[float]:
    return [1 / size] * size


def coefficients_of_max(size: int) -> list[float]:
    return [1.0] + [0.0] * (size - 1)


def coefficients_of_k_max(size: int, k: int) -> list[float]:
    k = min(k, size)
    return [1 / k] * k + [0.0] * (size - k)


def coefficients_of_top_percent(size: int, percent: float) -> list[float]:
    return coefficients_of_k_max(size, max(1, round(size * percent / 100)))


def coefficients_of_linear_decay(size: int) -> list[float]:
    if size == 1:
        return [1.0]
    raw = [size - k for k in range(1, size + 1)]
    return [value / sum(raw) for value in raw]


def interpolated(knots: Tensor, size: int) -> Tensor:
    """``knots (K, D)`` stretched linearly over ``size`` ranks, a knot at each end: ``(size, D)``."""
    rows = []
    for k in range(size):
        place = 0.0 if size == 1 else k / (size - 1) * (knots.shape[0] - 1)
        lower = min(int(place), knots.shape[0] - 2)
        share = place - lower
        rows.append((1 - share) * knots[lower] + share * knots[lower + 1])
    return torch.stack(rows)


def gem(elements: Tensor, p: float, eps: float = 1e-6) -> Tensor:
    """The generalized mean by its direct formula."""
    return (elements.clamp(min=eps) ** p).mean(dim=0) ** (1 / p)


def position_encoding(count: int, width: int, first: int = 0) -> Tensor:
    """``(count, width)``: frequency ``10000^(-2j/width)``, even dimensions sin, odd dimensions cos."""
    rows = []
    for position in range(first, first + count):
        row = []
        for j in range(width // 2):
            angle = position * 10000 ** (-2 * j / width)
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


def gru_states(inputs: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor) -> Tensor:
    """The states of a GRU after each of the ``inputs (n, d)``, by the cell's equations; gates in order r, z, n."""
    hidden = weight_hh.shape[1]
    state = torch.zeros(hidden, dtype=torch.float64)
    states = []
    for row in inputs:
        of_input = weight_ih @ row + bias_ih
        of_state = weight_hh @ state + bias_hh
        reset = torch.sigmoid(of_input[:hidden] + of_state[:hidden])
        update = torch.sigmoid(of_input[hidden : 2 * hidden] + of_state[hidden : 2 * hidden])
        new = torch.tanh(of_input[2 * hidden :] + reset * of_state[2 * hidden :])
        state = (1 - update) * new + update * state
        states.append(state)
    return torch.stack(states)


def gru_parameters(parameters: Parameters, prefix: str, suffix: str = "") -> list[Tensor]:
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    return [parameters[f"{prefix}{name}{suffix}"].double() for name in names]


def bigru_states(inputs: Tensor, parameters: Parameters, prefix: str = "gru.") -> Tensor:
    """The mean of a GRU read forwards and another read backwards, ``(n, H)``."""
    ahead = gru_states(inputs, *gru_parameters(parameters, prefix))
    back = gru_states(inputs.flip(0), *gru_parameters(parameters, prefix, "_reverse")).flip(0)
    return (ahead + back) / 2


def softmax(scores: Tensor) -> Tensor:
    """Over the first axis."""
    powers = (scores - scores.max(dim=0, keepdim=True).values).exp()
    return powers / powers.sum(dim=0, keepdim=True)


def gpo_coefficients(
    size: int, parameters: Parameters, *, width: int = 32, temperature: float = 0.1, first: int = 0
) -> Tensor:
    """``(size,)`` from a GPO's ``gru.*`` and ``linear.weight``."""
    states = bigru_states(position_encoding(size, width, first), parameters)
    return softmax(states @ parameters["linear.weight"].double().T / temperature).squeeze(1)


def gpo(elements: Tensor, parameters: Parameters) -> Tensor:
    return weighted_sum(elements, gpo_coefficients(elements.shape[0], parameters))


def linear(inputs: Tensor, parameters: Parameters, prefix: str) -> Tensor:
    return inputs @ parameters[f"{prefix}weight"].double().T + parameters[f"{prefix}bias"].double()


def self_attention(elements: Tensor, parameters: Parameters) -> Tensor:
    """One-head attention with a residual, then the mean."""
    query, key, value = (linear(elements, parameters, f"{name}.") for name in ("query", "key", "value"))
    attended = []
    for n in range(elements.shape[0]):
        share = softmax(key @ query[n] / math.sqrt(elements.shape[1]))
        attended.append(elements[n] + sum(share[m] * value[m] for m in range(elements.shape[0])))
    return torch.stack(attended).mean(dim=0)


def seq2seq(elements: Tensor, parameters: Parameters, prefix: str = "gru.") -> Tensor:
    """The last state of one GRU."""
    return gru_states(elements, *gru_parameters(parameters, prefix))[-1]


def relation_block(elements: Tensor, parameters: Parameters, prefix: str) -> Tensor:
    """``phi + BN(W (R g(phi)))`` with ``R = theta(phi) psi(phi)^T / n``, batch norm in evaluation mode."""
    theta, psi, g = (linear(elements, parameters, f"{prefix}{name}.") for name in ("theta", "psi", "g"))
    message = linear(theta @ psi.T / elements.shape[0] @ g, parameters, f"{prefix}out.")
    norm = {name: parameters[f"{prefix}norm.{name}"].double() for name in ("weight", "bias")}
    mean, variance = (parameters[f"{prefix}norm.running_{name}"].double() for name in ("mean", "var"))
    return elements + (message - mean) / torch.sqrt(variance + 1e-5) * norm["weight"] + norm["bias"]
