"""Read preprocessing and tokenizer from the files that public image–text models come with.

Supported are Hugging Face's ``preprocessor_config.json``, open_clip's ``preprocess_cfg``, ``tokenizer.json`` with
``tokenizer_config.json``, and the byte-pair vocabulary of CLIP. Neither torch nor transformers is needed, unless a
tokenizer exists in an old format only.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from vse._util.schema import read_json
from vse.errors import InputError, first_line, require
from vse.inputs.preprocessing import ImagePreprocessing, Triple
from vse.inputs.pretrained import wordpiece
from vse.inputs.resizing import Method
from vse.inputs.tokenizer import SpecialIds, TextTokenizer, parse_tokenizer, read_tokenizer, rust_panics

CLIP_LENGTH = 77
CLIP_MERGES = 48894  # 49,152 pieces less 256 bytes, twice, and two special tokens
CLIP_MEAN: Triple = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD: Triple = (0.26862954, 0.26130258, 0.27577711)
BPE_FILE = "bpe_simple_vocab_16e6.txt.gz"
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
_RESAMPLING: dict[int, Method] = {2: "bilinear", 3: "bicubic"}
_NO_LIMIT = 1_000_000
_PUNCTUATION = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""


def processor_preprocessing(config: Mapping[str, Any], where: str) -> ImagePreprocessing:
    """Return the preprocessing that a Hugging Face image processor describes.

    Args:
        config: Content of ``preprocessor_config.json``.
        where: Its name, for messages.

    Raises:
        InputError: If it asks for something else than resizing, a centre crop and normalization.
    """
    if isinstance(config, Mapping) and "image_processor" in config:  # of a processor for images and texts
        config = config["image_processor"]
    if not isinstance(config, Mapping):
        raise InputError(f"{where}: holds a {type(config).__name__}, expected a JSON object")
    size = _size(config.get("size"), where)
    resample = config.get("resample", 3)
    if not isinstance(resample, int) or resample not in _RESAMPLING:
        raise InputError(f"{where}: 'resample' is {resample!r}, expected 2 (bilinear) or 3 (bicubic)")
    if not config.get("do_resize", True):
        raise InputError(f"{where}: images are not resized ('do_resize' is false), and the model needs one size")
    scale = config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0
    if not isinstance(scale, (int, float)) or not scale > 0:
        raise InputError(f"{where}: 'rescale_factor' is {scale!r}, expected a number above 0")
    plain = not config.get("do_normalize", True)
    mean = (0.0, 0.0, 0.0) if plain else config.get("image_mean", CLIP_MEAN)
    std = (1.0, 1.0, 1.0) if plain else config.get("image_std", CLIP_STD)
    common: dict[str, Any] = {
        "mean": _scaled(mean, scale, where),
        "std": _scaled(std, scale, where, above_zero=True),
        "resize": _RESAMPLING[resample],
    }
    cropped = config.get("do_center_crop", "shortest_edge" in size)
    crop = _size(config.get("crop_size", size), where) if cropped else None
    shortest = None if crop is None and "height" in size else size.get("shortest_edge")
    if shortest is None:
        box = (size["height"], size["width"])
        if crop is not None and _box(crop) != box:
            raise InputError(f"{where}: a crop of {_box(crop)} from images stretched to {box} is not supported")
        return ImagePreprocessing(box, **common)
    if crop is None:
        raise InputError(f"{where}: images keep their aspect ratio and are not cropped; the model needs one size")
    box = _box(crop)
    if box[0] != box[1] or box[0] > shortest:
        raise InputError(f"{where}: a crop of {box} from a shorter side of {shortest}, expected a smaller square")
    return ImagePreprocessing(box, fit="crop", crop_ratio=box[0] / shortest, rounding="down", **common)


def open_clip_preprocessing(config: Mapping[str, Any], size: int | tuple[int, int], where: str) -> ImagePreprocessing:
    """Return the preprocessing that open_clip's ``preprocess_cfg`` describes.

    Args:
        config: The object; missing keys have open_clip's defaults.
        size: The size of the model's images, if ``config`` has none.
        where: The name of the file, for messages.
    """
    found = config.get("size", size)
    sides = (found, found) if isinstance(found, int) else tuple(found) if isinstance(found, (list, tuple)) else ()
    if len(sides) != 2 or not all(map(_is_side, sides)):
        raise InputError(f"{where}: 'size' is {found!r}, expected a number of pixels, or height and width")
    box = (sides[0], sides[1])
    interpolation, mode = config.get("interpolation", "bicubic"), config.get("resize_mode", "shortest")
    if interpolation not in {"bicubic", "bilinear", "random"}:
        raise InputError(f"{where}: interpolation {interpolation!r}, expected 'bicubic' or 'bilinear'")
    if mode not in {"shortest", "squash"}:
        raise InputError(f"{where}: resize_mode {mode!r}, expected 'shortest' or 'squash'")
    return ImagePreprocessing(
        box,
        mean=_scaled(config.get("mean", CLIP_MEAN), 1 / 255, where),
        std=_scaled(config.get("std", CLIP_STD), 1 / 255, where, above_zero=True),
        resize="bilinear" if interpolation == "bilinear" else "bicubic",
        fit="stretch" if mode == "squash" else "crop",
    )


def published_tokenizer(folder: Path, longest: int | None, *, pad: int | None = None) -> TextTokenizer:
    """Return the tokenizer in a folder of Hugging Face files.

    Args:
        folder: Holds ``tokenizer.json``, or ``vocab.json`` and ``merges.txt``, ``vocab.txt`` or a SentencePiece model.
        longest: Number of tokens that the model reads; a smaller limit in ``tokenizer_config.json`` takes precedence.
        pad: Id to pad with; by default that of ``pad_token``.

    Raises:
        InputError: If there is no tokenizer.
    """
    config = _optional(folder / "tokenizer_config.json")
    pipeline = _pipeline(folder, config)
    if config.get("tokenizer_class") in {"SiglipTokenizer", "SiglipTokenizerFast"}:
        pipeline = cleaned(pipeline, "canonicalize")
    elif config.get("tokenizer_class") == "Siglip2Tokenizer":
        pipeline = cleaned(pipeline, "lower", spaces=False)
    stated = config.get("model_max_length")
    limits = [int(each) for each in (longest, stated) if isinstance(each, (int, float)) and 0 < each < _NO_LIMIT]
    if not limits:
        raise InputError(f"{folder}: neither the model nor tokenizer_config.json says how many tokens it reads")
    named = _optional(folder / "special_tokens_map.json") | config
    return TextTokenizer(
        pipeline, max_length=min(limits), kind="subwords", special=_special(pipeline, named, pad, folder)
    )


def clip_tokenizer(vocabulary: Path, length: int = CLIP_LENGTH, *, clean: str = "lower") -> TextTokenizer:
    """Return CLIP's tokenizer as open_clip has it, from its list of byte-pair merges.

    open_clip also repairs badly decoded text (``ftfy``) and HTML entities; a query has neither.
    """
    try:
        lines = gzip.decompress(vocabulary.read_bytes()).decode().split("\n")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"{vocabulary}: not CLIP's byte-pair vocabulary ({first_line(error)})") from None
    pairs = [line.split() for line in lines[1 : CLIP_MERGES + 1]]
    merges = [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]
    if len(merges) != CLIP_MERGES:
        raise InputError(f"{vocabulary}: not CLIP's byte-pair vocabulary, expected {CLIP_MERGES} merges")
    characters = _byte_characters()
    pieces = [*characters, *(f"{each}</w>" for each in characters), *("".join(pair) for pair in merges)]
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    numbers = {piece: number for number, piece in enumerate(pieces)}
    pipeline = Tokenizer(models.BPE(numbers, merges, unk_token="<|endoftext|>", end_of_word_suffix="</w>"))
    pattern = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    pipeline.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    pipeline.decoder = decoders.ByteLevel()
    start, end = numbers["<|startoftext|>"], numbers["<|endoftext|>"]
    pipeline.post_processor = processors.TemplateProcessing(
        single="<|startoftext|> $A <|endoftext|>",
        special_tokens=[("<|startoftext|>", start), ("<|endoftext|>", end)],
    )
    pipeline.add_special_tokens(["<|startoftext|>", "<|endoftext|>"])
    return TextTokenizer(
        cleaned(pipeline, clean), max_length=length, kind="subwords", special=SpecialIds(pad=0, start=start, end=end)
    )


def cleaned(pipeline: Tokenizer, clean: str, *, spaces: bool = True) -> Tokenizer:
    """Prepend open_clip's cleaning of texts to a tokenizer.

    Args:
        pipeline: The tokenizer; changed.
        clean: ``lower``, ``whitespace`` or ``canonicalize``.
        spaces: Whether runs of whitespace become one space.
    """
    steps: list[Any] = []
    if clean == "canonicalize":
        steps += [normalizers.Replace("_", " "), normalizers.Replace(Regex(_PUNCTUATION), ""), normalizers.Lowercase()]
    elif clean == "lower":
        steps.append(normalizers.Lowercase())
    elif clean != "whitespace":
        raise InputError(f"text cleaning {clean!r}, expected 'lower', 'whitespace' or 'canonicalize'")
    if spaces:
        steps += [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    if pipeline.normalizer is not None:
        steps.append(pipeline.normalizer)
    pipeline.normalizer = normalizers.Sequence(steps)
    return pipeline


def _pipeline(folder: Path, config: Mapping[str, Any]) -> Tokenizer:
    if (folder / "tokenizer.json").is_file():
        return read_tokenizer(folder / "tokenizer.json")
    if (folder / "vocab.txt").is_file():
        return wordpiece(folder / "vocab.txt", lowercase=bool(config.get("do_lower_case", True)))
    if not any((folder / name).is_file() for name in ("vocab.json", "spiece.model", "sentencepiece.bpe.model")):
        raise InputError(f"{folder}: no tokenizer: expected tokenizer.json (or vocab.json and merges.txt, vocab.txt)")
    transformers = require("transformers", "train", f"the tokenizer in {str(folder)!r}, which has no tokenizer.json,")
    try:
        with rust_panics(f"{folder}: its tokenizer cannot be read"):
            found = transformers.AutoTokenizer.from_pretrained(
                str(folder), trust_remote_code=False, local_files_only=True
            )
            text = found.backend_tokenizer.to_str()
        return parse_tokenizer(text, folder)  # its rules may be those of any file that the configuration names
    except InputError:
        raise
    except Exception as error:  # of several libraries
        raise InputError(f"{folder}: its tokenizer cannot be read ({first_line(error)})") from error


def _special(pipeline: Tokenizer, named: Mapping[str, Any], pad: int | None, folder: Path) -> SpecialIds:
    """Return the special tokens that the configuration names."""

    def number(*keys: str) -> int | None:
        for key in keys:
            value = named.get(key)
            spelled = value.get("content") if isinstance(value, Mapping) else value
            if isinstance(spelled, str) and (found := pipeline.token_to_id(spelled)) is not None:
                return int(found)
        return None

    padding = number("pad_token") if pad is None else pad
    if padding is None:
        try:
            padding = SpecialIds.of(pipeline).pad
        except InputError:
            padding = number("eos_token", "sep_token")
    if padding is None:
        raise InputError(f"{folder}: the tokenizer names no 'pad_token'")
    return SpecialIds(
        padding,
        unk=None if (unknown := number("unk_token")) == number("eos_token") else unknown,  # CLIP's has no meaning
        mask=number("mask_token"),
        start=number("bos_token", "cls_token"),
        end=number("eos_token", "sep_token"),
    )


def _byte_characters() -> list[str]:
    """Return the printable characters that stand for bytes in CLIP's vocabulary, in its order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + place) for place in range(len(others))]


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _size(value: Any, where: str) -> dict[str, int]:
    """Return ``{"height", "width"}`` or ``{"shortest_edge"}``; older files have a number."""
    if _is_side(value):
        return {"shortest_edge": value, "height": value, "width": value}
    if isinstance(value, Mapping) and ("shortest_edge" in value or {"height", "width"} <= set(value)):
        sides = {key: value[key] for key in ("shortest_edge", "height", "width") if key in value}
        if all(map(_is_side, sides.values())):
            return sides
    raise InputError(f"{where}: 'size' is {value!r}, expected height and width, or shortest_edge")


def _is_side(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _box(size: Mapping[str, int]) -> tuple[int, int]:
    if "height" in size:
        return size["height"], size["width"]
    return size["shortest_edge"], size["shortest_edge"]


def _scaled(values: Any, scale: float, where: str, *, above_zero: bool = False) -> Triple:
    """Return values for pixels of 0 … 255 instead of ``scale`` times that."""
    numbers = values if isinstance(values, (list, tuple)) else ()
    if len(numbers) != 3 or not all(isinstance(each, (int, float)) for each in numbers):
        raise InputError(f"{where}: mean and std need three numbers, one for each channel, got {values!r}")
    if above_zero and not all(each > 0 for each in numbers):
        raise InputError(f"{where}: std must be above 0 in every channel, got {values!r}")
    first, second, third = (float(value) / scale for value in numbers)
    return first, second, third
