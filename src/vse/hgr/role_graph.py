"""A sentence as a small graph: its verbs, its phrases, and which phrase belongs to which verb."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vse.errors import InputError
from vse.hgr.roles import ROOT, VERB, role_id

MOST_VERBS, MOST_NOUNS = 4, 6


@dataclass(frozen=True)
class Phrase:
    """Words of the sentence, by their places in ascending order, and the number of their role."""

    role: int
    words: tuple[int, ...]


@dataclass(frozen=True)
class RoleGraph:
    """Verbs, nouns and the edges ``(verb, noun)`` between them, for a sentence of ``n_words`` words.

    Places of words count the sentence split at whitespace, as the published files do, of which the first ``n_words``
    are read. "Noun" stands for every phrase that is not a verb. The first ``MOST_VERBS`` and ``MOST_NOUNS`` of the
    file are kept.

    ``dropped`` counts nodes that name no word of the sentence or cannot be read, ``surplus`` those beyond the limits:
    graphs that differ in them come from different files, and a run is not continued with another one.
    """

    n_words: int
    verbs: tuple[Phrase, ...] = ()
    nouns: tuple[Phrase, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    dropped: int = 0
    surplus: int = 0

    @classmethod
    def from_official(cls, entry: Any, n_words: int) -> RoleGraph:
        """The graph of an entry ``[nodes, edges]`` of ``sent2rolegraph.augment.json``, for the words that are read.

        ``nodes`` maps names to ``{"role": "V", "spans": [4], "words": [...]}`` and ``edges`` lists
        ``[verb, noun, role]`` by these names. Words from place ``n_words`` on are left out, and so are edges that do
        not lead from a kept verb to a kept noun.
        """
        if n_words < 1:
            raise InputError(f"a sentence of {n_words} words has no graph: drop empty sentences first")
        nodes, edges = _halves(entry)
        verbs: dict[str, Phrase] = {}
        nouns: dict[str, Phrase] = {}
        dropped = surplus = 0
        for name, node in nodes.items():
            role = _role(node)
            if role == ROOT:
                continue
            words = _words(node.get("spans"), n_words) if role else ()
            if not words:
                dropped += 1
                continue
            # "C-V", the second half of a verb, stands among the nouns, as in the released implementation.
            kept, most = (verbs, MOST_VERBS) if role == VERB else (nouns, MOST_NOUNS)
            if len(kept) == most:
                surplus += 1
            else:
                kept[name] = Phrase(role_id(role), words)
        return cls(n_words, (*verbs.values(),), (*nouns.values(),), _edges(edges, verbs, nouns), dropped, surplus)


def _halves(entry: Any) -> tuple[Mapping[str, Any], Sequence[Any]]:
    if isinstance(entry, Sequence) and len(entry) == 2:
        nodes, edges = entry
        if isinstance(nodes, Mapping) and isinstance(edges, Sequence):
            return nodes, edges
    raise InputError(
        f"a role graph must be a pair [nodes, edges] of an object and a list, got {str(entry)[:80]!r}; "
        "leave the entry out to have the sentence parsed by rules"
    )


def _role(node: Any) -> str:
    """The name of a node's role, empty if it has none."""
    role = node.get("role") if isinstance(node, Mapping) else None
    return role if isinstance(role, str) else ""


def _words(spans: Any, n_words: int) -> tuple[int, ...]:
    """The places that exist, ascending; nothing if ``spans`` is not a list of places."""
    if not isinstance(spans, Sequence):
        return ()
    whole = {place for place in spans if isinstance(place, int) and not isinstance(place, bool)}
    return tuple(sorted(place for place in whole if 0 <= place < n_words))


def _edges(edges: Sequence[Any], verbs: Collection[str], nouns: Collection[str]) -> tuple[tuple[int, int], ...]:
    """Pairs of numbers, each once, in the order of the file."""
    verb_numbers, noun_numbers = ({name: number for number, name in enumerate(names)} for names in (verbs, nouns))
    found: dict[tuple[int, int], None] = {}
    for edge in edges:
        if not isinstance(edge, Sequence) or len(edge) < 2 or not all(isinstance(end, str) for end in edge[:2]):
            continue
        verb, noun = edge[:2]
        if verb in verb_numbers and noun in noun_numbers:
            found[verb_numbers[verb], noun_numbers[noun]] = None
    return tuple(found)
