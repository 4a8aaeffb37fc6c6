"""The contestants: VSE through the search of this package, and a cross-encoder that reads sentence and regions.

What does not depend on the sentence is precomputed for both: VSE has the embeddings of all images, the cross-encoder
their region features. All weights are random, since time does not depend on them.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor, nn

from vse.encoders.transformer_text import create_transformer
from vse.experiments.speed_profile import SENTENCES, Profile
from vse.index.item_search import search_encoded
from vse.index.query import as_query, encode_query
from vse.index.store import EmbeddedCollection
from vse.index.types import Collection, Entry, MediaFile, Moment
from vse.inputs.pretrained import wordpiece
from vse.inputs.tokenizer import TextTokenizer
from vse.inputs.vocabulary import Vocabulary
from vse.models.coefficients import shipped_coefficients
from vse.models.config import BiGRUConfig, ModelConfig, RegionConfig, TextConfig, TransformerConfig
from vse.models.vse_model import VSEModel

BLOCK = 5_000


class Gallery:
    """A growing collection in a temporary folder, removed at the end; 100,000 embeddings take 0.9 GB."""

    def __init__(self, dimensions: int, seed: int) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="vse-speed-"))
        self._dimensions = dimensions
        self._generator = np.random.default_rng(seed)
        self._size = 0
        self._open: EmbeddedCollection | None = None

    def of(self, size: int) -> EmbeddedCollection:
        """Return the collection with ``size`` items, open for reading; it only grows."""
        if self._open is not None and size == self._size:
            return self._open
        self._release()
        with self._writer() as writer:
            for start in range(self._size, size, BLOCK):
                vectors = self._generator.standard_normal((min(BLOCK, size - start), self._dimensions), np.float32)
                vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
                writer.add([_entry(start + row, vector) for row, vector in enumerate(vectors)])
        self._size = size
        self._open = EmbeddedCollection.open(self._place)
        return self._open

    def close(self) -> None:
        """Remove the collection."""
        self._release()
        shutil.rmtree(self._place)

    def _writer(self) -> EmbeddedCollection:
        if self._size:
            return EmbeddedCollection.open(self._place, write=True)
        return EmbeddedCollection.create(
            self._place, model="random", model_source="random vectors", dimensions=self._dimensions
        )

    def _release(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def _entry(number: int, vector: np.ndarray) -> Entry:
    name = f"{number:06}.jpg"
    return Entry(MediaFile("/images", name, "image", 1, 1, name, 640, 480), (Moment(vector),))


TUNING_ROUNDS = 2


class VSEContestant:
    """Search a gallery with a model: from the sentence to a page of results."""

    collection: Collection
    batch_size = None

    def __init__(self, model: VSEModel, gallery: Gallery, results: int) -> None:
        self.model, self._gallery, self._results = model, gallery, results

    def prepare(self, candidates: int) -> None:
        """Index ``candidates`` images."""
        self.collection = self._gallery.of(candidates)

    def answer(self, sentence: str) -> list[int]:
        """Return the ids of the best, found by comparing the sentence with every embedding."""
        # Not search(), which rejects a collection of random embeddings that two models share.
        query = encode_query(as_query(sentence), self.model)
        found = search_encoded(self.collection, query, self._results, coefficients=shipped_coefficients())
        return [result.id for result in found.results]


class CrossEncoder(nn.Module):
    """``tokens (L,)`` and ``features (B, R, F)`` → one transformer over L + R elements of each pair → scores ``(B,)``.

    As in V+L BERTs, regions are projected to the width of words and marked as the second segment; the score is read
    from the first token.
    """

    def __init__(self, profile: Profile) -> None:
        super().__init__()
        self.transformer = create_transformer(profile.bert())
        self.project = nn.Linear(profile.feature_size, profile.width)
        self.score = nn.Linear(profile.width, 1)

    def forward(self, tokens: Tensor, features: Tensor) -> Tensor:
        words = self.transformer.get_input_embeddings()(tokens).expand(len(features), -1, -1)  # (B, L, W)
        both = torch.cat([words, self.project(features)], dim=1)
        segments = torch.ones(both.shape[:2], dtype=torch.long)
        segments[:, : len(tokens)] = 0
        hidden = self.transformer(inputs_embeds=both, token_type_ids=segments).last_hidden_state  # (B, L + R, W)
        return self.score(hidden[:, 0]).squeeze(-1)


class CrossContestant:
    """The cross-encoder with the region features of all candidates in memory."""

    def __init__(self, encoder: CrossEncoder, tokenizer: TextTokenizer, profile: Profile, seed: int) -> None:
        self.encoder, self._tokenizer, self._profile, self._seed = encoder.eval(), tokenizer, profile, seed
        self.batch_size = profile.batches[0]
        self.features = torch.empty(0)

    def prepare(self, candidates: int) -> None:
        """Draw features ``(candidates, R, F)``; the first are equal for every number."""
        generator = torch.Generator().manual_seed(self._seed)
        shape = (candidates, self._profile.regions, self._profile.feature_size)
        self.features = torch.randn(shape, generator=generator)

    def tune(self) -> None:
        """Choose the fastest batch size; each is tried twice with the candidates of the largest."""
        self.prepare(max(self._profile.batches))
        best = dict.fromkeys(self._profile.batches, math.inf)
        for batch_size in (*self._profile.batches,) * TUNING_ROUNDS:
            self.batch_size = batch_size
            started = time.perf_counter()
            self.answer(SENTENCES[0])
            best[batch_size] = min(best[batch_size], time.perf_counter() - started)
        self.batch_size = min(best, key=lambda size: best[size])

    @torch.inference_mode()
    def answer(self, sentence: str) -> list[int]:
        """Return the numbers of the best candidates, after a forward pass over all of them."""
        tokens = torch.from_numpy(self._tokenizer.encode([sentence]).tokens[0])
        scores = torch.cat([self.encoder(tokens, part) for part in self.features.split(self.batch_size)])
        found: list[int] = scores.topk(min(self._profile.results, len(scores))).indices.tolist()
        return found


def build_vse(text: TextConfig, tokenizer: TextTokenizer, profile: Profile, seed: int) -> VSEModel:
    """Return the paper's model over region features, with random weights."""
    torch.manual_seed(seed)
    image = RegionConfig(feature_size=profile.feature_size)
    return VSEModel.build(ModelConfig(embed_size=profile.dimensions, image=image, text=text), tokenizer)


