"""The embeddings of one split by one model, in memory or as a folder of arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from vse._util.atomic import write_json
from vse._util.strict import Strict, parse, read_json
from vse.data.files import parse_json, read_text
from vse.data.npy import map_array
from vse.errors import InputError
from vse.evaluation.positives import indices
from vse.evaluation.published import published_traits
from vse.evaluation.scores import checked_vectors
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.data.dataset import CaptionedImages
    from vse.models.protocols import AnyModel, EmbeddingModel

HEADER = "embeddings.json"
IMAGES, TEXTS, OWNERS, CAPTIONS = "images.npy", "texts.npy", "text_to_image.npy", "captions.json"
UNIT = 1e-3  # tolerance of the length of an embedding


class EmbeddingsHeader(Strict):
    """Where embeddings come from."""

    format: Literal[1] = 1
    data: str
    split: str
    split_hash: str
    model: str
    fingerprint: str
    traits: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Embeddings of a split.

    Attributes:
        images: ``(I, D)``, unit vectors.
        texts: ``(T, D)``, unit vectors.
        text_to_image: the row of the image that each text describes.
        header: where the embeddings come from.
        captions: the texts, to compare with lists of ids; may be empty.
    """

    images: NDArray[np.float32]
    texts: NDArray[np.float32]
    text_to_image: NDArray[np.int64]
    header: EmbeddingsHeader
    captions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("images", "texts"):
            vectors = checked_vectors(name, getattr(self, name))
            object.__setattr__(self, name, vectors)
            if not len(vectors):
                raise InputError(f"{self.header.data}, split {self.header.split!r}: no {name}, nothing to evaluate")
            lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
            worst = int(np.abs(lengths - 1).argmax())
            if abs(lengths[worst] - 1) > UNIT:
                raise InputError(
                    f"{name}[{worst}] has length {lengths[worst]:.4g}: embeddings must be unit vectors; "
                    "divide each by its length"
                )
        object.__setattr__(self, "text_to_image", indices("text_to_image", self.text_to_image, len(self.images)))
        if len(self.text_to_image) != len(self.texts):
            raise InputError(
                f"{len(self.texts)} texts and {len(self.text_to_image)} entries of text_to_image: save them again"
            )

    def save(self, folder: Path) -> None:
        """Write the arrays, then the header, whose presence means that they are complete."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / HEADER).unlink(missing_ok=True)
        for name, array in ((IMAGES, self.images), (TEXTS, self.texts), (OWNERS, self.text_to_image)):
            np.save(folder / name, array, allow_pickle=False)
        write_json(folder / CAPTIONS, list(self.captions))
        write_json(folder / HEADER, self.header.model_dump(mode="json"))

    @classmethod
    def load(cls, folder: Path) -> Embeddings:
        """Read what :meth:`save` wrote, memory-mapped.

        Raises:
            InputError: the folder has no embeddings, or they are corrupt.
        """
        if not (folder / HEADER).is_file():
            raise InputError(f"{folder}: no saved embeddings here; 'vse eval MODEL --save-embeddings DIR' makes them")
        header = parse(EmbeddingsHeader, read_json(folder / HEADER), str(folder / HEADER))
        arrays = []
        for name in (IMAGES, TEXTS, OWNERS):
            try:
                arrays.append(map_array(folder / name))
            except (OSError, ValueError, EOFError) as error:
                raise InputError(
                    f"{folder / name}: not a complete array ({error}); save the embeddings again"
                ) from None
        captions = parse_json(read_text(folder / CAPTIONS), str(folder / CAPTIONS))
        if not isinstance(captions, list) or not all(isinstance(caption, str) for caption in captions):
            raise InputError(f"{folder / CAPTIONS}: expected a list of captions; save the embeddings again")
        return cls(arrays[0], arrays[1], arrays[2], header, tuple(captions))


def embed_split(
    model: EmbeddingModel,
    data: CaptionedImages,
    *,
    name: str,
    batch_size: int = 64,
    progress: ProgressReporter | None = None,
) -> Embeddings:
    """Encode every image and every caption of a split.

    Args:
        model: a model with embeddings.
        data: the split.
        name: of the model, for results.
        batch_size: images encoded at once.
        progress: shows the work.

    Raises:
        InputError: an image is corrupt, or the split has no captions.
    """
    reporter = progress or SilentProgress()
    if not data.captions:
        raise InputError(f"{data.name}, split {data.split!r}: no captions, so there is nothing to search with")
    images = model.encode_images(data.images, batch_size=batch_size, progress=reporter, on_bad="raise")
    texts = model.encode_texts(data.captions, progress=reporter, unknown="allow")
    header = EmbeddingsHeader(
        data=data.name,
        split=data.split,
        split_hash=split_hash(data),
        model=name,
        fingerprint=model.fingerprint(),
        traits=model_traits(model),
    )
    return Embeddings(images, texts, data.caption_to_image, header, data.captions)


def model_traits(model: AnyModel) -> dict[str, str]:
    """Return the traits of a model in the words of the published tables."""
    return published_traits(model.architecture())


def split_hash(data: CaptionedImages) -> str:
    """Return 16 digits of a SHA-256 over the captions and their images: equal hashes mean equal tests."""
    return captions_hash(data.captions, data.caption_to_image)


def captions_hash(captions: Sequence[str], owners: NDArray[Any]) -> str:
    """Return the hash of :func:`split_hash`; it does not depend on features or files."""
    digest = hashlib.sha256()
    for caption, owner in zip(captions, owners.tolist(), strict=True):
        digest.update(f"{owner}\t{caption}\n".encode())
    return digest.hexdigest()[:16]
