"""SCAN, IMRAM and CAAN by the formulas of their papers: one pair at a time, element by element, in numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
EPS = 1e-8


def cosine(a: Array, b: Array) -> float:
    return float(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), EPS))


def softmax(values: Array) -> Array:
    powers = np.exp(values - values.max())
    return powers / powers.sum()


def normed(similarities: Array, norm: str, slope: float) -> Array:
    """``(queries, contexts)``, normalized over the queries for each context."""
    found = similarities.copy()
    if norm.startswith("clipped"):
        found = np.where(found > 0, found, slope * found)
    for context in range(found.shape[1]):
        column = found[:, context].copy()
        if norm.endswith("l2norm"):
            found[:, context] = column / (np.sqrt(sum(value**2 for value in column)) + EPS)
        elif norm.endswith("l1norm"):
            found[:, context] = column / (sum(abs(value) for value in column) + EPS)
        elif norm == "softmax":
            found[:, context] = softmax(column)
    return found


def attend(memory: Array, contexts: Array, sharpness: float, norm: str, slope: float) -> Array:
    """Return what each query of ``memory`` attends to, ``(queries, D)``."""
    similarities = np.array([[q @ c for c in contexts] for q in memory])
    weights = normed(similarities, norm, slope)
    return np.stack([sum(w * c for w, c in zip(softmax(sharpness * row), contexts, strict=True)) for row in weights])


def scan(regions: Array, words: Array, options) -> float:
    queries, contexts = (words, regions) if options.direction == "t2i" else (regions, words)
    attended = attend(queries, contexts, options.lambda_softmax, options.raw_feature_norm, options.slope)
    cosines = [cosine(q, a) for q, a in zip(queries, attended, strict=True)]
    if options.aggregation == "lse":
        return float(np.log(sum(np.exp(options.lambda_lse * each) for each in cosines)) / options.lambda_lse)
    return float({"mean": np.mean, "max": np.max, "sum": np.sum}[options.aggregation](cosines))


def imram(regions: Array, words: Array, options, weights: dict[str, Array]) -> float:
    """``weights`` are those of the scoring module, by name."""
    total = 0.0
    for side in {"full": ("text", "image")}.get(options.mode, (options.mode,)):
        queries, contexts = (words, regions) if side == "text" else (regions, words)
        memory = queries
        for step in range(options.steps):
            attended = attend(memory, contexts, options.lambda_softmax, options.raw_feature_norm, options.slope)
            total += np.mean([cosine(q, a) for q, a in zip(queries, attended, strict=True)])
            if step == options.steps - 1:
                break
            w_o, b_o, w_g, b_g = (
                weights[f"updates.{side}.{layer}.{kind}"] for layer in ("output", "gate") for kind in ("weight", "bias")
            )
            rows = []
            for m, a in zip(memory, attended, strict=True):
                both = np.concatenate([m, a])
                gate = 1 / (1 + np.exp(-(w_g @ both + b_g)))
                new = gate * m + (1 - gate) * np.tanh(w_o @ both + b_o)
                rows.append(new / (np.linalg.norm(new) + EPS) if options.unit_memory else new)
            memory = np.stack(rows)
    return float(total)


def caan(regions: Array, words: Array, options, weights: dict[str, Array]) -> float:
    """``H = tanh(V K Uᵀ)``; inter-modal attention by rows and columns of H, intra-modal attention from both."""
    affinity = np.array([[np.tanh(v @ weights["affinity.weight"].T @ u) for u in words] for v in regions])
    clipped = np.maximum(affinity, 0)
    scale = softmax if options.normalise == "softmax" else lambda row: row / (np.sqrt((row**2).sum()) + EPS)
    by_region = np.stack([scale(row) for row in clipped])  # (N, L), over words
    by_word = np.stack([scale(row) for row in clipped.T])  # (L, N), over regions
    seen = weighted(regions, words, by_region, options, {key[16:]: w for key, w in weights.items() if "image_" in key})
    read = weighted(words, regions, by_word, options, {key[15:]: w for key, w in weights.items() if "text_" in key})
    return cosine(seen, read)


def weighted(own: Array, other: Array, inter: Array, options, weights: dict[str, Array]) -> Array:
    hidden = inter @ other @ weights["other.weight"].T
    if options.intra == "semantic":
        hidden = hidden + (inter @ inter.T) @ own @ weights["own.weight"].T
    elif options.intra == "feature":
        hidden = hidden + (own @ weights["relation.weight"].T @ own.T) @ own @ weights["own.weight"].T
    return softmax(np.tanh(hidden) @ weights["weight.weight"][0]) @ own
