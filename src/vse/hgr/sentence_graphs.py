"""The role graphs of many sentences, each made once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from vse.data.video_graphs import role_graphs
from vse.data.video_words import WORD_LIMIT, video_words
from vse.errors import InputError
from vse.hgr.role_graph import RoleGraph


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
