"""Role graphs of captions without a model: rules over word lists, for data that comes without parsed captions.

A semantic role labeller is a network of hundreds of megabytes that has to be downloaded. Captions are short and plain,
and a few rules find their verbs and noun phrases: ``benchmarks/role_parser.py`` measures how well. The roles are
guesses: what stands before an active verb is ARG0, what stands behind it ARG1, and a preposition decides the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vse.data.roles.phrases import Argument, Phrase, find_arguments, find_phrases
from vse.data.roles.tags import tag_words

NOTE = "role graphs by the built-in rules of vse (English word lists, no model): verbs and phrases found, roles guessed"
MOST_WORDS = 512  # of a caption; models read 30, and what follows those decides to which verb a phrase belongs


@dataclass(frozen=True)
class RoleParse:
    """What the rules found in one caption; positions count the words of ``caption.split()`` from 0.

    Attributes:
        words: the words.
        verbs: the positions of the verbs, auxiliaries left out.
        nouns: the position of the last noun of every noun phrase.
        phrases: the noun phrases, prepositions included.
        arguments: which phrase belongs to which verb in which role.
    """

    words: tuple[str, ...]
    verbs: tuple[int, ...]
    nouns: tuple[int, ...]
    phrases: tuple[Phrase, ...]
    arguments: tuple[Argument, ...]

    def graph(self) -> list[Any]:
        """``[nodes, edges]`` in the shape of ``sent2rolegraph.augment.json``.

        Nodes are ``{"ROOT": {...}, "1": {"role", "spans", "words"}, ...}``, each verb followed by its phrases; edges
        are ``[verb node, phrase node, role]``. A phrase in two roles has two nodes; one that belongs to no verb has
        role NOUN and no edge, as in the published graphs of captions without a verb.
        """
        nodes: dict[str, dict[str, Any]] = {"ROOT": self._node("ROOT", range(len(self.words)))}
        edges: list[list[str]] = []
        numbers: dict[tuple[int, str], str] = {}
        for verb in self.verbs:
            verb_node = str(len(nodes))
            nodes[verb_node] = self._node("V", (verb,))
            for each in self.arguments:
                if each.verb != verb:
                    continue
                key = (each.phrase, each.role)
                if key not in numbers:
                    numbers[key] = str(len(nodes))
                    nodes[numbers[key]] = self._node(each.role, self._span(each.phrase))
                edges.append([verb_node, numbers[key], each.role])
        attached = {phrase for phrase, _ in numbers}
        for phrase in range(len(self.phrases)):
            if phrase not in attached:
                nodes[str(len(nodes))] = self._node("NOUN", self._span(phrase))
        return [nodes, edges]

    def _span(self, phrase: int) -> range:
        return range(self.phrases[phrase].start, self.phrases[phrase].end)

    def _node(self, role: str, span: Iterable[int]) -> dict[str, Any]:
        spans = list(span)
        return {"role": role, "spans": spans, "words": [self.words[i] for i in spans]}


def parse_roles(caption: str) -> RoleParse:
    """Verbs, noun phrases and roles of an English caption, of a long one those of its first ``MOST_WORDS`` words.

    One without words gives an empty parse.
    """
    words = tuple(caption.split()[:MOST_WORDS])
    tagging = tag_words(words)
    phrases = find_phrases(words, tagging)
    return RoleParse(
        words,
        tuple(i for i, tag in enumerate(tagging.tags) if tag == "verb"),
        tuple(sorted(head for phrase in phrases for head in phrase.heads)),
        tuple(phrases),
        tuple(find_arguments(words, tagging, phrases)),
    )
