"""The names of roles."""

from __future__ import annotations

import pytest

from vse.hgr import ROLES, role_id


def test_the_order_is_that_of_the_released_embedding():
    """A role's number is its row in the checkpoints: the order is part of the format."""
    released = (
        "V ARG1 ARG0 ARG2 ARG3 ARG4 ARGM-LOC ARGM-MNR ARGM-TMP ARGM-DIR ARGM-ADV ARGM-PRP ARGM-PRD ARGM-COM ARGM-MOD"
    )
    assert (*released.split(), "NOUN") == ROLES
    assert [role_id(role) for role in ROLES] == list(range(16))


@pytest.mark.parametrize("prefix", ["C-", "R-"])
def test_continuations_and_references_are_folded(prefix):
    """``C-X`` and ``R-X`` are X, for each of the roles."""
    assert [role_id(prefix + role) for role in ROLES] == list(range(16))


@pytest.mark.parametrize("name", ["ARGM-NEG", "ARG5", "C-ARGM-NEG", "R-C-ARG1", "arg1", ""])
def test_an_unknown_role_is_a_noun(name):
    """Every name has a number; folding is once and not repeated."""
    assert role_id(name) == 15
