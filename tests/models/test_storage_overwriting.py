"""Saving over a model: the old one or the new one, never half of either."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from tests.support_models import assert_same_model, build, contents, grid_config

import vse
from vse.errors import InputError
from vse.inputs import Vocabulary
from vse.models.card import write_card
from vse.models.coefficients import COEFFICIENT_FILES
from vse.models.curves import CARD_FILE, CURVES_FILE


@pytest.fixture
def folder(tmp_path):
    """A folder that holds a model."""
    return build().save(tmp_path / "model")


def test_saving_overwrites_model_and_keeps_other_files(folder):
    """The second model is there whole, other people's files stay."""
    (folder / "notes.txt").write_text("mine")
    other = build(seed=1)
    other.save(folder)
    assert_same_model(vse.load(folder), other)
    assert (folder / "notes.txt").read_text() == "mine"


def test_saving_loaded_model_gives_same_files(folder):
    """Saving what was loaded gives the same files."""
    before = contents(folder)
    vse.load(folder).save(folder)
    assert contents(folder) == before


def test_saving_other_architecture_replaces_all_files(folder):
    """Nothing of the former one is left to be read."""
    other = build(grid_config())
    other.save(folder)
    assert_same_model(vse.load(folder), other)


def test_saving_without_tokenizer_removes_the_old_one(folder):
    """The vocabulary of the former model belongs to the former model."""
    other = build()
    other.tokenizer = None
    other.save(folder)
    assert vse.load(folder).tokenizer is None


@pytest.mark.parametrize("name", COEFFICIENT_FILES)
def test_saving_other_weights_removes_coefficients(folder, name):
    """Saving the same weights keeps the file, other weights drop it; so does a folder whose model cannot be read."""
    (folder / name).write_text("{}")
    vse.load(folder).save(folder)
    assert (folder / name).exists()
    build(seed=1).save(folder)
    assert not (folder / name).exists()
    (folder / name).write_text("{}")
    (folder / "config.json").write_text("half of")
    build(seed=1).save(folder)
    assert not (folder / name).exists()


def test_card_of_another_model_is_removed(folder):
    """Saving the same weights keeps card and curves, other weights remove them; a README without a model stays."""
    write_card(folder, vse.load(folder), draw=False)
    vse.load(folder).save(folder)
    assert (folder / CARD_FILE).exists()
    build(seed=1).save(folder)
    assert not (folder / CARD_FILE).exists()
    assert not (folder / CURVES_FILE).exists()
    (folder / CARD_FILE).write_text("mine")
    (folder / "config.json").unlink()
    build(seed=2).save(folder)
    assert (folder / CARD_FILE).read_text() == "mine"


def test_failed_save_keeps_old_model(folder, monkeypatch):
    """Not a byte of the folder has changed, and nothing temporary stays."""

    def fail(*arguments: object, **options: object) -> None:
        raise OSError("no space left on device")

    before = contents(folder)
    monkeypatch.setattr("vse.models.storage.write_json", fail)
    with pytest.raises(OSError, match="no space"):
        build(seed=1).save(folder)
    assert contents(folder) == before
    vse.load(folder)


def test_failed_first_save_leaves_no_model(tmp_path, monkeypatch):
    """There is nothing that could be taken for one."""

    def fail(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vse.models.storage.write_json", fail)
    with pytest.raises(KeyboardInterrupt):
        build().save(tmp_path / "model")
    with pytest.raises(InputError, match=r"without config\.json"):
        vse.load(tmp_path / "model")
    assert list((tmp_path / "model").iterdir()) == []


@pytest.mark.parametrize("survived", range(8))
@pytest.mark.parametrize("words", ["same", "other"])
def test_crash_while_saving_never_mixes_models(folder, monkeypatch, survived, words):
    """After any number of moved files, loading gives the old model, the new one, or says what happened."""
    old = vse.load(folder)
    if words == "other":  # as many words, so that sizes cannot tell
        vocabulary = Vocabulary.build([f"w{n}" for n in range(old.tokenizer.vocab_size - 5)], min_count=1)
        new = build(seed=1, tokenizer=vocabulary.tokenizer())
    else:
        new = build(seed=1)
    replace = Path.replace
    moved = 0

    def crash(self: Path, target: Path) -> Path:
        nonlocal moved
        if Path(target).parent == folder and self.parent.parent == folder:
            if moved == survived:
                raise OSError("power failure")
            moved += 1
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", crash)
    with contextlib.suppress(OSError):
        new.save(folder)
    assert moved == min(survived, len(contents(folder)))  # the crash did happen where it should
    monkeypatch.undo()
    try:
        found = vse.load(folder)
    except InputError as error:
        message = str(error)
    else:
        message = "different models"
        assert_same_model(found, old if found.fingerprint() == old.fingerprint() else new)
    assert "different models" in message
