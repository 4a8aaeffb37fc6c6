"""Helpers for the upgrade tests: a second model, a counting one, inspection of collections."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from tests.index.pipeline.support import model, new_collection
from tests.support_models import bigru_config, grid_config, word_tokenizer

from vse.index.pipeline import index_folder
from vse.index.store import EmbeddedCollection
from vse.models.config import ModelConfig
from vse.models.vse_model import VSEModel

OTHER_SIZE = 24


@functools.cache
def other(seed: int = 1) -> VSEModel:
    """Return a model with other weights and more dimensions."""
    config = ModelConfig(embed_size=OTHER_SIZE, image=grid_config(), text=bigru_config())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return VSEModel.build(config, word_tokenizer()).eval()


class Counting:
    """A model that counts the images it encodes; ``before`` is called with the count before each batch."""

    def __init__(self, wrapped: VSEModel, before: Callable[[int], None] | None = None) -> None:
        self.images = 0
        self._model, self._before = wrapped, before

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    def embed_images(self, batch: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
        if self._before is not None:
            self._before(self.images)
        self.images += len(batch)
        return self._model.embed_images(batch, lengths)


def filled(folder: Path, *roots: Path) -> EmbeddedCollection:
    """Return a new collection of these folders, open for writing."""
    collection = new_collection(folder)
    for root in roots:
        index_folder(collection, model(), root)
    return collection


def contents(collection: EmbeddedCollection) -> dict[tuple[str, str, float | None], np.ndarray]:
    """Return the embeddings by root, path and start."""
    found = {}
    for ids, vectors in collection.all_vectors():
        for item, vector in zip(collection.items(ids.tolist()), vectors, strict=True):
            found[item.file.root, item.file.path, item.start] = vector
    return found


def assert_like_indexing_anew(found: EmbeddedCollection, scratch: Path) -> None:
    """Assert that files, embeddings, captions and their order equal those of a rebuilt collection."""
    with EmbeddedCollection.create(
        scratch, model=other().fingerprint(), model_source="other", dimensions=OTHER_SIZE
    ) as anew:
        for root in found.info().roots:
            index_folder(anew, other(), root)
        assert list(found.files()) == list(anew.files())
        expected = contents(anew)
        assert contents(found).keys() == expected.keys()
        for place, vector in contents(found).items():
            np.testing.assert_allclose(vector, expected[place], atol=1e-5)
        for text in ("snow", "a dog"):
            query = other().encode_texts([text])[0]
            ours, theirs = found.search_captions(query, 9), anew.search_captions(query, 9)
            assert sorted(caption for caption, *_ in ours) == sorted(caption for caption, *_ in theirs)
            np.testing.assert_allclose([s for *_, s in ours], [s for *_, s in theirs], atol=1e-5)
    assert found.verify().ok
