"""Names of files on one line."""

from __future__ import annotations

import re

_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """One line: what file names may contain and a terminal would obey, and bytes that are no text, as escapes.

    That are controls, ends of lines and paragraphs, and marks that turn the direction of writing. Anything else stays
    as it is, any kind of space and the joiner within an emoji too, so that a name can be copied.
    """
    return _UNSHOWN.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)
