"""Sentences as people have them to what the text encoder reads: tokens, and a role graph over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from vse.encoding import check_choice, check_known
from vse.errors import InputError
from vse.hgr.role_graph import RoleGraph
from vse.hgr.sentence_graphs import SentenceGraphs
from vse.inputs.tokenizer import TextTokenizer, TokenBatch


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
    ``unknown`` is that of :func:`vse.encoding.encode_texts`.
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
