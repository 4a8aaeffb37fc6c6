"""Recognise public image–text models by their files: library, runtime, inputs, and which files are needed.

A repository or folder is judged from the names of its files and its configuration alone, so that an unsupported model
is refused before its weights are fetched. Layouts:

    transformers            config.json with a "model_type" of a dual encoder, *.safetensors
    sentence-transformers   modules.json, whose CLIPModel names a folder of the above
    open_clip               open_clip_config.json, open_clip_model.safetensors
    transformers.js         onnx/vision_model*.onnx, onnx/text_model*.onnx, config.json
    immich                  visual/model.onnx, textual/model.onnx, config.json
    rclip                   visual.onnx, textual.onnx; CLIP's vocabulary beside them or in ../tokenizer
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vse.errors import InputError, first_line

if TYPE_CHECKING:
    from vse.inputs.preprocessing import ImagePreprocessing
    from vse.inputs.tokenizer import TextTokenizer

Kind = Literal["transformers", "open_clip", "transformers.js", "immich", "rclip", "cross"]
MODEL_TYPES = ("clip", "siglip", "chinese_clip", "altclip", "metaclip_2")
"""Dual encoders of transformers that can be used; :mod:`vse.encoders.dual`, which needs torch, has the same list."""
MATCHING_HEADS = {
    "vilt": "ViltForImageAndTextRetrieval",
    "blip": "BlipForImageTextRetrieval",
    "bridgetower": "BridgeTowerForImageAndTextRetrieval",
    "lxmert": "LxmertForPreTraining",
    "visual_bert": "VisualBertForPreTraining",
}
"""Cross-encoders of transformers that can re-rank, by the class whose head scores a pair."""
JSON_FILES = ("config.json", "open_clip_config.json", "modules.json")
"""What a model is judged by."""
INPUT_FILES = (
    *("preprocessor_config.json", "processor_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "vocab.json", "merges.txt", "vocab.txt", "spiece.model", "sentencepiece.bpe.model"),
)
PRECISIONS = {"fp32": ("",), "fp16": ("_fp16",), "int8": ("_quantized", "_int8", "_uint8")}
"""Endings of the ONNX files of transformers.js, by precision."""
PAIRS: dict[Kind, tuple[str, str]] = {
    "immich": ("visual/model.onnx", "textual/model.onnx"),
    "rclip": ("visual.onnx", "textual.onnx"),
}
BPE_FILES = ("bpe_simple_vocab_16e6.txt.gz", "tokenizer/bpe_simple_vocab_16e6.txt.gz")
ReadJson = Callable[[str], Any]


@dataclass(frozen=True)
class Foreign:
    """A public model that was recognised.

    Attributes:
        kind: Its layout.
        root: Folder of its files within the repository; empty for the top.
        config: Its configuration: ``config.json``, or ``open_clip_config.json``.
        needed: Files that must be there, relative to the repository.
        wanted: Files that are read if they are there.
        pair: Its ONNX files (images, texts), if it is made for ONNX Runtime.
        where: What it is called in messages.
    """

    kind: Kind
    root: str
    config: dict[str, Any]
    needed: tuple[str, ...]
    wanted: tuple[str, ...]
    pair: tuple[str, str] | None = None
    where: str = ""

    @property
    def model_type(self) -> str:
        """Type of the architecture, for messages and cards."""
        return str(self.config.get("model_type", self.kind))


def recognise(names: Collection[str], read: ReadJson, where: str, *, precision: str | None = None) -> Foreign | None:
    """Judge a repository or folder.

    Args:
        names: Paths of its files, with forward slashes.
        read: Returns the content of one of its JSON files.
        where: What it is called in messages.
        precision: Of the ONNX files that are wanted, where there are several; by default the most precise.

    Returns:
        The model; None if this is no public image–text model.

    Raises:
        InputError: If it is one that cannot be used.
    """
    root = _clip_module(read("modules.json"), where) if "modules.json" in names else ""
    inside = {name.removeprefix(root): name for name in names if name.startswith(root)}

    def read_object(name: str) -> dict[str, Any]:
        content = read(name)
        if not isinstance(content, dict):
            raise InputError(f"{where}: {name} holds a {type(content).__name__}, expected a JSON object")
        return content

    pair = _onnx_pair(inside, read_object, root, precision)
    torch_files = _torch_files(inside, read_object, root, where)
    if pair is not None and (torch_files is None or precision is not None or find_spec("torch") is None):
        return replace(pair, where=where)
    if torch_files is None:
        others = sorted(name for name in inside if re.fullmatch(r"onnx/vision_model\w*\.onnx", name))
        if precision and others:
            raise InputError(f"{where}: no ONNX files in {precision}; it has {', '.join(others)}")
        _refuse(inside, read_object, root, where)
        return None
    return replace(torch_files, where=where)


def recognise_folder(folder: Path, *, precision: str | None = None) -> Foreign | None:
    """Judge a local folder; see :func:`recognise`."""
    names = [path.relative_to(folder).as_posix() for path in _files(folder)]
    found = recognise(names, lambda name: _read(folder / name), str(folder), precision=precision)
    if found is not None:
        missing = [name for name in found.needed if not (folder / name).is_file()]
        if missing:
            raise InputError(f"{folder}: {missing[0]} is missing (was the download interrupted?); fetch it again")
    return found


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder and of the folders in it; models are not nested deeper."""
    return [path for pattern in ("*", "*/*") for path in folder.glob(pattern) if path.is_file()]


