"""What is kept of a video and of a sentence to compare them: one vector of the whole and a set for each finer level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

from torch import Tensor, cat
from torch.nn.functional import pad

from vse.errors import InputError


@dataclass(frozen=True, eq=False)
class VideoFeatures:
    """V videos of F frames: ``whole (V, D)``, ``verb_frames`` and ``noun_frames (V, F, D)``, ``mask (V, F)``.

    Frames outside ``mask`` are zero.
    """

    whole: Tensor
    verb_frames: Tensor
    noun_frames: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return len(self.whole)

    def rows(self, part: slice) -> VideoFeatures:
        """Some of the videos, without a copy."""
        return _rows(self, part)


@dataclass(frozen=True, eq=False)
class SentenceFeatures:
    """T sentences: ``whole (T, D)``, ``verbs (T, 4, D)`` and ``nouns (T, 6, D)``, and which of these there are.

    Nodes outside ``verb_mask (T, 4)`` and ``noun_mask (T, 6)`` are zero.
    """

    whole: Tensor
    verbs: Tensor
    nouns: Tensor
    verb_mask: Tensor
    noun_mask: Tensor

    def __len__(self) -> int:
        return len(self.whole)

    def rows(self, part: slice) -> SentenceFeatures:
        """Some of the sentences, without a copy."""
        return _rows(self, part)


Features = TypeVar("Features", VideoFeatures, SentenceFeatures)


def join(parts: Sequence[Features]) -> Features:
    """Batches one after the other; sets of different sizes are padded to the largest."""
    if not parts:
        raise InputError("no features to join: encode at least one batch")
    return type(parts[0])(*(_joined([getattr(part, field.name) for part in parts]) for field in fields(parts[0])))


def _joined(tensors: list[Tensor]) -> Tensor:
    behind = tensors[0].dim() - 2
    if not behind and tensors[0].is_floating_point():  # vectors, not a mask of elements
        return cat(tensors)
    most = max(tensor.shape[1] for tensor in tensors)
    return cat([pad(tensor, (0, 0) * behind + (0, most - tensor.shape[1])) for tensor in tensors])


def _rows(features: Features, part: slice) -> Features:
    return type(features)(*(getattr(features, field.name)[part] for field in fields(features)))
