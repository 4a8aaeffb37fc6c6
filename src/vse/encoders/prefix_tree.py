"""Sentences as a tree of their distinct prefixes, so that what a GRU computes for a prefix is computed once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Groups:
    """Group g has the members ``members[starts[g]:starts[g + 1]]``, always in the same order."""

    starts: Indices
    members: Indices

    @classmethod
    def of(cls, group: Indices, count: int) -> Groups:
        """Members 0, 1, … by the number of their group, of which there are ``count``."""
        starts = np.zeros(count + 1, dtype=np.int64)
        starts[1:] = np.bincount(group, minlength=count).cumsum()
        return cls(starts, group.argsort(kind="stable"))


@dataclass(frozen=True, eq=False)
class PrefixTree:
    """The K distinct prefixes of B sentences of L places at most, by length; in a level those that go on come first.

    A prefix that goes on is the *stem* of those that extend it; the empty prefix is the stem of the first level. As
    the prefixes that go on come first, stem s of level t + 1 is prefix s of level t.

    ``levels (T + 1,)`` and ``stem_levels (T + 1,)`` say where the prefixes and the stems of each level begin; ``words
    (K,)`` holds the last word of each prefix, ``stems (K,)`` its stem, counted within the level; ``children`` groups
    prefixes by stem, ``places`` the places ``b · L + l`` by prefix: a place belongs to the prefix that ends there.
    """

    levels: Indices
    stem_levels: Indices
    words: Indices
    stems: Indices
    children: Groups
    places: Groups

    @classmethod
    def of(cls, words: Indices, sizes: Indices, *, backwards: bool) -> PrefixTree:
        """Of ``words (B, L)``, the first ``sizes (B,)`` of each row, read from their end if ``backwards``."""
        step = np.arange(int(sizes.max()))  # (T,)
        place = np.maximum(sizes[:, None] - 1 - step, 0) if backwards else step[None].repeat(len(sizes), 0)
        read = np.where(step < sizes[:, None], np.take_along_axis(words, place, axis=1), -1)  # (B, T)
        order = np.lexsort(read.T[::-1])  # sentences with a common prefix become neighbours
        read, place = read[order], place[order] + (order * words.shape[1])[:, None]
        valid = read >= 0
        fresh = valid.copy()  # where a sentence's prefix differs from that of the one before
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