def _clip_module(modules: Any, where: str) -> str:
    """Return the folder of the CLIP model in a sentence-transformers model, with a slash at its end."""
    listed = [each for each in modules if isinstance(each, dict)] if isinstance(modules, list) else []
    for module in listed:
        if str(module.get("type", "")).endswith("CLIPModel"):
            path = str(module.get("path", ""))
            if path.startswith(("/", "..")) or ".." in path.split("/"):
                raise InputError(f"{where}: modules.json names the folder {path!r} outside of the model")
            return f"{path}/" if path else ""
    raise InputError(f"{where}: a sentence-transformers model without a CLIPModel: it has no image tower")


def _torch_files(inside: dict[str, str], read: ReadJson, root: str, where: str) -> Foreign | None:
    """Return the model for torch, if its configuration is supported and its weights are safetensors."""
    config = read(inside["config.json"]) if "config.json" in inside else {}
    model_type = str(config.get("model_type"))  # a list could not be looked up
    cross = model_type in MATCHING_HEADS
    if cross:
        _expect_matching_head(config, where)
    if cross or model_type in MODEL_TYPES:
        shards = "model.safetensors.index.json"
        if "model.safetensors" in inside:
            weights: tuple[str, ...] = ("model.safetensors",)
        elif shards in inside:
            weights = (shards, *_shards(read(inside[shards]).get("weight_map"), f"{where}: {inside[shards]}"))
        else:
            weights = ()
        if weights:
            needed = tuple(root + name for name in ("config.json", *weights))
            kind: Kind = "cross" if cross else "transformers"
            return Foreign(kind, root, config, needed, tuple(root + name for name in INPUT_FILES))
    if "open_clip_config.json" in inside and "open_clip_model.safetensors" in inside:
        described = read(inside["open_clip_config.json"])
        needed = (root + "open_clip_config.json", root + "open_clip_model.safetensors")
        return Foreign("open_clip", root, described, needed, tuple(root + name for name in INPUT_FILES))
    return None


def _expect_matching_head(config: dict[str, Any], where: str) -> None:
    """Refuse a cross-encoder that was published for another task: its matching head would be random."""
    wanted, found = MATCHING_HEADS[str(config["model_type"])], config.get("architectures")
    if not isinstance(found, list) or wanted not in found:
        named = found[0] if isinstance(found, list) and found else "no class"
        raise InputError(
            f"{where}: config.json names {named}, which has no head that scores a pair of an image and a text; "
            f"expected {wanted}"
        )


