"""Convert checkpoints of the released code: region or grid images × BiGRU or BERT text.

Every tensor is renamed, known to be unused, or an error. Sizes are read from the tensors and compared with the saved
options; the options provide what tensors cannot (ResNet layout, preprocessing, dataset).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vse.encoders.backbones.caffe_resnet import BLOCKS
from vse.errors import InputError, unknown_choice
from vse.models.checkpoint import SEQUENTIAL_NAMES, Checkpoint, read_checkpoint
from vse.models.config import (
    About,
    BackboneConfig,
    BiGRUConfig,
    GridConfig,
    ModelConfig,
    RegionConfig,
    Score,
    TransformerConfig,
)
from vse.models.hub import FILE_PREFIX, local_file, split_reference
from vse.models.storage import load_state
from vse.models.vse_model import VSEModel

if TYPE_CHECKING:
    from vse.inputs.tokenizer import TextTokenizer


DEPTHS = {"imagenet": 101, "imagenet_res50": 50, "imagenet_res152": 152}
USUAL_LAYOUT = ("wsl", "imagenet_resnext")
UNUSED = "fc."


def resnet_tensors(image: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Return the ResNet's tensors under their usual names; the copies in ``backbone.resnet.*`` must be equal."""
    prefix = "backbone.resnet."
    tensors = {name.removeprefix(prefix): value for name, value in image.items() if name.startswith(prefix)}
    copied = {name.removeprefix("backbone."): value for name, value in image.items() if not name.startswith(prefix)}
    for name, value in copied.items():
        start = next((start for start in SEQUENTIAL_NAMES if name.startswith(start)), None)
        if start is None:
            raise InputError(f"{where}: 'backbone.{name}' is not expected in a grid checkpoint")
        usual = SEQUENTIAL_NAMES[start] + name.removeprefix(start)
        if usual in tensors and not torch.equal(tensors[usual], value):
            raise InputError(f"{where}: 'backbone.{name}' and '{prefix}{usual}' should be the same tensor but differ")
        tensors.setdefault(usual, value)
    return {name: value for name, value in tensors.items() if not name.startswith(UNUSED)}