def build_vse_bert(profile: Profile, seed: int) -> VSEModel:
    """Return VSE with a BERT text encoder."""
    return build_vse(TransformerConfig(architecture=profile.bert()), bert_tokenizer(SENTENCES), profile, seed)


def build_vse_bigru(profile: Profile, seed: int) -> VSEModel:
    """Return VSE with a BiGRU text encoder."""
    vocabulary = Vocabulary.build(SENTENCES, min_count=1)
    return build_vse(BiGRUConfig(vocabulary_size=len(vocabulary)), vocabulary.tokenizer(), profile, seed)


def build_cross(profile: Profile, seed: int) -> CrossContestant:
    """Return the cross-encoder, its batch size chosen."""
    torch.manual_seed(seed)
    contestant = CrossContestant(CrossEncoder(profile), bert_tokenizer(SENTENCES), profile, seed)
    contestant.tune()
    return contestant


def bert_tokenizer(sentences: Sequence[str]) -> TextTokenizer:
    """Return BERT's tokenizer with the words of ``sentences`` as vocabulary, so that nothing is downloaded."""
    words = sorted({word for sentence in sentences for word in sentence.split()})
    with TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.txt"
        path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]), encoding="utf-8")
        return TextTokenizer(wordpiece(path, lowercase=True), max_length=64, kind="subwords")
