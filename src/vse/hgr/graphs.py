"""Role graphs of sentences (verbs, their arguments), and batches of them."""

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
"""The role of the whole sentence, which has no embedding."""
ROLES: Final = (
    *(VERB, "ARG1", "ARG0", "ARG2", "ARG3", "ARG4"),
    *("ARGM-LOC", "ARGM-MNR", "ARGM-TMP", "ARGM-DIR", "ARGM-ADV", "ARGM-PRP", "ARGM-PRD", "ARGM-COM", "ARGM-MOD"),
    NOUN,
)
"""In the order of the released implementation: the index of a role is its row in the embedding."""
FOLDED: Final = ("C-", "R-")  # continuations of a phrase, and references to one
_IDS = {prefix + role: number for number, role in enumerate(ROLES) for prefix in ("", *FOLDED)}


def role_id(name: str) -> int:
    """Return the index of a role; ``C-`` and ``R-`` are dropped, and an unknown role is a noun.

    >>> role_id("ARG0"), role_id("R-ARG0"), role_id("ARGM-NEG")
    (2, 2, 15)
    """
    return _IDS.get(name, _IDS[NOUN])


MAX_VERBS, MAX_NOUNS = 4, 6


@dataclass(frozen=True)
class Phrase:
    """Words of a sentence, as ascending positions, and the index of their role."""

    role: int
    words: tuple[int, ...]


