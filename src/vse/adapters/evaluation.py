"""Any vse model in CLIP_benchmark and in MTEB / MIEB.

The wrappers hand over embeddings and leave ranking to those libraries. They count a query as found when a right
candidate is among the first k, as ``vse eval`` does; among equal scores, ``vse eval`` puts wrong candidates first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import vse
from vse.data import CaptionedImages
from vse.encoders.third_party import repair_torchvision
from vse.errors import InputError, require
from vse.inputs.preprocessing import load_pixels


def _loaded(model: Any) -> Any:
    return vse.load(fspath(model)) if isinstance(model, str | PathLike) else model


class CLIPBenchmarkModel:
    """A model with ``encode_image`` and ``encode_text``, as CLIP_benchmark's metrics call it.

    Args:
        model: A loaded model, or what :func:`vse.load` accepts.

    Attributes:
        transform: For the dataset: an image file or PIL image to pixels ``(3, H, W)``.
        tokenizer: For the metric: texts to token ids.

    Example:
        >>> wrapped = CLIPBenchmarkModel("photo")  # doctest: +SKIP
        >>> evaluate(wrapped, loader, wrapped.tokenizer, "cpu", amp=False, recall_k_list=[1, 5, 10])  # doctest: +SKIP
    """

    def __init__(self, model: Any) -> None:
        self.model = _loaded(model)
        if self.model.preprocessing is None or self.model.tokenizer is None:
            raise InputError("CLIP_benchmark needs a model that reads images and texts, not features or token ids")

    @property
    def transform(self) -> Callable[[Any], Tensor]:
        """Read an image as the model takes it."""
        how = self.model.preprocessing
        return lambda image: torch.from_numpy(np.ascontiguousarray(load_pixels(image, how)))

    def tokenizer(self, texts: Sequence[str]) -> Tensor:
        """Return padded token ids ``(n, L)``; -1 pads."""
        batch = self.model.tokenizer.encode(list(texts))
        padding = np.arange(batch.tokens.shape[1]) >= batch.lengths[:, None]
        return torch.from_numpy(np.where(padding, PADDING, batch.tokens))

    def encode_image(self, pixels: Tensor) -> Tensor:
        """Return embeddings ``(B, D)``, on the device of the pixels."""
        embeddings = self.model.embed_images(pixels.cpu().numpy())
        return torch.from_numpy(np.asarray(embeddings)).to(pixels.device)

    def encode_text(self, tokens: Tensor) -> Tensor:
        """Return embeddings ``(B, D)`` of what :meth:`tokenizer` returned."""
        read = tokens.cpu()
        lengths = (read != PADDING).sum(dim=1).numpy()
        ids = read.clamp(min=0).numpy()[:, : int(lengths.max())]
        return torch.from_numpy(np.asarray(self.model.embed_tokens(ids, lengths))).to(tokens.device)


PADDING = -1


def retrieval_batches(
    data: CaptionedImages, transform: Callable[[Any], Tensor], batch_size: int = 16
) -> Iterable[tuple[Tensor, list[list[str]]]]:
    """Yield batches of images and the captions of each, as CLIP_benchmark's retrieval metric reads them."""
    captions: list[list[str]] = [[] for _ in range(len(data.images))]
    for caption, owner in zip(data.captions, data.caption_to_image.tolist(), strict=True):
        captions[owner].append(caption)
    for start in range(0, len(data.images), batch_size):
        numbers = range(start, min(start + batch_size, len(data.images)))
        yield torch.stack([transform(data.images[number]) for number in numbers]), [captions[n] for n in numbers]


def mteb_encoder(model: Any, name: str = "vse/model") -> Any:
    """Return a model as an MTEB encoder, for its text tasks and the image–text tasks of MIEB.

    Args:
        model: A loaded model, or what :func:`vse.load` accepts.
        name: How results name it.

    Example:
        >>> mteb.evaluate(mteb_encoder("photo"), tasks)  # doctest: +SKIP
    """
    repair_torchvision()  # MTEB imports sentence-transformers
    mteb = require("mteb", extra="mteb", purpose="an MTEB encoder")
    loaded = _loaded(model)

    class VSEEncoder:
        """Embeds the texts and images of MTEB's batches."""

        mteb_model_meta = mteb.models.ModelMeta.create_empty(
            {"name": name, "revision": loaded.fingerprint(), "modalities": ["text", "image"]}
        )

        def encode(self, inputs: Iterable[Mapping[str, Any]], **_: Any) -> NDArray[np.float32]:
            return np.concatenate([embed_batch(loaded, batch) for batch in inputs])

        def similarity(self, first: Any, second: Any) -> Any:
            return torch.as_tensor(first) @ torch.as_tensor(second).T

        def similarity_pairwise(self, first: Any, second: Any) -> Any:
            return (torch.as_tensor(first) * torch.as_tensor(second)).sum(dim=1)

    return VSEEncoder()


def embed_batch(model: Any, batch: Mapping[str, Any]) -> NDArray[np.float32]:
    """Return the embeddings of a batch with ``image`` or ``text``; the normalised mean of both if it has both."""
    parts = []
    if "image" in batch:
        parts.append(np.asarray(model.encode_images([_as_file(image) for image in batch["image"]])))
    if "text" in batch:
        parts.append(encode_any_text(model, batch["text"]))
    if not parts:
        raise InputError(f"a batch of {', '.join(batch) or 'nothing'}: expected 'image' or 'text'")
    mean = np.mean(parts, axis=0, dtype=np.float32)
    found: NDArray[np.float32] = mean / np.linalg.norm(mean, axis=1, keepdims=True).clip(min=1e-12)
    return found


def encode_any_text(model: Any, texts: Iterable[str]) -> NDArray[np.float32]:
    """Return the embeddings of texts as other libraries pass them: blank ones, or of unknown words, do not end it."""
    return np.asarray(model.encode_texts([text if text.strip() else "." for text in texts], unknown="allow"))


def _as_file(image: Any) -> Any:
    """PIL images in other modes are converted; arrays and paths stay."""
    return image.convert("RGB") if getattr(image, "mode", "RGB") != "RGB" else image
