"""The model whose vectors a collection holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vse.errors import InputError
from vse.index.collection import CollectionInfo
from vse.index.refusal import other_model
from vse.shipped import named_place, place_of

if TYPE_CHECKING:
    from vse.index.query import Model


def model_of(info: CollectionInfo, given: str | None = None) -> Model:
    """Loaded from where it was when indexing, unless it is ``given``; another model than that is an error."""
    from vse.loading import load_towers

    source = given or info.model_source
    try:
        model = load_towers(model_place(info, given))
    except InputError as error:
        if given is not None:
            raise
        raise InputError(f"the model of {info.where} cannot be loaded ({error}): name it with --model") from error
    if model.fingerprint() != info.model:
        raise other_model(info.where, info.model, info.model_source, model.fingerprint(), source)
    return model


def model_place(info: CollectionInfo, given: str | None = None) -> str:
    """The folder or hub id of the model that is ``given``, or else of the one that was used when indexing."""
    return named_place(given) if given else place_of(info.model_source)