def _shards(listed: Any, where: str) -> list[str]:
    """Return the files that an index of weights names; they lie beside it."""
    names = sorted(set(map(str, listed.values()))) if isinstance(listed, dict) else []
    if not names:
        raise InputError(f"{where} lists no files of weights in 'weight_map'; fetch it again")
    for name in names:
        if "/" in name or "\\" in name or not name.endswith(".safetensors"):
            raise InputError(f"{where} names {name!r}, which is outside of the model's folder or no safetensors file")
    return names


def _onnx_pair(inside: dict[str, str], read: ReadJson, root: str, precision: str | None) -> Foreign | None:
    """Return the model for ONNX Runtime, if both towers are there."""
    for kind, (image, text) in PAIRS.items():
        if image in inside and text in inside and not (kind == "rclip" and "config.json" in inside):
            config = read(inside["config.json"]) if "config.json" in inside else {}
            if kind == "immich":
                needed = ["config.json", image, text, "visual/preprocess_cfg.json", "textual/tokenizer.json"]
                wanted = ["textual/tokenizer_config.json", "textual/special_tokens_map.json"]
            else:
                needed, wanted = [image, text], list(BPE_FILES)
            return _pair(kind, root, config, needed, wanted, (image, text), inside)
    endings = [ending for each in ([precision] if precision else PRECISIONS) for ending in PRECISIONS.get(each, ())]
    for ending in endings:
        image, text = f"onnx/vision_model{ending}.onnx", f"onnx/text_model{ending}.onnx"
        if image in inside and text in inside and "config.json" in inside:
            config = read(inside["config.json"])
            if config.get("model_type") not in MODEL_TYPES:
                return None
            needed = ["config.json", image, text]
            return _pair("transformers.js", root, config, needed, list(INPUT_FILES), (image, text), inside)
    return None


def _pair(
    kind: Kind,
    root: str,
    config: dict[str, Any],
    needed: list[str],
    wanted: list[str],
    pair: tuple[str, str],
    inside: dict[str, str],
) -> Foreign:
    data = [f"{name}{end}" for name in pair for end in ("_data", ".data") if f"{name}{end}" in inside]
    return Foreign(
        kind,
        root,
        config,
        tuple(root + name for name in (*needed, *data)),
        tuple(root + name for name in wanted),
        (root + pair[0], root + pair[1]),
    )


def _refuse(inside: dict[str, str], read: ReadJson, root: str, where: str) -> None:
    """Say why a model cannot be used; do nothing for what is no model of a library."""
    config = read(inside["config.json"]) if "config.json" in inside else {}
    model_type = config.get("model_type")
    pickled = [name for name in inside if re.fullmatch(r"(pytorch_model|open_clip_pytorch_model).*\.bin", name)]
    if model_type == "siglip2":
        raise InputError(
            f"{where}: a SigLIP 2 model for images of any size (NaFlex); use one of a fixed size, such as "
            "google/siglip2-base-patch16-224"
        )
    if model_type in MODEL_TYPES or str(model_type) in MATCHING_HEADS or "open_clip_config.json" in inside:
        if pickled:
            raise InputError(
                f"{where}: its weights are pickled ({pickled[0]}), and pickles can run code; use a model or revision "
                "with safetensors"
            )
        raise InputError(f"{where}: its weights are missing (was the download interrupted?); fetch it again")
    if model_type is not None:
        supported = ", ".join((*MODEL_TYPES, *MATCHING_HEADS))
        raise InputError(f"{where}: a model of type {model_type!r}; image–text models of these types work: {supported}")
    if root or any(name.endswith((".onnx", ".bin")) for name in inside):
        raise InputError(f"{where}: no image–text model that vse knows: expected both towers and a configuration")


