"""A model that scores pairs: what it takes, saves and refuses, and what the rest of the package makes of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tests.support_models import build, draw_nothing, grid_config, picture, word_tokenizer
from tests.systems.support_pairs import SYSTEMS, WIDTH, pair_config, pair_model

import vse
from vse.cli.main import main
from vse.errors import InputError
from vse.models.card import escaped, save_with_card
from vse.models.config import ModelConfig, read_config
from vse.models.inspection import inspect_folder
from vse.models.protocols import CandidateScorer, PairScorer
from vse.models.storage import create_model, load_model
from vse.systems.pair_model import PairModel
from vse.systems.registry import DIFFERENCES

TOKENIZER = word_tokenizer()
TEXTS = ["a dog", "two dogs run in the snow", "a man and a dog"]


def model_of(system: str = "scan", options: dict | None = None, **changes: object) -> PairModel:
    text = {"kind": "bigru", "vocabulary_size": TOKENIZER.vocab_size, "word_size": 4}
    return pair_model(system, options, TOKENIZER, text=text, **changes)


def regions(*sizes: int, width: int = WIDTH) -> list[np.ndarray]:
    generator = np.random.default_rng(1)
    return [generator.standard_normal((size, width)).astype(np.float32) for size in sizes]


def naive_scores(model: PairModel, images: list[np.ndarray], texts: list[str]) -> np.ndarray:
    """Each pair encoded and scored by itself."""
    scores = np.empty((len(images), len(texts)))
    with torch.no_grad():
        for row, image in enumerate(images):
            for column, text in enumerate(texts):
                batch = TOKENIZER.encode([text])
                sides = model(torch.from_numpy(image)[None], torch.from_numpy(batch.tokens))
                scores[row, column] = model.scores(*sides).item()
    return scores


@pytest.mark.parametrize("system", SYSTEMS)
def test_saved_system_of_pairs_scores_the_same(system, tmp_path, monkeypatch):
    """Ragged images and texts as one by one; through a folder, with card, report and fingerprint."""
    draw_nothing(monkeypatch)
    model, images = model_of(system), regions(3, 1, 4)
    scores = model.score_pairs(images, TEXTS)
    np.testing.assert_allclose(scores, naive_scores(model, images, TEXTS), atol=1e-5)
    rows, columns = np.array([2, 0, 2, 1]), np.array([1, 1, 0, 2])
    assert isinstance(model, CandidateScorer)
    monkeypatch.setattr("vse.systems.pair_model.MAX_PAIRS", 1)
    np.testing.assert_allclose(model.score_candidates(images, TEXTS, rows, columns), scores[rows, columns], atol=1e-6)
    folder = save_with_card(model, tmp_path / "model")
    loaded = vse.load(folder)
    assert isinstance(loaded, PairModel)
    assert isinstance(loaded, PairScorer)
    np.testing.assert_array_equal(loaded.score_pairs(images, TEXTS), scores)
    assert loaded.fingerprint() == model.fingerprint()
    assert loaded.config == model.config
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert system.upper() in card
    assert escaped(DIFFERENCES[system]) in card
    report = inspect_folder(folder)
    assert report.capabilities == model.capabilities
    assert [tower.pooling for tower in report.towers] == ["none", "none"]
    assert read_config(model.architecture(), "test") == model.config


def test_system_of_pairs_takes_image_files(tmp_path, monkeypatch):
    """Pixels through a backbone: cells are the elements, and features of cells give the same scores."""
    draw_nothing(monkeypatch)
    model = model_of(image=grid_config(pooling="none").model_dump())
    images = [picture(number) for number in range(2)]
    scores = model.score_pairs(images, TEXTS)
    with torch.no_grad():
        sets = model.image_sets(images)
        assert sets.mask.shape[1] == model.grid_cells
        cells = model.image_backbone(torch.stack([torch.from_numpy(read(model, image)) for image in images]))
    np.testing.assert_allclose(model.score_pairs(list(cells.numpy()), TEXTS), scores, atol=1e-5)
    folder = model.save(tmp_path / "model")
    np.testing.assert_array_equal(load_model(folder).score_pairs(images, TEXTS), scores)
    assert inspect_folder(folder).capabilities == model.capabilities
    assert model.capabilities.images
    assert model.backbone_fingerprint() is not None


def read(model: PairModel, image: np.ndarray) -> np.ndarray:
    from vse.inputs.preprocessing import load_pixels

    return load_pixels(image, model.preprocessing)


def test_fingerprint_tells_systems_and_options_apart():
    """SCAN has no parameters: its options alone make another model."""
    marks = {model_of("scan", options).fingerprint() for options in ({}, {"direction": "i2t"}, {"lambda_softmax": 4.0})}
    assert len(marks) == 3


@pytest.mark.parametrize(
    ("images", "texts", "said"),
    [
        ([], TEXTS, "images is empty"),
        (regions(2), [], "texts is empty"),
        (regions(2), ["a dog", ""], "text 1 is empty"),
        (regions(2), ["zebra"], "text 0, 'zebra': the model knows none of its words"),
        (regions(2), 3, "texts must be a list of sentences, got int"),
        (regions(2, width=WIDTH + 1), TEXTS, rf"image 0 is an array \(2, {WIDTH + 1}\); this model takes sets"),
        (["photo.jpg"], TEXTS, "image 0 is 'photo.jpg'; this model takes sets of features"),
        ([np.empty((0, WIDTH), np.float32)], TEXTS, "image 0: an empty set of features"),
        ([np.full((2, WIDTH), np.nan, np.float32)], TEXTS, "image 0: its features hold NaN or infinite values"),
    ],
)
def test_bad_pairs_to_score_are_named(images, texts, said):
    """One line with the number of the image or text."""
    with pytest.raises(InputError, match=said) as caught:
        model_of().score_pairs(images, texts)
    assert len(str(caught.value).splitlines()) == 1


def test_sets_of_different_widths_have_no_scores():
    """Both widths are named."""
    model, other = model_of(), model_of(embed_size=4)
    with pytest.raises(InputError, match="images of 6 and texts of 4 dimensions have no scores"):
        model.scores(model.image_sets(regions(2)), next(other.text_sets(TEXTS))[1])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"system": "skan"}, "'system' is 'skan'"),
        ({"options": {"direction": "up"}}, "options of 'scan': 'direction' is 'up'"),
        ({"image": {"kind": "frames"}}, 'image.kind is "frames": a system of pairs takes region or grid'),
        (
            {"image": {"kind": "region", "pooling": "gpo"}},
            'image.pooling is "gpo": a system of pairs compares elements',
        ),
        ({"text": {"kind": "words", "vocabulary_size": 9}}, 'text.kind is "words": a system of pairs takes bigru'),
        ({"embed_size": 0}, "'embed_size' is 0"),
    ],
)
def test_wrong_configuration_of_pairs_is_one_line(change, said):
    """The key, its value and what would be right."""
    plain = pair_config().model_dump(mode="json") | change
    with pytest.raises(InputError) as caught:
        read_config(plain, "config.json")
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_tokenizer_of_another_vocabulary_does_not_fit_pairs():
    """The numbers of words are named."""
    text = {"kind": "bigru", "vocabulary_size": TOKENIZER.vocab_size + 1}
    with pytest.raises(InputError, match=f"the tokenizer knows {TOKENIZER.vocab_size} words, the text encoder"):
        create_model(pair_config(text=text), TOKENIZER)


@pytest.mark.parametrize(
    "command",
    [
        ["index", "{files}", "--model", "{model}", "--into", "{new}"],
        ["export", "{model}", "{new}"],
        ["calibrate", "{model}", "--data", "{files}"],
    ],
)
def test_commands_that_need_embeddings_refuse_a_model_of_pairs(command, tmp_path, capsys, monkeypatch):
    """One line that says what the model is and which kind can do it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files").mkdir()
    model_of(image=grid_config(pooling="none").model_dump()).save(tmp_path / "model")
    places = {name: str(tmp_path / name) for name in ("files", "model", "new")}
    assert main([part.format(**places) for part in command]) != 0
    said = capsys.readouterr().err
    assert "a SCAN t2i model scores pairs of an image and a sentence and has no single vector of either" in said
    assert len(said.strip().splitlines()) == 1


def test_embeddings_of_a_model_of_pairs_are_refused():
    """By its methods, and by loaders of models with embeddings."""
    model = model_of("imram")
    for call in (model.encode_images, model.encode_texts, model.encode_videos):
        with pytest.raises(InputError, match="an IMRAM full model scores pairs of an image"):
            call(["a.jpg"])
    with pytest.raises(InputError, match="not compiled"):
        model.compile_encoders()


def test_configuration_of_towers_is_unchanged_by_pairs():
    """No new key in the configuration of other models, whose fingerprints depend on it."""
    plain = build().config.model_dump(mode="json")
    assert not {"kind", "system", "options"} & plain.keys()
    assert type(read_config(json.loads(json.dumps(plain)), "test")) is ModelConfig
