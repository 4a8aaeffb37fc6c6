"""Role graphs from the entries of the official file."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hgr.support import entry

from vse.errors import InputError
from vse.hgr import RoleGraph
from vse.hgr.graphs import Phrase


def test_an_entry_as_published():
    """Verbs, nouns and edges come in the order of the file; JSON's names are gone, the root is not a node."""
    published = json.loads(
        """[{"ROOT": {"words": ["a","dog","runs","and","eats","its","food"], "spans": [0,1,2,3,4,5,6], "role": "ROOT"},
        "1": {"role": "V", "spans": [2], "words": ["runs"]}, "2": {"role": "ARG0", "spans": [0, 1], "words": []},
        "3": {"role": "V", "spans": [4], "words": ["eats"]}, "4": {"role": "ARG1", "spans": [5, 6], "words": []}},
        [["1", "2", "ARG0"], ["3", "2", "ARG0"], ["3", "4", "ARG1"]]]"""
    )
    found = RoleGraph.from_official(published, 7)
    verbs, nouns = (Phrase(0, (2,)), Phrase(0, (4,))), (Phrase(2, (0, 1)), Phrase(1, (5, 6)))
    assert found == RoleGraph(7, verbs, nouns, ((0, 0), (1, 0), (1, 1)))


def test_the_second_half_of_a_verb_stands_among_the_nouns():
    """As in the released reader, only the exact role V makes a verb; C-V has V's embedding."""
    found = RoleGraph.from_official(entry([[0]], {"rest": ("C-V", [3])}, [("v0", "rest", "C-V")]), 5)
    assert (found.nouns, found.edges) == ((Phrase(0, (3,)),), ((0, 0),))


def test_four_verbs_and_six_nouns_are_kept():
    """The first ones of the file; the others are counted, and their edges go with them."""
    nouns = {f"n{number}": ("ARG1", [number]) for number in range(8)}
    edges = [(f"v{verb}", f"n{noun}", "ARG1") for verb in range(6) for noun in range(8)]
    found = RoleGraph.from_official(entry([[number] for number in range(6)], nouns, edges), 9)
    assert [phrase.words for phrase in found.verbs] == [(0,), (1,), (2,), (3,)]
    assert [phrase.words for phrase in found.nouns] == [(0,), (1,), (2,), (3,), (4,), (5,)]
    assert found.edges == tuple((verb, noun) for verb in range(4) for noun in range(6))
    assert (found.dropped, found.surplus) == (0, 4)


def test_a_dropped_node_takes_no_place():
    """Limits count what is kept: a node without words does not use one up."""
    spans = [[99], [0], [1], [2], [3]]
    found = RoleGraph.from_official(entry(spans, {}, []), 5)
    assert [phrase.words for phrase in found.verbs] == [(0,), (1,), (2,), (3,)]
    assert (found.dropped, found.surplus) == (1, 0)


@pytest.mark.parametrize(("n_words", "kept"), [(4, (3,)), (32, (3, 29, 30, 31)), (30, (3, 29)), (29, (3,))])
def test_words_past_the_end_are_left_out(n_words, kept):
    """The end is that of the words that are read, few or many; a node is as good as the words that remain."""
    found = RoleGraph.from_official(entry([[3, 29, 30, 31]], {}, []), n_words)
    assert found.verbs == (Phrase(0, kept),)
    assert found.n_words == n_words


@pytest.mark.parametrize(
    "node",
    [
        {"role": "V", "spans": []},
        {"role": "V", "spans": [-1, 7]},
        {"role": "V", "spans": [True, 1.0, "1", None]},
        {"role": "V", "spans": 3},
        {"role": "V", "spans": "12"},
        {"role": "V"},
        {"role": None, "spans": [1]},
        {"spans": [1]},
        ["V", [1]],
        None,
    ],
)
def test_a_node_that_names_no_word_is_dropped_and_counted(node):
    """One bad node does not cost the others."""
    nodes, edges = entry([[0]], {"a": ("ARG1", [1])}, [("v0", "a", "ARG1")])
    found = RoleGraph.from_official([{"bad": node, **nodes}, [["bad", "a", "ARG1"], *edges]], 5)
    assert found == RoleGraph(5, (Phrase(0, (0,)),), (Phrase(1, (1,)),), ((0, 0),), dropped=1)


def test_edges_lead_once_from_verbs_to_nouns():
    """Repeated, reversed, dangling and malformed edges change nothing."""
    edges = [
        ("v0", "a", "ARG1"),
        ("v0", "a", "ARG0"),
        ("a", "v0"),
        ("v0", "v0"),
        ("ROOT", "a"),
        ("x", "y"),
        ("v0",),
        (1, 2),
    ]
    found = RoleGraph.from_official(entry([[0]], {"a": ("ARG1", [1])}, edges), 5)
    assert found.edges == ((0, 0),)


@pytest.mark.parametrize("bad", [None, [], [{}], [{}, [], []], [[], []], [{}, {}], "ab", {"nodes": {}}])
def test_an_entry_that_is_no_pair_is_an_error(bad):
    """What is not ``[nodes, edges]`` is another file: it is not taken for a sentence without a graph."""
    with pytest.raises(InputError, match=r"pair \[nodes, edges\]"):
        RoleGraph.from_official(bad, 5)


def test_a_sentence_without_words():
    """Has no graph, not even of its root."""
    assert RoleGraph.from_official([{}, []], 1) == RoleGraph(1)
    with pytest.raises(InputError, match="a sentence of 0 words has no graph"):
        RoleGraph.from_official([{}, []], 0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 40) | st.floats() | st.sampled_from(["V", "ROOT", "ARG1", "1", "2"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "spans", "1"]), inner),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from("123456789"), JSON), st.lists(JSON, max_size=6), st.integers(1, 40))
def test_any_json_gives_a_graph_within_the_limits(nodes, edges, n_words):
    """Whatever stands in the two halves: no exception, and every number is one that the arrays can hold."""
    found = RoleGraph.from_official([nodes, edges], n_words)
    assert len(found.verbs) <= 4
    assert len(found.nouns) <= 6
    for phrase in (*found.verbs, *found.nouns):
        assert 0 <= phrase.role < 16
        assert phrase.words
        assert all(0 <= place < n_words for place in phrase.words)
    assert all(verb < len(found.verbs) and noun < len(found.nouns) for verb, noun in found.edges)


def test_reading_graphs_needs_no_torch():
    """Data are read in installs without it."""
    code = "import sys; from vse.hgr import GraphBatch, RoleGraph; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
