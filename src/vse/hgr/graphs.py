"""Role graphs of sentences: events, their arguments, and batches of them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vse.data.roles.graphs import role_graphs
from vse.data.vocabulary import WORD_LIMIT, video_words
from vse.errors import InputError
from vse.inputs.tokenizer import TextTokenizer, TokenBatch
from vse.models.encode import check_choice, check_known

VERB: Final = "V"
NOUN: Final = "NOUN"
ROOT: Final = "ROOT"
"""The role of the sentence itself, which has no embedding."""
ROLES: Final = (
    *(VERB, "ARG1", "ARG0", "ARG2", "ARG3", "ARG4"),
    *("ARGM-LOC", "ARGM-MNR", "ARGM-TMP", "ARGM-DIR", "ARGM-ADV", "ARGM-PRP", "ARGM-PRD", "ARGM-COM", "ARGM-MOD"),
    NOUN,
)
"""In the order of the released implementation: the place of a role is its row in the embedding."""
FOLDED: Final = ("C-", "R-")  # the continuation of a phrase, and a word that refers to one
_IDS = {prefix + role: number for number, role in enumerate(ROLES) for prefix in ("", *FOLDED)}


def role_id(name: str) -> int:
    """The number of a role; ``C-`` and ``R-`` are folded into the role they precede, an unknown role is a noun.

    >>> role_id("ARG0"), role_id("R-ARG0"), role_id("ARGM-NEG")
    (2, 2, 15)
    """
    return _IDS.get(name, _IDS[NOUN])


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


@dataclass(frozen=True, eq=False)
class SentenceGraphs:
    """``graphs[sentence]``; ``note`` says where they come from, since guessed roles are not published ones."""

    graphs: dict[str, RoleGraph] = field(repr=False)
    note: str

    @classmethod
    def of(cls, sentences: Iterable[str], folder: Path | None = None, *, limit: int = WORD_LIMIT) -> SentenceGraphs:
        """From the file of role graphs in ``folder``, and by rules where that has none; ``limit`` words are read."""
        found = role_graphs(sentences, folder)
        graphs = {}
        for sentence, entry in found.graphs.items():
            words = video_words(sentence, limit)
            if not words:
                raise InputError(f"the sentence {sentence[:40]!r} has no words: leave it out")
            try:
                graphs[sentence] = RoleGraph.from_official(entry, len(words))
            except InputError as error:
                raise InputError(f"{sentence[:60]!r}: {error}") from None
        return cls(graphs, found.note)

    def __getitem__(self, sentence: str) -> RoleGraph:
        found = self.graphs.get(sentence)
        if found is None:
            raise InputError(f"no role graph of {sentence[:60]!r}: make graphs of all sentences by SentenceGraphs.of")
        return found

    def over(self, sentence: str, words: int) -> RoleGraph:
        """The graph of a sentence of which ``words`` are read."""
        found = self[sentence]
        if found.n_words != words:
            raise InputError(
                f"{sentence[:60]!r}: its role graph is over {found.n_words} words and the model reads {words}: make "
                "graphs by SentenceGraphs.of with limit=, the tokenizer's max_length"
            )
        return found

    def digest(self) -> str:
        """A name for exactly these graphs, 16 digits of a SHA-256."""
        found = hashlib.sha256()
        for sentence, graph in self.graphs.items():
            found.update(f"{sentence}\t{graph}\n".encode())
        return found.hexdigest()[:16]


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


class ReadSentences(NamedTuple):
    """Sentences as numbers, and a graph over the words of each."""

    tokens: TokenBatch
    graphs: list[RoleGraph]


def read_sentences(
    tokenizer: TextTokenizer | None,
    sentences: Sequence[str],
    graphs: SentenceGraphs | None = None,
    *,
    unknown: Literal["error", "allow"] = "error",
) -> ReadSentences:
    """The tokens and graphs of ``sentences``.

    With ``graphs`` they are taken as they stand, since graphs point to words by their places. Without, they are given
    the spelling of the vocabulary (:meth:`~vse.inputs.tokenizer.TextTokenizer.respell`) and parsed by rules.
    ``unknown`` is that of :func:`vse.models.encode.encode_texts`.
    """
    check_choice("unknown", unknown, ("error", "allow"))
    if isinstance(sentences, str) or not isinstance(sentences, Iterable):
        raise InputError(f"sentences is {sentences!r:.60}, expected a list of texts: put a single one into a list")
    if tokenizer is None:
        raise InputError("this model has no vocabulary and cannot read text: save it with its tokenizer")
    texts = list(sentences) if graphs is not None else tokenizer.respell(list(sentences))
    batch = tokenizer.encode(texts)
    if unknown == "error":
        check_known(batch, texts, tokenizer)
    if graphs is None:
        graphs = SentenceGraphs.of(texts, limit=tokenizer.max_length)
    return ReadSentences(batch, [graphs.over(text, int(n)) for text, n in zip(texts, batch.lengths, strict=True)])
