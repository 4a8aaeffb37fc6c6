"""The recurrence of a wide bidirectional GRU over sentences of several lengths on the CPU, directions averaged.

torch's GRU computes a matrix product for the weight gradient at every step, and several passes over memory for the
gates. Here the gates of a step take one compiled pass, and the weight gradient is one product at the end. A prefix that
several sentences share ("<start> a man"; from the end, ". <end>") is computed once, a repeated word is projected once
(by the caller), and padding is skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vse.pooling.functional import Task, prefix_mask, run_in_ranges

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Groups:
    """Group g has the members ``members[starts[g]:starts[g + 1]]``, in a fixed order."""

    starts: Indices
    members: Indices

    @classmethod
    def of(cls, group: Indices, count: int) -> Groups:
        """Group the members 0, 1, … by their group number, from 0 to ``count - 1``."""
        starts = np.zeros(count + 1, dtype=np.int64)
        starts[1:] = np.bincount(group, minlength=count).cumsum()
        return cls(starts, group.argsort(kind="stable"))


@dataclass(frozen=True, eq=False)
class PrefixTree:
    """The K distinct prefixes of B sentences of at most L words, grouped into levels by length.

    A prefix with extensions is the *stem* of the prefixes that extend it by one word; the empty prefix is the stem of
    the first level. Within a level, prefixes with extensions come first, so stem s of level t + 1 is prefix s of level
    t.

    Attributes:
        levels: ``(T + 1,)``, where the prefixes of each level start.
        stem_levels: ``(T + 1,)``, where the stems of each level start.
        words: ``(K,)``, the last word of each prefix.
        stems: ``(K,)``, the stem of each prefix, numbered within the level.
        children: Prefixes grouped by stem.
        places: Places ``b · L + l`` grouped by the prefix that ends there.
    """

    levels: Indices
    stem_levels: Indices
    words: Indices
    stems: Indices
    children: Groups
    places: Groups

    @classmethod
    def of(cls, words: Indices, sizes: Indices, *, backwards: bool) -> PrefixTree:
        """Build the tree of the first ``sizes (B,)`` of ``words (B, L)`` in each row, reversed if ``backwards``."""
        step = np.arange(int(sizes.max()))  # (T,)
        place = np.maximum(sizes[:, None] - 1 - step, 0) if backwards else step[None].repeat(len(sizes), 0)
        read = np.where(step < sizes[:, None], np.take_along_axis(words, place, axis=1), -1)  # (B, T)
        order = np.lexsort(read.T[::-1])  # sentences with a common prefix become neighbours
        read, place = read[order], place[order] + (order * words.shape[1])[:, None]
        valid = read >= 0
        fresh = valid.copy()  # where a prefix differs from that of the previous sentence
        fresh[1:] &= ~np.logical_and.accumulate(read[1:] == read[:-1], axis=1)
        counts = fresh.sum(axis=0)
        levels = np.concatenate([[0], counts.cumsum()])
        prefix = levels[:-1] + fresh.cumsum(axis=0) - 1  # (B, T)
        goes_on = np.zeros(levels[-1], dtype=np.bool_)
        goes_on[prefix[:, :-1][valid[:, 1:]]] = True
        level = np.repeat(step, counts)
        renumbered = np.empty_like(level)
        renumbered[(2 * level + ~goes_on).argsort(kind="stable")] = np.arange(len(level))
        prefix = renumbered[np.where(valid, prefix, 0)]
        last_words, stems = np.empty_like(level), np.zeros_like(level)
        last_words[prefix[fresh]] = read[fresh]
        stems[prefix[:, 1:][fresh[:, 1:]]] = (prefix - levels[:-1])[:, :-1][fresh[:, 1:]]
        stem_counts = np.concatenate([[1], np.bincount(level[goes_on], minlength=len(step))])[: len(step)]
        stem_levels = np.concatenate([[0], stem_counts.cumsum()])
        children = Groups.of(stems + np.repeat(stem_levels[:-1], counts), int(stem_levels[-1]))
        by_prefix = Groups.of(prefix[valid], len(level))
        return cls(
            levels, stem_levels, last_words, stems, children, Groups(by_prefix.starts, place[valid][by_prefix.members])
        )


SPLIT_VALUES = 32_768
"""With fewer state values, one thread finishes a step before a second one starts."""
FEW_ROWS = 96
"""Compute the product transposed for at most this many rows of states."""


def prefix_states(projected: list[Tensor], words: Tensor, sizes: Tensor, recurrent: list[Tensor]) -> Tensor:
    """Return the mean of the states of both directions, ``(B, L, H)``, zero past a sentence's end; differentiable.

    Args:
        projected: For each direction ``x W_ih^T + b_ih`` of every distinct word, ``(V, 3H)``.
        words: ``(B, L)`` int64, the row of ``projected`` of each word; ignored past a sentence's end.
        sizes: ``(B,)`` int64, at least 1.
        recurrent: ``W_hh (3H, H)`` and ``b_hh (3H,)`` of the forward direction, then of the backward one.
    """
    trees = [PrefixTree.of(words.numpy(), sizes.numpy(), backwards=backwards) for backwards in (False, True)]
    if not torch.is_grad_enabled():
        return _run(trees, words.shape, projected, recurrent, keep=False)[0]
    return cast(Tensor, cast(Any, _PrefixBiGRU).apply(trees, words, sizes, *projected, *recurrent)[0])


def plain_states(projected: list[Tensor], words: Tensor, sizes: Tensor, recurrent: list[Tensor]) -> Tensor:
    """Compute the reference of :func:`prefix_states` with torch operators; differentiable any number of times."""
    batch, longest = words.shape
    valid = prefix_mask(sizes, longest)  # (B, L)
    inside = words.masked_fill(~valid, 0)
    mean = projected[0].new_zeros(())
    for direction in (0, 1):
        given = projected[direction][inside].unbind(1)  # L of (B, 3H)
        weight, bias = recurrent[2 * direction : 2 * direction + 2]
        state = projected[0].new_zeros(batch, weight.shape[1])
        states: dict[int, Tensor] = {}
        for place in reversed(range(longest)) if direction else range(longest):
            x, h = given[place].chunk(3, dim=1), torch.nn.functional.linear(state, weight, bias).chunk(3, dim=1)
            reset, update = (x[0] + h[0]).sigmoid(), (x[1] + h[1]).sigmoid()
            new = (x[2] + reset * h[2]).tanh()
            state = torch.where(valid[:, place, None], new + update * (state - new), 0)
            states[place] = state
        mean = mean + torch.stack([states[place] for place in range(longest)], dim=1) / 2
    return mean


def _run(
    trees: list[PrefixTree], shape: torch.Size, projected: list[Tensor], recurrent: list[Tensor], *, keep: bool
) -> tuple[Tensor, ...]:
    """Return the states ``(B, L, H)`` and, if ``keep``, per direction the states of stems and the gates of prefixes."""
    from vse.encoders.gru_kernels import step_forward

    hidden = recurrent[0].shape[1]
    out = projected[0].new_zeros(*shape, hidden)
    flat = out.view(-1, hidden).numpy()
    kept: list[Tensor] = []
    for direction, tree in enumerate(trees):
        weight, bias = (tensor.detach() for tensor in recurrent[2 * direction : 2 * direction + 2])
        fixed = projected[direction].detach().contiguous().numpy(), bias.contiguous().numpy()
        before = out.new_empty(int(tree.stem_levels[-1]), hidden)
        before[0] = 0
        gates = out.new_empty(len(tree.words) if keep else 0, 4 * hidden)
        for level, (here, stems) in enumerate(_levels(tree)):
            count = here.stop - here.start
            product = _product(before[stems], weight, first=level == 0)
            task = partial(
                step_forward,
                fixed[0],
                tree.words[here],
                product.numpy(),
                fixed[1],
                before[stems].numpy(),
                tree.stems[here],
                tree.places.starts[here.start : here.stop + 1],
                tree.places.members,
                gates[here].numpy(),
                before[stems.stop : _end_of_stems(tree, level + 1)].numpy(),
                flat,
            )
            _in_ranges(task, count, hidden)
        kept += [before, gates] if keep else []
    return out, *kept


def _gradients(
    grad: Tensor, trees: list[PrefixTree], projected: list[Tensor], recurrent: list[Tensor], kept: list[Tensor]
) -> list[Tensor]:
    """Return the gradients of both ``projected``, then of ``recurrent``."""
    from vse.encoders.gru_kernels import step_backward, sum_groups

    hidden = grad.shape[2]
    flat = grad.contiguous().view(-1, hidden).numpy()
    for_projected, for_recurrent = [], []
    for direction, tree in enumerate(trees):
        before, gates = kept[2 * direction : 2 * direction + 2]
        weight = recurrent[2 * direction].detach()
        by_prefix = grad.new_empty(len(tree.words), 3 * hidden)
        by_stem = grad.new_empty(len(before), 3 * hidden)
        carried = grad.new_empty(0, hidden)
        for _, stems in reversed(_levels(tree)):
            grad_before = torch.empty_like(before[stems])
            task = partial(
                step_backward,
                flat,
                tree.places.starts,
                tree.places.members,
                tree.children.starts[stems.start : stems.stop + 1],
                tree.children.members,
                before[stems].numpy(),
                gates.numpy(),
                carried.numpy(),
                by_prefix.numpy(),
                by_stem[stems].numpy(),
                grad_before.numpy(),
            )
            _in_ranges(task, len(grad_before), hidden)
            carried = grad_before.addmm_(by_stem[stems], weight) if stems.start else grad_before
        for_recurrent += [by_stem[1:].T @ before[1:], by_stem.sum(dim=0)]  # the state of the empty prefix is zero
        summed = torch.empty_like(projected[direction], memory_format=torch.contiguous_format)
        words = Groups.of(tree.words, len(summed))
        task = partial(sum_groups, by_prefix.numpy(), words.starts, words.members, summed.numpy())
        _in_ranges(task, len(summed), 3 * hidden)
        for_projected.append(summed)
    return [*for_projected, *for_recurrent]


def _levels(tree: PrefixTree) -> list[tuple[slice, slice]]:
    """Return the ranges of prefixes and stems of each level."""
    bounds = [starts.tolist() for starts in (tree.levels, tree.stem_levels)]
    prefixes, stems = ([slice(a, b) for a, b in pairwise(ends)] for ends in bounds)
    return list(zip(prefixes, stems, strict=True))


def _end_of_stems(tree: PrefixTree, level: int) -> int:
    return int(tree.stem_levels[min(level + 1, len(tree.stem_levels) - 1)])


def _product(states: Tensor, weight: Tensor, *, first: bool) -> Tensor:
    """Return ``states (m, H) weight^T``, contiguous; BLAS is faster with few columns than with few rows."""
    if first:  # the state of the empty prefix is zero
        return states.new_zeros(len(states), weight.shape[0])
    return states @ weight.T if len(states) > FEW_ROWS else (weight @ states.T).T.contiguous()


def _in_ranges(task: Task, count: int, width: int) -> None:
    run_in_ranges(task, count, worth_splitting=count * width >= SPLIT_VALUES)


class _PrefixBiGRU(torch.autograd.Function):
    """Autograd function of trees, words, sizes, both ``projected``, then weight and bias of each direction."""

    @staticmethod
    def forward(trees: list[PrefixTree], words: Tensor, sizes: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        return _run(trees, words.shape, list(tensors[:2]), list(tensors[2:]), keep=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.trees = inputs[0]
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs[1:], *output[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        words, sizes, *tensors = ctx.saved_tensors
        projected, recurrent, kept = tensors[:2], tensors[2:6], tensors[6:]
        if torch.is_grad_enabled():  # second-order gradients: differentiate the reference implementation
            wanted = [tensor for tensor in tensors[:6] if tensor.requires_grad]
            states = plain_states(projected, words, sizes, recurrent)
            found = iter(torch.autograd.grad(states, wanted, grad, create_graph=True))
            return None, None, None, *(next(found) if tensor.requires_grad else None for tensor in tensors[:6])
        return None, None, None, *_gradients(grad, ctx.trees, projected, recurrent, kept)
