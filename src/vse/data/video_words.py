"""The words of video captions: white space, at most thirty; what published captions need before that."""

from __future__ import annotations

from vse.inputs.plain_sentence import plain_sentence

__all__ = ["WORD_LIMIT", "plain_sentence", "video_words"]

WORD_LIMIT = 30


def video_words(caption: str, limit: int | None = WORD_LIMIT) -> list[str]:
    """The words of a caption, split at white space; those behind the ``limit`` are left out."""
    return caption.split()[:limit]