@dataclass(frozen=True)
class RoleGraph:
    """Verbs, nouns and the edges ``(verb, noun)`` between them, for a sentence of ``n_words`` words.

    Positions count the words of the sentence split at whitespace, as the published files do; the first ``n_words`` are
    used. "Noun" means every phrase that is not a verb. The first ``MAX_VERBS`` and ``MAX_NOUNS`` of the file are kept.

    ``dropped`` counts nodes that are invalid or name no word of the sentence, ``surplus`` those beyond the limits:
    graphs that differ in them come from different files, with which a run does not resume.
    """

    n_words: int
    verbs: tuple[Phrase, ...] = ()
    nouns: tuple[Phrase, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    dropped: int = 0
    surplus: int = 0

    @classmethod
    def from_official(cls, entry: Any, n_words: int) -> RoleGraph:
        """Return the graph of an entry ``[nodes, edges]`` of ``sent2rolegraph.augment.json``.

        Args:
            entry: ``nodes`` maps names to ``{"role": "V", "spans": [4], "words": [...]}`` and ``edges`` lists
                ``[verb, noun, role]`` by these names. Edges that do not lead from a kept verb to a kept noun are
                skipped.
            n_words: the number of words to use.

        Raises:
            InputError: the entry is invalid, or there are no words.
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
            # "C-V", the second part of a verb, is among the nouns, as in the released implementation.
            kept, limit = (verbs, MAX_VERBS) if role == VERB else (nouns, MAX_NOUNS)
            if len(kept) == limit:
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
    """Return the name of a node's role, empty if it has none."""
    role = node.get("role") if isinstance(node, Mapping) else None
    return role if isinstance(role, str) else ""


def _words(spans: Any, n_words: int) -> tuple[int, ...]:
    """Return the valid positions, ascending; none if ``spans`` is not a list."""
    if not isinstance(spans, Sequence):
        return ()
    whole = {place for place in spans if isinstance(place, int) and not isinstance(place, bool)}
    return tuple(sorted(place for place in whole if 0 <= place < n_words))


def _edges(edges: Sequence[Any], verbs: Collection[str], nouns: Collection[str]) -> tuple[tuple[int, int], ...]:
    """Return pairs of indices without duplicates, in the order of the file."""
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
    """Role graphs by sentence; ``note`` says whether they are published or parsed by rules."""

    graphs: dict[str, RoleGraph] = field(repr=False)
    note: str

    @classmethod
    def of(cls, sentences: Iterable[str], folder: Path | None = None, *, limit: int = WORD_LIMIT) -> SentenceGraphs:
        """Return the graphs of sentences.

        Args:
            sentences: the texts.
            folder: holds the published file of role graphs, if there is one; other sentences are parsed by rules.
            limit: the number of words to use.

        Raises:
            InputError: a sentence has no words, or its graph is invalid.
        """
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
            raise InputError(
                f"no role graph of {sentence[:60]!r}: create graphs of all sentences with SentenceGraphs.of"
            )
        return found

    def over(self, sentence: str, words: int) -> RoleGraph:
        """Return the graph of a sentence; raise InputError if it is not over ``words`` words."""
        found = self[sentence]
        if found.n_words != words:
            raise InputError(
                f"{sentence[:60]!r}: its role graph is over {found.n_words} words and the model reads {words}: create "
                "graphs with SentenceGraphs.of and limit=, the tokenizer's max_length"
            )
        return found

    def digest(self) -> str:
        """Return a hash of the graphs, 16 digits of a SHA-256."""
        found = hashlib.sha256()
        for sentence, graph in self.graphs.items():
            found.update(f"{sentence}\t{graph}\n".encode())
        return found.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """B graphs over sentences padded to L words. Verbs come first, then nouns; a node without words is absent.

    ``verb_words (B, 4, L)`` and ``noun_words (B, 6, L)`` mark the words of each node, ``roles (B, 10)`` holds their
    roles (0 where there is no node), ``edges (B, 11, 11)`` from which others each node, the root first, receives: every
    verb from the root, a verb and its nouns from each other. A row of ``edges`` sums to 1, or is zero where a node
    receives nothing, as the root.
    """

    verb_words: NDArray[np.bool_]
    noun_words: NDArray[np.bool_]
    roles: NDArray[np.int64]
    edges: NDArray[np.float32]

    @classmethod
    def of(cls, graphs: Sequence[RoleGraph], length: int | None = None) -> GraphBatch:
        """Return the arrays of ``graphs``; ``length`` is L, the longest sentence's if it is not given."""
        longest = max((graph.n_words for graph in graphs), default=0)
        if length is None:
            length = longest
        if length < longest:
            raise InputError(f"graphs of up to {longest} words do not fit sentences padded to {length}")
        batch = cls(
            np.zeros((len(graphs), MAX_VERBS, length), dtype=np.bool_),
            np.zeros((len(graphs), MAX_NOUNS, length), dtype=np.bool_),
            np.zeros((len(graphs), MAX_VERBS + MAX_NOUNS), dtype=np.int64),
            np.zeros((len(graphs), 1 + MAX_VERBS + MAX_NOUNS, 1 + MAX_VERBS + MAX_NOUNS), dtype=np.float32),
        )
        for row, graph in enumerate(graphs):
            batch._fill(row, graph)
        return batch

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays by their names, which are the arguments of ``HGRModel.embed_sentences``."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _fill(self, row: int, graph: RoleGraph) -> None:
        for phrases, words, first in ((graph.verbs, self.verb_words, 0), (graph.nouns, self.noun_words, MAX_VERBS)):
            for number, phrase in enumerate(phrases):
                words[row, number, list(phrase.words)] = True
                self.roles[row, first + number] = phrase.role
        edges = self.edges[row]
        edges[1 : 1 + len(graph.verbs), 0] = 1
        for verb, noun in graph.edges:
            edges[1 + verb, 1 + MAX_VERBS + noun] = edges[1 + MAX_VERBS + noun, 1 + verb] = 1
        edges /= np.maximum(edges.sum(axis=1, keepdims=True), 1)


class ReadSentences(NamedTuple):
    """Sentences as tokens, and a graph over the words of each."""

    tokens: TokenBatch
    graphs: list[RoleGraph]


def read_sentences(
    tokenizer: TextTokenizer | None,
    sentences: Sequence[str],
    graphs: SentenceGraphs | None = None,
    *,
    unknown: Literal["error", "allow"] = "error",
) -> ReadSentences:
    """Return the tokens and graphs of sentences.

    Args:
        tokenizer: of the model.
        sentences: the texts.
        graphs: their role graphs; the texts are then used unchanged, since graphs refer to positions of words. Without
            graphs, the texts are spelled as the vocabulary
            (:meth:`~vse.inputs.tokenizer.TextTokenizer.respell`) and parsed by rules.
        unknown: whether a text without any known word is an error.

    Raises:
        InputError: a text is invalid, or the model has no tokenizer.
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
