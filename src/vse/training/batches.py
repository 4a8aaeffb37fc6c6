"""The batches of an epoch: their samples and arrays, prefetched by threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse._util.prefetch import prefetch
from vse.data import CaptionedImages, FeatureRows, VideoFrames
from vse.errors import InputError
from vse.hgr.graphs import GraphBatch, RoleGraph
from vse.inputs.preprocessing import ImagePreprocessing, load_pixels
from vse.inputs.tokenizer import TextTokenizer
from vse.training.augmentation import TextAugmentation, image_elements
from vse.training.keyed import Purpose, keyed
from vse.training.mining import HardNegatives
from vse.training.recipe import AugmentationRecipe

CHUNK = 4096


@dataclass(frozen=True, eq=False)
class TokenStore:
    """Tokens of all captions in one flat array: caption i is ``tokens[starts[i]:starts[i + 1]]``.

    ``words`` is the word of its caption that each token belongs to. The array is flat since padding to the longest
    caption would multiply its size.
    """

    tokens: NDArray[np.int32]
    words: NDArray[np.int32]
    starts: NDArray[np.int64]

    @classmethod
    def build(cls, captions: Sequence[str], tokenizer: TextTokenizer) -> TokenStore:
        """Tokenize ``captions`` in chunks."""
        tokens, words, lengths = [], [], []
        for first in range(0, len(captions), CHUNK):
            batch = tokenizer.encode(captions[first : first + CHUNK], first=first)
            inside = np.arange(batch.tokens.shape[1]) < batch.lengths[:, None]
            tokens.append(batch.tokens[inside].astype(np.int32))
            words.append(batch.words[inside].astype(np.int32))
            lengths.append(batch.lengths)
        starts = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
        return cls(np.concatenate(tokens), np.concatenate(words), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def caption(self, index: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return tokens and words of one caption, ``(L,)`` each."""
        span = slice(self.starts[index], self.starts[index + 1])
        return self.tokens[span], self.words[span]


Samples = NDArray[np.int64]
AHEAD = 2  # batches that are prefetched while one is computed


@dataclass(frozen=True)
class Batch:
    """B pairs of an image and a caption.

    Attributes:
        images: pixels ``(B, 3, H, W)``, or features ``(B, N, F)``, padded.
        lengths: the number of features of each image; None if all have N.
        mask: ``(B, cells)``, which cells of an image are kept after the backbone; None if all are.
        tokens: ``(B, L)``, padded.
        token_lengths: the number of tokens of each caption. With negatives, images and tokens have three rows for each
            pair: itself, its caption with a wrong image, its image with a wrong caption.
        image_ids: the image of each pair.
        samples: the caption of each pair.
        graphs: role graphs, for models that read them.
    """

    images: NDArray[Any]
    lengths: NDArray[np.int64] | None
    mask: NDArray[np.bool_] | None
    tokens: NDArray[np.int64]
    token_lengths: NDArray[np.int64]
    image_ids: NDArray[np.int64]
    samples: Samples
    graphs: GraphBatch | None = None

    def __len__(self) -> int:
        return len(self.samples)