def backbone_config(source: str, tensors: Mapping[str, Tensor], where: str) -> BackboneConfig:
    """Return the configuration of the backbone ``backbone_source``, with the sizes of the tensors."""
    blocks = _blocks(tensors, where)
    if source in USUAL_LAYOUT or "wsl" in source:
        kernel = tensors["layer1.0.conv2.weight"].shape  # (groups × width, width, 3, 3)
        options: dict[str, Any] = {"layers": blocks, "cardinality": kernel[0] // kernel[1], "base_width": kernel[1]}
        return BackboneConfig(name="timm:resnext101_32x8d", options=options)
    detector = "detector" in source
    if not detector and source not in DEPTHS:
        raise InputError(
            f"{where}: {unknown_choice('backbone_source', source, ['detector', 'wsl', *DEPTHS, 'imagenet_resnext'])}"
        )
    depth = next((depth for depth, usual in BLOCKS.items() if list(usual) == blocks), None)
    if not detector and depth not in {None, DEPTHS[source]}:
        meant = f"backbone_source {source!r} means ResNet-{DEPTHS[source]}"
        raise InputError(f"{where}: {meant}, the tensors are those of ResNet-{depth}")
    options = {"blocks": blocks, "width": tensors["conv1.weight"].shape[0], "detector": detector}
    return BackboneConfig(name="caffe-resnet", options=options)


def _blocks(tensors: Mapping[str, Tensor], where: str) -> list[int]:
    counts = [0, 0, 0, 0]
    for name in tensors:
        match = re.match(r"layer([1-4])\.(\d+)\.", name)
        if match:
            stage = int(match[1]) - 1
            counts[stage] = max(counts[stage], int(match[2]) + 1)
    if sum(counts) > len(tensors):
        raise InputError(f"{where}: the names of the backbone's tensors are inconsistent: {counts} blocks")
    if any(t in tensors and tensors[t].dim() != 4 for t in ("conv1.weight", "layer1.0.conv2.weight")):
        raise InputError(f"{where}: the backbone's convolutions are not tensors of four dimensions")
    if min(counts) == 0 or "conv1.weight" not in tensors or "layer1.0.conv2.weight" not in tensors:
        raise InputError(f"{where}: the backbone is not a ResNet of four stages (blocks found: {counts})")
    return counts


State = dict[str, Tensor]
PAPER_SCALE = 2.0  # input_scale_factor of the paper: images of 512 × 512
BASE_SIDE = 256
LARGEST_SIDE = 10_000
REGION = {
    "fc.": "projection.fc.",
    "mlp.layers.0.": "projection.hidden.",
    "mlp.bns.0.": "projection.norm.",
    "mlp.layers.1.": "projection.out.",
    "gpool.": "pooling.",
}
GRID = {"image_encoder.fc.": "projection.fc.", "image_encoder.gpool.": "pooling."}
BIGRU = {"embed.": "embed.", "rnn.": "rnn.", "gpool.": "pooling."}
BERT = {"bert.": "transformer.", "linear.": "linear.", "gpool.": "pooling."}
# A second batch norm that the released MLP creates but never calls; an index that is not a parameter; BERT's pooler.
UNUSED_REGION = ("mlp.bns.1.",)
UNUSED_BERT = ("bert.embeddings.position_ids", "bert.pooler.")
HEAD_WIDTH = 64  # of every published BERT; the number of heads cannot be read off the tensors
NARROW_HEADS = 384  # MiniLM has this size but heads of 32


def load_official(
    path: str | Path,
    *,
    vocabulary: str | Path | None = None,
    tokenizer: str | Path | None = None,
) -> VSEModel:
    """Load a checkpoint of the released code, strictly, without executing anything in the file.

    Args:
        path: The checkpoint (.pth): a path, or a file on the hub as ``hub:OWNER/REPOSITORY[@REVISION]/PATH``.
        vocabulary: JSON vocabulary of a BiGRU checkpoint, given in the same ways.
        tokenizer: Folder or hub id of the tokenizer of a BERT checkpoint. Without a vocabulary or tokenizer the model
            encodes tokens but no texts.

    Returns:
        The model.

    Raises:
        InputError: If the file is not such a checkpoint or cannot be fetched, or tensors and options disagree.
    """
    given, path = str(path), local_file(path)
    vocabulary = None if vocabulary is None else local_file(vocabulary)
    checkpoint = read_checkpoint(path)
    where = str(path)
    for switch in ("no_imgnorm", "no_txtnorm"):
        if checkpoint.options.get(switch):
            raise InputError(f"{where}: trained with {switch}; models here are unit-norm, so its scores would change")
    image_state, image, size = _image(checkpoint, where)
    text_state, text, text_size = _text(checkpoint, where)
    if size != text_size:
        raise InputError(f"{where}: image embeddings have {size} dimensions, text embeddings {text_size}")
    _agree(where, checkpoint.options, "embed_size", size)
    config = ModelConfig(embed_size=size, image=image, text=text, about=_about(checkpoint, given, path))
    model = VSEModel.build(config, _tokenizer(text, vocabulary, tokenizer))
    load_state(model.image_encoder, image_state, f"{where} (image half)")
    load_state(model.text_encoder, text_state, f"{where} (text half)")
    return model.eval()


def _image(checkpoint: Checkpoint, where: str) -> tuple[State, RegionConfig | GridConfig, int]:
    state, options = checkpoint.image, checkpoint.options
    grid = any(name.startswith("backbone.") for name in state)  # the option precomp_enc_type adds nothing
    if grid:
        resnet = resnet_tensors({n: v for n, v in state.items() if n.startswith("backbone.")}, where)
        source = str(options.get("backbone_source", ""))
        backbone = backbone_config(source, resnet, where)
        head = _renamed({n: v for n, v in state.items() if not n.startswith("backbone.")}, GRID, where)
        weight = _shape(head, "projection.fc.weight", 2, where)
        side = _side(options, where)
        config = GridConfig(backbone=backbone, image_size=side, preprocessing=_exact(backbone, side))
        inner = "backbone.model." if backbone.name.startswith("timm:") else "backbone."
        return head | {inner + name: value for name, value in resnet.items()}, config, weight[0]
    if "mlp.layers.0.weight" in state and "fc.weight" in state:
        renamed = _renamed(state, REGION, where, UNUSED_REGION)
        size, features = _shape(renamed, "projection.fc.weight", 2, where)
        hidden = _shape(renamed, "projection.hidden.weight", 2, where)[0]
        _agree(where, options, "img_dim", features)
        return renamed, RegionConfig(feature_size=features, hidden_size=hidden), size
    raise InputError(f"{where}: the image half is neither a region nor a grid encoder of VSE∞; {_sample(state)}")


def _text(checkpoint: Checkpoint, where: str) -> tuple[State, BiGRUConfig | TransformerConfig, int]:
    state, options = checkpoint.text, checkpoint.options
    if "embed.weight" in state:
        renamed = _renamed(state, BIGRU, where)
        vocabulary, words = _shape(renamed, "embed.weight", 2, where)
        size = _shape(renamed, "rnn.weight_hh_l0", 2, where)[1]
        _agree(where, options, "vocab_size", vocabulary)
        _agree(where, options, "word_dim", words)
        return renamed, BiGRUConfig(vocabulary_size=vocabulary, word_size=words), size
    if any(name.startswith("bert.") for name in state):
        renamed = _renamed(state, BERT, where, UNUSED_BERT)
        size = _shape(renamed, "linear.weight", 2, where)[0]
        return renamed, TransformerConfig(architecture=_bert_architecture(renamed, where)), size
    raise InputError(f"{where}: the text half is neither a BiGRU nor a BERT encoder of VSE∞; {_sample(state)}")


def _bert_architecture(state: Mapping[str, Tensor], where: str) -> dict[str, Any]:
    """Return BERT's configuration, from the shapes of its tensors."""
    words, hidden = _shape(state, "transformer.embeddings.word_embeddings.weight", 2, where)
    layers = {name.split(".")[3] for name in state if name.startswith("transformer.encoder.layer.")}
    if hidden % HEAD_WIDTH or hidden == NARROW_HEADS:
        raise InputError(f"{where}: the number of attention heads of a BERT with {hidden} dimensions is unknown")
    return {
        "model_type": "bert",
        "vocab_size": words,
        "hidden_size": hidden,
        "num_hidden_layers": len(layers),
        "num_attention_heads": hidden // HEAD_WIDTH,
        "intermediate_size": _shape(state, "transformer.encoder.layer.0.intermediate.dense.weight", 2, where)[0],
        "max_position_embeddings": _shape(state, "transformer.embeddings.position_embeddings.weight", 2, where)[0],
        "type_vocab_size": _shape(state, "transformer.embeddings.token_type_embeddings.weight", 2, where)[0],
    }


def _renamed(
    state: Mapping[str, Tensor], prefixes: Mapping[str, str], where: str, unused: tuple[str, ...] = ()
) -> State:
    renamed: State = {}
    for name, value in state.items():
        if name.startswith(unused):
            continue
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise InputError(f"{where}: {name!r} holds NaN or infinite values: the training had diverged")
        prefix = next((prefix for prefix in prefixes if name.startswith(prefix)), None)
        if prefix is None:
            raise InputError(f"{where}: {name!r} {tuple(value.shape)} is not part of any encoder of VSE∞")
        renamed[prefixes[prefix] + name.removeprefix(prefix)] = value.float() if value.is_floating_point() else value
    if not any(name.startswith("pooling.") for name in renamed):
        raise InputError(f"{where}: no 'gpool.*' tensors, so no learned pooling: not a checkpoint of VSE∞")
    return renamed


def _side(options: Mapping[str, Any], where: str) -> int:
    """Return the side of the square to which images were resized."""
    scale = options.get("input_scale_factor", PAPER_SCALE)
    if not isinstance(scale, (int, float)) or not 0 < BASE_SIDE * scale < LARGEST_SIDE:
        raise InputError(f"{where}: the option input_scale_factor is {scale!r}, expected a number such as 1 or 2")
    return int(BASE_SIDE * scale)


def _exact(backbone: Any, side: int) -> dict[str, Any]:
    """Return the preprocessing of the released code: stretched to a square by plain bilinear interpolation."""
    from vse.inputs.preprocessing import butd, imagenet

    return (butd if backbone.options.get("detector") else imagenet)(side).to_json()


def _tokenizer(
    text: BiGRUConfig | TransformerConfig, vocabulary: str | Path | None, tokenizer: str | Path | None
) -> TextTokenizer | None:
    if isinstance(text, BiGRUConfig):
        if tokenizer is not None:
            raise InputError("this checkpoint has a BiGRU text encoder: give its vocabulary JSON, not a tokenizer")
        if vocabulary is None:
            return None
        from vse.inputs.vocabulary import Vocabulary

        words = Vocabulary.load(Path(vocabulary))
        if len(words) != text.vocabulary_size:
            raise InputError(
                f"{vocabulary}: {len(words)} words with <mask>, but the checkpoint was trained with "
                f"{text.vocabulary_size}: another dataset's vocabulary?"
            )
        return words.tokenizer()
    if vocabulary is not None:
        raise InputError("this checkpoint has a BERT text encoder: give its tokenizer, not a vocabulary JSON")
    if tokenizer is None:
        return None
    from vse.inputs.tokenizer import TextTokenizer

    found = TextTokenizer.from_pretrained(tokenizer, max_length=int(text.architecture["max_position_embeddings"]))
    expected = int(text.architecture["vocab_size"])
    if found.vocab_size != expected:
        raise InputError(
            f"{tokenizer}: {found.vocab_size} pieces of words, but the checkpoint was trained with {expected}: "
            "another model's tokenizer?"
        )
    return found


def _about(checkpoint: Checkpoint, given: str, path: Path) -> About:
    options = checkpoint.options
    kept = (
        "margin",
        "learning_rate",
        "batch_size",
        "num_epochs",
        "max_violation",
        "backbone_source",
        "precomp_enc_type",
    )
    recipe = {key: options[key] for key in kept if isinstance(options.get(key), (bool, int, float, str))}
    data = str(options["data_name"]) if "data_name" in options else None
    if checkpoint.epoch is not None:
        recipe["epoch"] = checkpoint.epoch
    scores: tuple[Score, ...] = ()
    if checkpoint.best_rsum is not None:
        protocol = "best rsum on the validation captions, as recorded in the checkpoint"
        scores = (
            Score(protocol=protocol, data=data or "not recorded", split="dev", values={"rsum": checkpoint.best_rsum}),
        )
    notes: tuple[str, ...] = ()
    grid = any(name.startswith("backbone.") for name in checkpoint.image)
    if grid and "input_scale_factor" not in options:
        notes = ("the checkpoint does not record the size of its images; 512 is assumed, as in the paper",)
    name, source = path.stem, f"converted from {path.name}"
    if given.startswith(FILE_PREFIX):  # every file there is called model_best.pth; its folder says which model it is
        inside = PurePosixPath(split_reference(given)[2])
        name, source = "-".join(inside.with_suffix("").parts), f"converted from {given}"
    return About(name=name, data=data, source=source, recipe=recipe, scores=scores, notes=notes)


def _shape(state: Mapping[str, Tensor], name: str, dims: int, where: str) -> tuple[int, ...]:
    if name not in state or state[name].dim() != dims:
        found = tuple(state[name].shape) if name in state else "nothing"
        raise InputError(f"{where}: expected a tensor of {dims} dimensions for {name!r}, found {found}")
    return tuple(state[name].shape)


def _agree(where: str, options: Mapping[str, Any], name: str, found: int) -> None:
    value = options.get(name)
    if isinstance(value, (int, np.integer)) and value != found:
        raise InputError(f"{where}: the options say {name}={value}, the tensors {found}")


def _sample(state: Mapping[str, Tensor]) -> str:
    names = ", ".join(list(state)[:4])
    return f"its tensors are {names}, …" if len(state) > 4 else f"its tensors are {names or 'none'}"
