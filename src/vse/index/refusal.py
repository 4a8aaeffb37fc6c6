"""Why a model and a collection do not go together, and the command that helps."""

from __future__ import annotations

import shlex

from vse.errors import InputError


def other_model(where: str, held: str, held_source: str, given: str, given_source: str | None = None) -> InputError:
    """The error for vectors of two models, which cannot be compared.

    ``held`` is the fingerprint of the model whose vectors the collection at ``where`` holds, ``given`` that of the one
    it was opened with, and the sources are where the two were found.
    """
    command = f"vse collection upgrade {shlex.quote(where)} --model {shlex.quote(given_source or 'MODEL')}"
    return InputError(
        f"{where} holds vectors of model {held} ({held_source}), not of {given}: use that model, or encode all files "
        f"anew: {command}"
    )