def _read(path: Path) -> Any:
    """Return the content of a JSON file; the list of ``modules.json``, too."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a complete JSON file ({first_line(error)}); fetch it again") from None


def embedding_size(found: Foreign) -> int:
    """Return the dimensions of an embedding; raise :class:`InputError` if the towers have different ones."""
    config = found.config
    if found.kind in {"open_clip", "immich"}:
        return int(open_clip_network(found)["embed_dim"])
    if found.model_type == "siglip":
        vision, text = config.get("vision_config", {}), config.get("text_config", {})
        image_size = int(vision.get("hidden_size", 768))
        text_size = int(text.get("projection_size", image_size) or text.get("hidden_size", 768))
        if image_size != text_size:
            raise InputError(f"{found.where}: images have {image_size} dimensions and texts {text_size}")
        return image_size
    return int(config.get("projection_dim", 512))


def open_clip_network(found: Foreign) -> dict[str, Any]:
    """Return open_clip's description of the network."""
    described = found.config.get("model_cfg", found.config)
    if not isinstance(described, dict) or not {"embed_dim", "vision_cfg", "text_cfg"} <= described.keys():
        raise InputError(f"{found.where}: its configuration has no 'model_cfg' with embed_dim, vision_cfg and text_cfg")
    return described


def image_inputs(folder: Path, found: Foreign) -> ImagePreprocessing:
    """Return how the model's images are prepared, from its own files."""
    from vse.inputs.published import PROCESSOR_FILES, open_clip_preprocessing, processor_preprocessing

    top = folder / found.root
    if found.kind == "open_clip":
        where = str(top / "open_clip_config.json")
        size = open_clip_network(found)["vision_cfg"].get("image_size", 224)
        return open_clip_preprocessing(found.config.get("preprocess_cfg", {}), size, where)
    if found.kind == "immich":
        path = top / "visual" / "preprocess_cfg.json"
        return open_clip_preprocessing(_read(path), 224, str(path))
    if found.kind == "rclip":
        return open_clip_preprocessing({}, 256, str(top))
    for name in PROCESSOR_FILES:
        if (top / name).is_file():
            return processor_preprocessing(_read(top / name), str(top / name))
    raise InputError(f"{top}: preprocessor_config.json is missing, which says how images are prepared")


def text_inputs(folder: Path, found: Foreign) -> TextTokenizer:
    """Return the model's tokenizer, from its own files."""
    from vse.inputs.published import cleaned, clip_tokenizer, published_tokenizer

    top = folder / found.root
    if found.kind == "rclip":
        for place in (top, top.parent):
            for name in BPE_FILES:
                if (place / name).is_file():
                    return clip_tokenizer(place / name)
        raise InputError(f"{top}: {BPE_FILES[0]} is missing, CLIP's vocabulary")
    if found.kind in {"open_clip", "immich"}:
        text = open_clip_network(found)["text_cfg"]
        length, options = int(text.get("context_length", 77)), text.get("tokenizer_kwargs") or {}
        place = top / "textual" if found.kind == "immich" else top
        if found.kind == "open_clip" and "hf_tokenizer_name" not in text and not (place / "tokenizer.json").is_file():
            return clip_tokenizer(_packaged_vocabulary(place), length, clean=options.get("clean") or "lower")
        tokenizer = published_tokenizer(place, length)
        if options.get("clean"):
            cleaned(tokenizer.pipeline, options["clean"])
        return tokenizer
    config = found.config.get("text_config") or (found.config if found.kind == "cross" else {})
    positions = config.get("max_position_embeddings", {"siglip": 64, "clip": 77}.get(found.model_type, 512))
    if found.model_type in {"altclip", "bridgetower"}:
        positions -= int(config.get("pad_token_id", 1)) + 1  # positions are numbered from the padding id
    return published_tokenizer(top, int(positions))


def padded_length(found: Foreign, tokenizer: TextTokenizer) -> int | None:
    """Return the length that all texts are padded to; None if the model reads texts of any length."""
    if found.kind in {"open_clip", "immich", "rclip"} or found.model_type == "siglip":
        return tokenizer.max_length
    return None


def _packaged_vocabulary(folder: Path) -> Path:
    """Return CLIP's vocabulary: that of the folder, or of the open_clip package."""
    if (folder / BPE_FILES[0]).is_file():
        return folder / BPE_FILES[0]
    spec = find_spec("open_clip")
    if spec is None or spec.origin is None:
        raise InputError(f"{folder}: no tokenizer.json, and open_clip, which has CLIP's vocabulary, is not installed")
    return Path(spec.origin).with_name(BPE_FILES[0])