class TrainingPairs:
    """Captions with their images, augmented with random numbers that are keyed by (seed, epoch, sample).

    A sample is the index of a caption.

    Args:
        data: the training split.
        tokens: of its captions.
        text: augments tokens.
        recipe: the augmentation.
        seed: of the run.
        preprocessing: of images; None for features.
        cells: the number of grid cells or patches of an image; None for features, and where none are pooled.
        graphs: the role graph of each caption, for models that read them.
        negatives: wrong images and captions for each pair, for a model that scores them.
    """

    def __init__(
        self,
        data: CaptionedImages,
        tokens: TokenStore,
        text: TextAugmentation,
        recipe: AugmentationRecipe,
        *,
        seed: int,
        preprocessing: ImagePreprocessing | None = None,
        cells: int | None = None,
        graphs: Sequence[RoleGraph] | None = None,
        negatives: HardNegatives | None = None,
    ) -> None:
        self.data = data
        self.seed = seed
        self._tokens = tokens
        self._text = text
        self._recipe = recipe
        self._preprocessing = preprocessing
        self._cells = cells
        self._graphs = graphs
        self._negatives = negatives
        self._max_frames = int(data.images.sizes.max()) if isinstance(data.images, VideoFrames) else 0
        self._keep = image_elements(recipe.image, grid=preprocessing is not None)

    def order(self, epoch: int, captions_per_image: int | None = None) -> Samples:
        """Return the shuffled samples of an epoch: all captions, or ``captions_per_image`` drawn for each image."""
        owners = self.data.caption_to_image
        samples: Samples = np.arange(len(owners), dtype=np.int64)
        if captions_per_image is not None:
            draw = keyed(self.seed, epoch, Purpose.CAPTIONS).random(len(owners))
            sorted_by_image = np.lexsort((draw, owners))
            counts = np.bincount(owners)
            place = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
            samples = np.sort(sorted_by_image[place < captions_per_image])
        return keyed(self.seed, epoch, Purpose.ORDER).permutation(samples)

    def batch(self, epoch: int, samples: Samples) -> Batch:
        """Return the arrays of samples."""
        owners = self.data.caption_to_image[samples]
        if self._negatives is not None:
            return self._with_negatives(epoch, samples, owners, self._negatives)
        tokens, token_lengths = self._captions(epoch, samples)
        if isinstance(self.data.images, FeatureRows):
            images, lengths = self._features(epoch, samples, owners, self.data.images)
            return Batch(images, lengths, None, tokens, token_lengths, owners, samples)
        if isinstance(self.data.images, VideoFrames):
            graphs = self._role_graphs(samples, tokens.shape[1])
            images, lengths = self._frames(epoch, samples, owners, self.data.images)
            return Batch(images, lengths, None, tokens, token_lengths, owners, samples, graphs)
        images, mask = self._pixels(epoch, samples, owners)
        return Batch(images, None, mask, tokens, token_lengths, owners, samples)

    def _with_negatives(self, epoch: int, samples: Samples, owners: Samples, negatives: HardNegatives) -> Batch:
        """Return three rows for each sample: the pair, its caption with a wrong image, its image with a wrong caption.

        The rows of one caption differ from those of the same caption in another sample: elements are dropped by sample.
        """
        if not isinstance(self.data.images, FeatureRows):
            raise InputError("this model takes features of images: set data.features, or data with features")
        wrong_images, wrong_captions = negatives.draw(self.seed, epoch, samples, owners)
        pair_owners = np.stack((owners, wrong_images, owners), axis=1).ravel()
        pair_captions = np.stack((samples, samples, wrong_captions), axis=1).ravel()
        images, lengths = self._features(epoch, np.repeat(samples, 3), pair_owners, self.data.images)
        tokens, token_lengths = self._captions(epoch, pair_captions)
        return Batch(images, lengths, None, tokens, token_lengths, owners, samples)

    def _captions(self, epoch: int, samples: Samples) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        captions = []
        for sample in samples.tolist():
            tokens, words = self._tokens.caption(sample)
            captions.append(self._text(tokens, words, keyed(self.seed, epoch, Purpose.TEXT_ELEMENTS, sample)))
        lengths = np.array([len(caption) for caption in captions], dtype=np.int64)
        padded = np.zeros((len(captions), int(lengths.max())), dtype=np.int64)
        for row, caption in zip(padded, captions, strict=True):
            row[: len(caption)] = caption
        return padded, lengths

    def _features(
        self, epoch: int, samples: Samples, owners: Samples, rows: FeatureRows
    ) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
        """Return the features that are kept, in their stored type, padded to the largest set."""
        count = rows.regions
        sources = rows.rows[owners]
        if self._keep is None:
            return rows.stored(sources), None
        kept = self._kept(epoch, samples, count)
        lengths = kept.sum(axis=1)
        images = np.zeros((len(samples), int(lengths.max()), rows.dim), dtype=rows.dtype)
        for image, source, chosen, length in zip(images, sources, kept, lengths, strict=True):
            image[:length] = rows.stored(source)[chosen]
        return images, lengths

    def _frames(
        self, epoch: int, samples: Samples, owners: Samples, videos: VideoFrames
    ) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
        """Return the frames that are kept, in their stored type, padded to the longest video of the split.

        Not to the longest of the batch: micro batches and processes would differ in shape.
        """
        keep, limit = self._keep, self._max_frames
        sets = [videos.stored(owner) for owner in owners.tolist()]
        if keep is not None:
            rate = self._recipe.rate
            draws = (keyed(self.seed, epoch, Purpose.IMAGE_ELEMENTS, sample) for sample in samples.tolist())
            sets = [frames[keep(len(frames), rate, draw)] for frames, draw in zip(sets, draws, strict=True)]
        lengths = np.array([len(frames) for frames in sets], dtype=np.int64)
        images = np.zeros((len(samples), limit, videos.dim), dtype=sets[0].dtype)
        for image, frames in zip(images, sets, strict=True):
            image[: len(frames)] = frames
        return images, None if (lengths == limit).all() else lengths

    def _role_graphs(self, samples: Samples, length: int) -> GraphBatch | None:
        if self._graphs is None:
            return None
        return GraphBatch.of([self._graphs[sample] for sample in samples.tolist()], length)

    def _pixels(
        self, epoch: int, samples: Samples, owners: Samples
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_] | None]:
        how = self._preprocessing
        if how is None:
            raise InputError("this model takes features and the data has images: set data.features, or a grid model")
        views = self._recipe.views
        pixels = [
            load_pixels(
                self.data.images[owner],
                how,
                augment=keyed(self.seed, epoch, Purpose.VIEW, sample) if views else None,
            )
            for sample, owner in zip(samples.tolist(), owners.tolist(), strict=True)
        ]
        whole = self._keep is None or self._cells is None
        return np.stack(pixels), None if whole else self._kept(epoch, samples, self._cells or 0)

    def _kept(self, epoch: int, samples: Samples, count: int) -> NDArray[np.bool_]:
        keep = self._keep
        if keep is None:
            return np.ones((len(samples), count), dtype=np.bool_)
        rate = self._recipe.rate
        return np.stack(
            [keep(count, rate, keyed(self.seed, epoch, Purpose.IMAGE_ELEMENTS, sample)) for sample in samples.tolist()]
        )


def prefetch_batches(
    make: Callable[[Samples], Batch], parts: Sequence[Samples], readers: int
) -> Iterator[tuple[Batch, float]]:
    """Yield ``make(part)`` for every part in order, prefetched by threads, with the seconds waited for it."""
    window = AHEAD + readers - 1
    with closing(prefetch(make, parts, workers=readers, window=window, name="vse-reader")) as batches:
        for _ in parts:
            began = time.perf_counter()
            _, batch = next(batches)
            yield batch, time.perf_counter() - began
