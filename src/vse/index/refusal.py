"""Why a model and a collection do not go together, and the command that helps."""

from __future__ import annotations

import shlex

from vse.errors import InputError
from vse.shipped import NAMES


def other_model(where: str, held: str, held_source: str, given: str, given_source: str | None = None) -> InputError:
    """The error for vectors of two models, which cannot be compared.

    ``held`` is the fingerprint of the model whose vectors the collection at ``where`` holds, ``given`` that of the one
    it was opened with, and the sources are where the two were found.
    """
    command = f"vse collection upgrade {shlex.quote(where)} --model {shlex.quote(given_source or 'MODEL')}"
    if given_source == held_source and held_source in NAMES:  # that model came with another version, and went with it
        return InputError(
            f"{where} holds vectors of model {held}, and the {held_source!r} model of this version of vse is {given}: "
            f"encode all files anew: {command}"
        )
    return InputError(
        f"{where} holds vectors of model {held} ({held_source}), not of {given}: use that model, or encode all files "
        f"anew: {command}"
    )
