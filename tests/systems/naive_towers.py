"""The formulas of the systems in numpy, element by element, in double precision. Shares no code with ``vse``."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

State = dict[str, np.ndarray]


def sigmoid(values: Any) -> Any:
    return 1 / (1 + np.exp(-values))


def softmax(values: Any) -> np.ndarray:
    raised = np.exp(np.asarray(values) - np.max(values))
    return raised / raised.sum()


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.sqrt((vector**2).sum())


def under(state: State, prefix: str) -> State:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def linear(state: State, name: str, vector: np.ndarray) -> np.ndarray:
    mapped = state[f"{name}.weight"] @ vector
    return mapped + state[f"{name}.bias"] if f"{name}.bias" in state else mapped


def norm(state: State, name: str, vector: np.ndarray) -> np.ndarray:
    """Batch norm in evaluation mode."""
    spread = np.sqrt(state[f"{name}.running_var"] + 1e-5)
    return (vector - state[f"{name}.running_mean"]) / spread * state[f"{name}.weight"] + state[f"{name}.bias"]


def gru_step(state: State, inputs: np.ndarray, hidden: np.ndarray, ending: str = "") -> np.ndarray:
    size = len(hidden)
    given = state[f"weight_ih{ending}"] @ inputs + state[f"bias_ih{ending}"]
    known = state[f"weight_hh{ending}"] @ hidden + state[f"bias_hh{ending}"]
    reset, update = sigmoid(given[:size] + known[:size]), sigmoid(given[size : 2 * size] + known[size : 2 * size])
    new = np.tanh(given[2 * size :] + reset * known[2 * size :])
    return (1 - update) * new + update * hidden


def gru(state: State, inputs: list[np.ndarray], ending: str = "_l0") -> list[np.ndarray]:
    hidden, states = np.zeros(state[f"weight_hh{ending}"].shape[1]), []
    for each in inputs:
        hidden = gru_step(state, each, hidden, ending)
        states.append(hidden)
    return states


def bigru(state: State, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Two directions, averaged."""
    forward, backward = gru(state, inputs), gru(state, inputs[::-1], "_l0_reverse")[::-1]
    return [(one + other) / 2 for one, other in zip(forward, backward, strict=True)]


def unit_dimensions(elements: list[np.ndarray]) -> list[np.ndarray]:
    return list(np.stack(elements) / np.sqrt((np.stack(elements) ** 2).sum(0)))


def relation(state: State, elements: list[np.ndarray]) -> list[np.ndarray]:
    """One block of VSRN's graph reasoning."""
    related = []
    for one in elements:
        message = np.zeros_like(one)
        for other in elements:
            affinity = linear(state, "theta", one) @ linear(state, "psi", other) / len(elements)
            message = message + affinity * linear(state, "g", other)
        related.append(one + norm(state, "norm", linear(state, "out", message)))
    return related


def leaky_unit(vector: np.ndarray) -> np.ndarray:
    return unit(np.where(vector > 0, vector, 0.1 * vector))


def caption_cost(state: State, elements: list[np.ndarray], words: list[int]) -> float:
    """Minus the log-probability of ``words`` after the first, from a GRU with attention over the elements."""
    states = gru(under(state, "reader."), [linear(state, "reduce", each) for each in elements])
    hidden, total = states[-1], 0.0
    for word, following in pairwise(words):
        energies = [
            (state["energy.weight"] @ np.tanh(linear(state, "key", each) + state["query.weight"] @ hidden))[0]
            for each in states
        ]
        context = sum(weight * each for weight, each in zip(softmax(energies), states, strict=True))
        inputs = np.concatenate([state["embed.weight"][word], context])
        hidden = gru_step(under(state, "writer."), inputs, hidden)
        total -= math.log(softmax(linear(state, "out", hidden))[following])
    return total


def word_of_characters(state: State, characters: list[int], longest: int, slope: float) -> np.ndarray:
    """LIWE's word: concatenated characters through layers with weight normalisation."""
    padded = (characters + [0] * longest)[:longest]
    vector = np.concatenate([state["embed.weight"][each] for each in padded])
    layer = 0
    while f"linears.{layer}.scale" in state:
        direction = state[f"linears.{layer}.direction"]
        weight = np.stack(
            [scale[0] * unit(row) for scale, row in zip(state[f"linears.{layer}.scale"], direction, strict=True)]
        )
        vector = norm(state, f"norms.{layer}", weight @ vector + state[f"linears.{layer}.bias"])
        vector = np.where(vector > 0, vector, slope * vector)
        layer += 1
    return vector


def adjacency(captions: list[set[int]], count: int) -> np.ndarray:
    """CVSE's graph: shares of captions, damped, thresholded, and normalised."""
    weights = np.zeros((count, count))
    for i in range(count):
        holding = [each for each in captions if i in each]
        for j in range(count):
            share = sum(j in each for each in holding) / len(holding) if i != j else 0.0
            weights[i, j] = 1.0 if 5 ** (share - 0.02) - 5**-0.02 >= 0.3 else 0.0
    for j in range(count):
        weights[:, j] = 0.25 * weights[:, j] / (weights[:, j].sum() + 1e-6)
    for i in range(count):
        weights[i, i] += 1.0
    degrees = weights.sum(1)
    return np.array([[weights[j, i] / math.sqrt(degrees[i] * degrees[j]) for j in range(count)] for i in range(count)])


def concept_basis(graph: State) -> np.ndarray:
    hidden = graph["adjacency"] @ (graph["embed"] @ graph["first"])
    hidden = np.where(hidden > 0, hidden, 0.2 * hidden)
    return np.stack([unit(row) for row in graph["adjacency"] @ (hidden @ graph["second"])])


def consensus(
    state: State, basis: np.ndarray, elements: list[np.ndarray], labels: np.ndarray | None, options: dict[str, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """CVSE's levels of one image or text: fused, instance, consensus and the weights of concepts."""
    elements = [unit(each) for each in elements]
    mean = np.mean(elements, axis=0)  # of a text, which has labels, at unit length
    query = np.tanh(linear(state, "query", mean if labels is None else unit(mean)))
    logits = [linear(state, "score", np.tanh(linear(state, "element", each)) * query)[0] for each in elements]
    instance = unit(sum(weight * each for weight, each in zip(softmax(logits), elements, strict=True)))
    asked = np.tanh(linear(state, "concept_query", instance))
    scores = [linear(state, "concept_score", np.tanh(linear(state, "concept", each)) * asked)[0] for each in basis]
    weights = softmax(options["sharpness"] * np.array(scores))
    if labels is not None:
        share = options["label_share"]
        weights = share * softmax(options["sharpness"] * labels) + (1 - share) * weights
    common = unit(weights @ basis)
    fused = unit(options["fusion"] * instance + (1 - options["fusion"]) * common)
    return fused, instance, common, weights


def hinge(scores: np.ndarray, margin: float, *, hardest: bool) -> float:
    """The triplet loss of both directions, summed over pairs."""
    total, count = 0.0, len(scores)
    for i in range(count):
        for side in ([scores[i, j] for j in range(count) if j != i], [scores[j, i] for j in range(count) if j != i]):
            costs = [max(0.0, margin + other - scores[i, i]) for other in side]
            total += max(costs) if hardest else sum(costs)
    return total
