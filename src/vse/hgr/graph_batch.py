"""The role graphs of a batch of sentences as padded arrays, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.hgr.role_graph import MOST_NOUNS, MOST_VERBS, RoleGraph


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """B graphs over sentences padded to L words. Verbs come first, then nouns; a node without words is none.

    ``verb_words (B, 4, L)`` and ``noun_words (B, 6, L)`` mark the words of each node, ``roles (B, 10)`` holds their
    roles (0 where there is no node), ``edges (B, 11, 11)`` what each node, the root first, takes from which others: the
    root gives to every verb, a verb and its nouns to each other. A row of ``edges`` sums to 1, or is zero where a
    node takes nothing, as the root never does.
    """

    verb_words: NDArray[np.bool_]
    noun_words: NDArray[np.bool_]
    roles: NDArray[np.int64]
    edges: NDArray[np.float32]

    @classmethod
    def of(cls, graphs: Sequence[RoleGraph], length: int | None = None) -> GraphBatch:
        """The arrays of ``graphs``; ``length`` is L, the longest sentence's if it is not given."""
        longest = max((graph.n_words for graph in graphs), default=0)
        if length is None:
            length = longest
        if length < longest:
            raise InputError(f"graphs of up to {longest} words do not fit sentences padded to {length}")
        batch = cls(
            np.zeros((len(graphs), MOST_VERBS, length), dtype=np.bool_),
            np.zeros((len(graphs), MOST_NOUNS, length), dtype=np.bool_),
            np.zeros((len(graphs), MOST_VERBS + MOST_NOUNS), dtype=np.int64),
            np.zeros((len(graphs), 1 + MOST_VERBS + MOST_NOUNS, 1 + MOST_VERBS + MOST_NOUNS), dtype=np.float32),
        )
        for row, graph in enumerate(graphs):
            batch._fill(row, graph)
        return batch

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """The arrays by their names, which are the arguments of ``HGRModel.embed_sentences``."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _fill(self, row: int, graph: RoleGraph) -> None:
        for phrases, words, first in ((graph.verbs, self.verb_words, 0), (graph.nouns, self.noun_words, MOST_VERBS)):
            for number, phrase in enumerate(phrases):
                words[row, number, list(phrase.words)] = True
                self.roles[row, first + number] = phrase.role
        edges = self.edges[row]
        edges[1 : 1 + len(graph.verbs), 0] = 1
        for verb, noun in graph.edges:
            edges[1 + verb, 1 + MOST_VERBS + noun] = edges[1 + MOST_VERBS + noun, 1 + verb] = 1
        edges /= np.maximum(edges.sum(axis=1, keepdims=True), 1)
