"""Load a public dual encoder (CLIP, SigLIP, open_clip, …) as a :class:`~vse.models.VSEModel`.

The result is an ordinary model: it is saved, exported, evaluated and fine-tuned like any other. Its configuration holds
the architecture, so that a saved copy needs no files of the original.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vse.encoders.dual import DualImageEncoder, DualTextEncoder, Library, dual_architecture, load_dual
from vse.errors import InputError
from vse.models.build import build_pooling
from vse.models.config import OWN, About, DualImageConfig, DualTextConfig, ModelConfig, PoolingConfig
from vse.models.fetch import hub_name
from vse.models.foreign import (
    Foreign,
    embedding_size,
    image_inputs,
    open_clip_network,
    padded_length,
    recognise_folder,
    text_inputs,
)
from vse.models.sources import load_torch, model_folder, recorded_runtime
from vse.models.vse_model import VSEModel
from vse.pooling import GPO

if TYPE_CHECKING:
    from vse.inputs.tokenizer import TextTokenizer


def foreign_model(
    folder: Path,
    found: Foreign,
    *,
    source: str,
    revision: str | None = None,
    device: str | torch.device = "cpu",
) -> VSEModel:
    """Load the torch model in a folder of published files.

    Args:
        folder: Its files.
        found: What they are, see :func:`vse.models.foreign.recognise_folder`.
        source: What the user calls it; recorded in the model.
        revision: Commit or tag on the hub; recorded in the model.
        device: Where to put it.

    Returns:
        The model, in evaluation mode.

    Raises:
        InputError: If files are missing or do not belong together.
    """
    how, tokenizer, size = image_inputs(folder, found), text_inputs(folder, found), embedding_size(found)
    library: Library = "open_clip" if found.kind == "open_clip" else "transformers"
    given = open_clip_network(found) if library == "open_clip" else found.config
    weights = [folder / name for name in found.needed if name.endswith(".safetensors")]
    network = load_dual(library, folder / found.root, given, weights)
    architecture = dual_architecture(library, network, given)
    image_encoder = DualImageEncoder(library, network)
    text_encoder = DualTextEncoder(library, network, padded_length(found, tokenizer), tokenizer.pad_id)
    if tokenizer.vocab_size > text_encoder.vocabulary_size:
        raise InputError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} tokens and the text tower "
            f"{text_encoder.vocabulary_size}: they belong to different models"
        )
    config = ModelConfig(
        embed_size=size,
        image=DualImageConfig(library=library, architecture=architecture, preprocessing=how.to_json()),
        text=DualTextConfig(
            library=library, architecture=architecture, pad_to=text_encoder.pad_to, pad_id=text_encoder.pad_id
        ),
        about=About(name=Path(source).name, source=source),
        foreign={"source": source, "revision": revision, "library": library, "model_type": found.model_type},
    )
    return VSEModel(image_encoder, text_encoder, config, tokenizer).to(device).eval()


def start_dual(source: str) -> VSEModel:
    """Load a dual encoder to fine-tune: a public one, or a saved one of ours.

    Raises:
        InputError: If it is another kind of model, or one that runs on ONNX Runtime and cannot be trained.
    """
    model = load_torch(source)
    if not isinstance(model.config.image, DualImageConfig):
        raise InputError(
            f"{source!r}: expected a public dual encoder for torch (CLIP, SigLIP, …) to fine-tune, which this is not"
        )
    return model


def start_tokenizer(source: str) -> TextTokenizer:
    """Return the tokenizer of what :func:`start_dual` loads, without its weights."""
    folder = model_folder(source, pulled=False)
    if recorded_runtime(folder) is None:
        found = recognise_folder(folder)
        if found is not None and found.pair is None:
            return text_inputs(folder, found)
    tokenizer = start_dual(source).tokenizer
    if tokenizer is None:
        raise InputError(f"{source!r}: the model has no tokenizer")
    return tokenizer


def base_repository(model: VSEModel, source: str) -> str | None:
    """Return the hub id of the public model that a dual encoder comes from; None if it came from a folder."""
    origin = str((model.config.foreign or {}).get("source", source))
    return None if Path(origin).expanduser().exists() else hub_name(origin)


def with_pooling(model: VSEModel, pooling: PoolingConfig) -> VSEModel:
    """Add a pooling over patch tokens to a dual encoder; its weight starts at 0, so that the model is unchanged.

    A GPO starts as the average.

    Raises:
        InputError: If the model is no dual encoder of transformers, or has another pooling over patch tokens already.
    """
    image = model.config.image
    if not isinstance(image, DualImageConfig) or not isinstance(model.image_encoder, DualImageEncoder):
        raise InputError("a pooling can be added to a public dual encoder (CLIP, SigLIP, …); this is another model")
    if pooling == image.pooling:
        return model
    if image.pooling.name != OWN:
        raise InputError(
            f"the model pools patches with {image.pooling.name!r} already, and {pooling.name!r} was asked for: name "
            "the same pooling, or start from the published model"
        )
    added: Any = build_pooling(pooling, model.embed_size)
    if isinstance(added, GPO):
        added.begin_as_average()
    encoder = DualImageEncoder.around(model.image_encoder, added)
    config = model.config.model_copy(update={"image": image.model_copy(update={"pooling": pooling})})
    return VSEModel(encoder, model.text_encoder, config, model.tokenizer)
