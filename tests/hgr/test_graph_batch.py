"""Graphs as padded arrays."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hgr.support import GRAPHS

from vse.errors import InputError
from vse.hgr import GraphBatch, RoleGraph
from vse.hgr.graphs import Phrase

words = st.lists(st.integers(0, 11), min_size=1, max_size=4, unique=True).map(lambda places: tuple(sorted(places)))
phrases = st.builds(Phrase, st.integers(0, 15), words)


@st.composite
def graphs(draw):
    """Any graph of twelve words."""
    verbs, nouns = draw(st.lists(phrases, max_size=4)), draw(st.lists(phrases, max_size=6))
    ends = [(verb, noun) for verb in range(len(verbs)) for noun in range(len(nouns))]
    edges = draw(st.lists(st.sampled_from(ends), unique=True)) if ends else []
    return RoleGraph(12, tuple(verbs), tuple(nouns), tuple(edges))


@given(st.lists(graphs(), min_size=1, max_size=3), st.integers(0, 4))
def test_every_array_says_what_the_graphs_say(given_graphs, more):
    """Words, roles and shares of neighbours, entry by entry, whatever the padding."""
    batch = GraphBatch.of(given_graphs, 12 + more)
    assert batch.verb_words.shape == (len(given_graphs), 4, 12 + more)
    assert batch.noun_words.shape == (len(given_graphs), 6, 12 + more)
    for row, graph in enumerate(given_graphs):
        sources = defaultdict(set)
        for number in range(len(graph.verbs)):
            sources[1 + number].add(0)
        for verb, noun in graph.edges:
            sources[1 + verb].add(5 + noun)
            sources[5 + noun].add(1 + verb)
        for node in range(11):
            expected = [1 / len(sources[node]) if other in sources[node] else 0 for other in range(11)]
            np.testing.assert_allclose(batch.edges[row, node], expected, rtol=1e-6)
        slots = [*graph.verbs, *[None] * (4 - len(graph.verbs)), *graph.nouns, *[None] * (6 - len(graph.nouns))]
        marked = [*batch.verb_words[row], *batch.noun_words[row]]
        for phrase, places, role in zip(slots, marked, batch.roles[row], strict=True):
            assert tuple(np.flatnonzero(places)) == (phrase.words if phrase else ())
            assert role == (phrase.role if phrase else 0)


def test_the_length_is_that_of_the_longest_sentence():
    """Without a length; one that is too short is an error."""
    assert GraphBatch.of(GRAPHS).verb_words.shape == (4, 4, 8)
    with pytest.raises(InputError, match="up to 8 words do not fit sentences padded to 7"):
        GraphBatch.of(GRAPHS, 7)


def test_empty_graph_batch_has_arrays():
    """An empty batch has arrays too."""
    assert {name: array.shape[0] for name, array in GraphBatch.of([]).arrays().items()} == dict.fromkeys(
        ("verb_words", "noun_words", "roles", "edges"), 0
    )
