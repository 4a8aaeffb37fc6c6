"""Parse captions into role graphs by rules over word lists, for datasets without parsed captions.

A semantic role labeller is a network of hundreds of megabytes to download. Captions are short and simple, and a few
rules find their verbs and noun phrases: ``benchmarks/role_parser.py`` measures how well. The roles are guesses: the
phrase before an active verb is ARG0, the one after it ARG1, and a preposition decides the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vse.data.roles.phrases import Argument, Phrase, find_arguments, find_phrases
from vse.data.roles.tags import tag_words

NOTE = "role graphs by the built-in rules of vse (English word lists, no model): verbs and phrases found, roles guessed"
MAX_WORDS = 512  # of a caption; models read 30, but later words decide to which verb a phrase belongs


@dataclass(frozen=True)
class RoleParse:
    """The parse of one caption; positions are indices into ``caption.split()``.

    Attributes:
        words: the words.
        verbs: the positions of the verbs without auxiliaries.
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
        """Return ``[nodes, edges]`` in the format of ``sent2rolegraph.augment.json``.

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
    """Return the verbs, noun phrases and roles in the first ``MAX_WORDS`` words of an English caption.

    The parse of a caption without words is empty.

    >>> [verb_or_phrase["words"] for verb_or_phrase in parse_roles("a dog runs").graph()[0].values()]
    [['a', 'dog', 'runs'], ['runs'], ['a', 'dog']]
    """
    words = tuple(caption.split()[:MAX_WORDS])
    tagging = tag_words(words)
    phrases = find_phrases(words, tagging)
    return RoleParse(
        words,
        tuple(i for i, tag in enumerate(tagging.tags) if tag == "verb"),
        tuple(sorted(head for phrase in phrases for head in phrase.heads)),
        tuple(phrases),
        tuple(find_arguments(words, tagging, phrases)),
    )
