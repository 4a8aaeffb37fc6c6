"""Modules for sentence-transformers: GPO as the pooling of a model, and a vse model as a whole one.

>>> from sentence_transformers import SentenceTransformer  # doctest: +SKIP
>>> from sentence_transformers.sentence_transformer.modules import Transformer  # doctest: +SKIP
>>> words = Transformer("bert-base-uncased")  # doctest: +SKIP
>>> model = SentenceTransformer(modules=[words, GPOPooling(words.get_embedding_dimension())])  # doctest: +SKIP

Both are saved in ``modules.json`` by the path of their class. sentence-transformers loads classes of other packages
only with ``trust_remote_code=True``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vse.encoders.third_party import repair_torchvision
from vse.errors import require

repair_torchvision()  # before the first import of what loads transformers
require("sentence_transformers", extra="adapters", purpose="vse.adapters.sentence_transformers")

from sentence_transformers.base.modules import InputModule, Module  # noqa: E402

from vse.adapters.evaluation import encode_any_text  # noqa: E402
from vse.models.sources import model_folder  # noqa: E402
from vse.pooling import create_pooling  # noqa: E402

COPY = "model"
"""Where a saved :class:`VSEEncoder` keeps its model, in its own folder."""


def _hub_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: options[key] for key in ("token", "cache_folder", "revision", "local_files_only") if key in options}


class GPOPooling(Module):
    """Pool token embeddings with a learned pooling, in place of sentence-transformers' own ``Pooling``.

    Args:
        embedding_dimension: The width of token embeddings.
        pooling: The name of a pooling, see :func:`vse.pooling.list_poolings`.
        options: Its options.

    Example:
        >>> GPOPooling(384, options={"start": "average"}).get_embedding_dimension()
        384
    """

    config_keys = ["embedding_dimension", "pooling", "options"]  # noqa: RUF012 - as the base class declares it

    def __init__(
        self, embedding_dimension: int, pooling: str = "gpo", options: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.embedding_dimension = embedding_dimension
        self.pooling, self.options = pooling, dict(options or {})
        self.pool = create_pooling(pooling, **self.options)

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add ``sentence_embedding (B, D)``, pooled from ``token_embeddings (B, L, D)``."""
        pooled: Tensor = self.pool(features["token_embeddings"], attention_mask=features["attention_mask"])
        return {**features, "sentence_embedding": pooled}

    def get_embedding_dimension(self) -> int:
        """Return the width of sentence embeddings."""
        return self.embedding_dimension

    def save(self, output_path: str, *_: Any, safe_serialization: bool = True, **__: Any) -> None:
        """Write ``config.json`` and the weights, if there are any."""
        self.save_config(output_path)
        if any(True for _ in self.parameters()):
            self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(  # type: ignore[override]  # passes on what it is given
        cls, model_name_or_path: str, subfolder: str = "", **options: Any
    ) -> GPOPooling:
        """Read what :meth:`save` wrote."""
        hub = _hub_options(options)
        module = cls(**cls.load_config(model_name_or_path, subfolder=subfolder, **hub))
        if any(True for _ in module.parameters()):
            cls.load_torch_weights(model_name_or_path, subfolder=subfolder, model=module, **hub)
        return module


class VSEEncoder(InputModule):
    """A vse model (torch, ONNX or the bundled one) as the only module of a ``SentenceTransformer``.

    A ``str`` is a text; everything else is an image: a ``Path``, a PIL image, an array. Embeddings are those of
    ``encode_texts`` and ``encode_images``; there is no gradient through them.

    Args:
        source: What :func:`vse.load` accepts, such as ``"photo"`` or a folder.

    Example:
        >>> model = SentenceTransformer(modules=[VSEEncoder("photo")])  # doctest: +SKIP
        >>> model.similarity(model.encode(["a dog"]), model.encode([image]))  # doctest: +SKIP
    """

    config_keys = ["source"]  # noqa: RUF012
    config_file_name = "vse_encoder.json"

    def __init__(self, source: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        import vse

        self.source = str(source)
        self.model: Any = vse.load(self.source)
        self.register_buffer("_place", torch.zeros(()), persistent=False)  # sentence-transformers asks for a device

    @property
    def modalities(self) -> list[str]:  # type: ignore[override]
        """What it embeds."""
        return ["text", "image"]

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **_: Any) -> dict[str, Any]:
        """Keep the inputs as they are: the model tokenizes texts and reads images itself."""
        return {"inputs": [(prompt or "") + each if isinstance(each, str) else each for each in inputs]}

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add ``sentence_embedding (B, D)``."""
        inputs = list(features["inputs"])
        embeddings = torch.empty(len(inputs), self.model.embed_size)
        for texts, encode in ((False, self.model.encode_images), (True, partial(encode_any_text, self.model))):
            rows = [row for row, each in enumerate(inputs) if isinstance(each, str) is texts]
            if rows:
                embeddings[rows] = torch.from_numpy(encode([inputs[row] for row in rows]))
        return {**features, "sentence_embedding": embeddings}

    def get_embedding_dimension(self) -> int:
        """Return the width of embeddings."""
        return int(self.model.embed_size)

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Copy the model's folder to ``output_path/model``: what is saved can be moved and needs no other files."""
        source, copy = model_folder(self.source).resolve(), Path(output_path) / COPY
        if source != copy.resolve():
            if copy.exists():
                shutil.rmtree(copy)
            shutil.copytree(source, copy)
        (Path(output_path) / self.config_file_name).write_text(json.dumps({"source": COPY}) + "\n", encoding="utf-8")

    @classmethod
    def load(  # type: ignore[override]  # passes on what it is given
        cls, model_name_or_path: str, subfolder: str = "", **options: Any
    ) -> VSEEncoder:
        """Read what :meth:`save` wrote; a source outside the folder is what :func:`vse.load` accepts."""
        hub = _hub_options(options)
        source = cls.load_config(model_name_or_path, subfolder=subfolder, **hub)["source"]
        folder = cls.load_dir_path(model_name_or_path, subfolder=subfolder, **hub)
        inside = Path(folder or "") / source
        return cls(str(inside) if inside.is_dir() else source)
