"""HGR a second time: one video, one sentence, one phrase at a time, in float64, straight from the definitions.

Nothing here imports ``vse``. A state is the state of a model, under its names. A node is ``(role, places of words)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from tests.pooling.naive import bigru_states, gpo, linear, softmax
from torch import Tensor

State = Mapping[str, Tensor]
Node = tuple[int, Sequence[int]]
SHARPNESS = 4
LAYER_NORM_EPSILON = 1e-5


def part(state: State, prefix: str) -> dict[str, Tensor]:
    """The tensors below ``prefix``, without it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def pooled(elements: Tensor, state: State) -> Tensor:
    """Learned attention or GPO, whichever ``state`` is of."""
    if "linear.weight" in state:
        return gpo(elements, state)
    weights = softmax(linear(elements, state, "score."))  # (n, 1)
    return sum(weights[n, 0] * elements[n] for n in range(len(elements)))


def video(frames: Tensor, state: State) -> tuple[Tensor, Tensor, Tensor]:
    """The whole ``(D,)`` and the frames of the two finer levels, of ``frames (n, C)`` without padding."""
    levels = [linear(frames.double(), state, f"levels.{level}.") for level in range(3)]
    return pooled(levels[0], part(state, "pooling.")), levels[1], levels[2]


def sentence(
    tokens: Sequence[int], verbs: Sequence[Node], nouns: Sequence[Node], edges: Sequence[tuple[int, int]], state: State
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """The whole ``(D,)``, verbs and nouns, after the graph; ``edges`` are pairs (verb, noun)."""
    embedded = torch.stack([state["words.embed.weight"][token].double() for token in tokens])
    states = bigru_states(embedded, state, "words.rnn.")
    nodes = [pooled(states, part(state, "pooling."))]
    for role, places in (*verbs, *nouns):
        highest = torch.stack([max(states[place, d] for place in places) for d in range(states.shape[1])])
        nodes.append(highest * state["roles.weight"][role].double())
    sources: list[set[int]] = [set() for _ in nodes]
    for verb in range(len(verbs)):
        sources[1 + verb].add(0)
    for verb, noun in edges:
        sources[1 + verb].add(1 + len(verbs) + noun)
        sources[1 + len(verbs) + noun].add(1 + verb)
    graph = part(state, "graph.")
    reasoned = [reason(node, [nodes[j] for j in sorted(of)], graph) for node, of in zip(nodes, sources, strict=True)]
    return reasoned[0], reasoned[1 : 1 + len(verbs)], reasoned[1 + len(verbs) :]


def reason(node: Tensor, sources: Sequence[Tensor], state: State) -> Tensor:
    """One node after it took from its sources."""
    if sources:
        query = linear(node, state, "query.")
        dots = [query @ linear(source, state, "key.") for source in sources]
        shares = softmax(torch.stack(dots) / math.sqrt(len(query)))
        taken = sum(share * source for share, source in zip(shares, sources, strict=True))
        node = node + state["context.weight"].double() @ taken
    centred = node - node.mean()
    scaled = centred / math.sqrt(float((centred**2).mean()) + LAYER_NORM_EPSILON)
    return scaled * state["norm.weight"].double() + state["norm.bias"].double()


def cosine(left: Tensor, right: Tensor) -> float:
    lengths = math.sqrt(float(left @ left)) * math.sqrt(float(right @ right))
    return float(left @ right) / lengths if lengths else 0.0


def phrase_score(frames: Tensor, phrase: Tensor) -> float:
    """How well ``frames (n, D)``, all real, show one phrase."""
    shown = [max(0.0, cosine(frame, phrase)) for frame in frames]
    length = math.sqrt(sum(value**2 for value in shown))
    powers = [math.exp(SHARPNESS * value / length) if length else 1.0 for value in shown]
    attended = sum(power / sum(powers) * frame for power, frame in zip(powers, frames, strict=True))
    return cosine(attended, phrase)


def phrases_score(frames: Tensor, phrases: Sequence[Tensor]) -> float:
    """The mean over phrases, 0 without any."""
    return sum(phrase_score(frames, phrase) for phrase in phrases) / max(1, len(phrases))
