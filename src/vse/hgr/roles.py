"""The roles a phrase plays for its verb, after PropBank: the vocabulary of the role embedding."""

from __future__ import annotations

from typing import Final

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
