"""Inputs of public models: token ids and pixels are those of the libraries that the models were made with."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.inputs.captions import captions
from tests.models import published
from tests.support_models import picture

from vse.errors import InputError
from vse.inputs.preprocessing import prepare
from vse.inputs.published import (
    clip_tokenizer,
    open_clip_preprocessing,
    processor_preprocessing,
    published_tokenizer,
)

SIZE = 224
TEXTS = captions()
SHAPES = [
    (224, 224),
    (225, 224),
    (224, 301),
    (97, 512),
    (640, 481),
    (33, 34),
    (1, 7),
    (500, 333),
    (1023, 767),
    (225, 447),
]


def bpe_file() -> Path:
    import open_clip

    return Path(open_clip.__file__).with_name("bpe_simple_vocab_16e6.txt.gz")


def rows(tokenizer, texts: list[str]) -> list[list[int]]:
    batch = tokenizer.encode(texts)
    return [row[:length].tolist() for row, length in zip(batch.tokens, batch.lengths, strict=True)]


class TestTokenizers:
    """Ids of 1,000 captions in five languages."""

    @pytest.mark.parametrize(
        ("make", "longest"),
        [
            (published.clip_tokenizer, 77),
            (published.word_piece_tokenizer, 52),
            (lambda: published.trained_tokenizer("bpe"), 16),
            (lambda: published.trained_tokenizer("unigram"), 16),
        ],
        ids=["clip", "wordpiece", "bpe", "unigram"],
    )
    def test_published_tokenizer_has_ids_of_transformers(self, make, longest, tmp_path):
        """From the files that ``save_pretrained`` writes, cut at the model's length."""
        theirs = make()
        theirs.save_pretrained(tmp_path)
        ours = published_tokenizer(tmp_path, longest)
        assert rows(ours, TEXTS) == theirs(TEXTS, truncation=True)["input_ids"]
        assert (ours.pad_id, ours.max_length) == (theirs.pad_token_id, longest)

    def test_clip_vocabulary_has_ids_of_open_clip(self):
        """open_clip also repairs badly decoded text (ftfy) and HTML entities, which the captions do not have.

        ftfy would also straighten typographic quotes and join full-width letters; there are none either.
        """
        import open_clip

        theirs = open_clip.SimpleTokenizer(context_length=77)(TEXTS).numpy()
        ours = clip_tokenizer(bpe_file()).encode(TEXTS)
        padded = np.zeros_like(theirs)
        padded[:, : ours.tokens.shape[1]] = ours.tokens
        kept = [number for number, text in enumerate(TEXTS) if open_clip.tokenizer.basic_clean(text) == text.strip()]
        assert len(kept) > 900
        np.testing.assert_array_equal(padded[kept], theirs[kept])

    @pytest.mark.parametrize("clean", ["lower", "whitespace", "canonicalize"])
    def test_text_cleaning_is_that_of_open_clip(self, clean):
        """Each of the modes that a configuration may name."""
        import open_clip

        theirs = open_clip.tokenizer.get_clean_fn(clean)
        normalizer = clip_tokenizer(bpe_file(), clean=clean).pipeline.normalizer
        for text in TEXTS:
            if open_clip.tokenizer.basic_clean(text) == text.strip():
                assert normalizer.normalize_str(text) == theirs(text)

    def test_unknown_text_cleaning_is_refused(self):
        """The message lists the modes."""
        with pytest.raises(InputError, match="'upper', expected 'lower', 'whitespace' or 'canonicalize'"):
            clip_tokenizer(bpe_file(), clean="upper")

    def test_smaller_limit_of_tokenizer_takes_precedence(self, tmp_path):
        """Of the model and of ``tokenizer_config.json``."""
        published.trained_tokenizer("bpe").save_pretrained(tmp_path)
        assert published_tokenizer(tmp_path, 64).max_length == 16
        assert published_tokenizer(tmp_path, 8).max_length == 8
        path = tmp_path / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": 10**30}))
        assert published_tokenizer(tmp_path, 8).max_length == 8
        with pytest.raises(InputError, match="how many tokens"):
            published_tokenizer(tmp_path, None)

    def test_missing_tokenizer_is_refused(self, tmp_path):
        """The message names the folder and the file."""
        with pytest.raises(InputError, match=r"no tokenizer: expected tokenizer\.json") as caught:
            published_tokenizer(tmp_path, 77)
        assert str(tmp_path) in str(caught.value)

    def test_tokenizer_without_padding_is_refused(self, tmp_path):
        """No token to fill a batch with."""
        from tokenizers import Tokenizer, models

        Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
        with pytest.raises(InputError, match="names no 'pad_token'"):
            published_tokenizer(tmp_path, 77)

    @pytest.mark.parametrize(
        "content",
        [b"", b"no gzip", gzip.compress(b"a b\nc d\n"), gzip.compress(b"\xff\xfe")],
        ids=["empty", "not compressed", "too few merges", "not text"],
    )
    def test_broken_clip_vocabulary_is_refused(self, tmp_path, content):
        """The message names the file."""
        path = tmp_path / "bpe_simple_vocab_16e6.txt.gz"
        path.write_bytes(content)
        with pytest.raises(InputError, match="not CLIP's byte-pair vocabulary") as caught:
            clip_tokenizer(path)
        assert str(path) in str(caught.value)

    def test_missing_clip_vocabulary_is_refused(self, tmp_path):
        """As a broken one."""
        with pytest.raises(InputError, match="not CLIP's byte-pair vocabulary"):
            clip_tokenizer(tmp_path / "absent.gz")


def processors() -> dict[str, object]:
    hf = published.transformers()
    box = {"height": SIZE, "width": SIZE}
    return {
        "clip": hf.CLIPImageProcessorPil(size={"shortest_edge": SIZE}, crop_size=box),
        "clip, smaller crop": hf.CLIPImageProcessorPil(size={"shortest_edge": 256}, crop_size=box),
        "clip, bilinear": hf.CLIPImageProcessorPil(size={"shortest_edge": SIZE}, crop_size=box, resample=2),
        "siglip": hf.SiglipImageProcessorPil(size=box),
        "chinese_clip": hf.ChineseCLIPImageProcessorPil(size=box, do_center_crop=False),
        "not normalized": hf.SiglipImageProcessorPil(size=box, do_normalize=False),
    }


@pytest.fixture(scope="module")
def photos(shared_data) -> list[np.ndarray]:
    paths = sorted((shared_data / "flickr8k" / "images").glob("*.jpg"))[::160][:50]
    if not paths:
        pytest.skip("no photos of flickr8k here")
    return [np.asarray(Image.open(path).convert("RGB")) for path in paths]


@pytest.fixture(scope="module")
def drawn() -> list[np.ndarray]:
    return [picture(seed, *shape) for seed, shape in enumerate(SHAPES)]


def assert_same_pixels(how, reference, images: list[np.ndarray]) -> None:
    for image in images:
        difference = np.abs(prepare(image, how) - reference(Image.fromarray(image))).max()
        assert difference <= 1e-5, f"{image.shape}: {difference}"


def by_processor(processor):
    return lambda image: processor(images=image, return_tensors="np")["pixel_values"][0]


class TestPixels:
    """Values after resizing, cropping and normalization."""

    @pytest.mark.parametrize("kind", processors())
    def test_pixels_are_those_of_transformers(self, kind, drawn, tmp_path):
        """From ``preprocessor_config.json`` as it is saved, for images of odd sizes."""
        processor = processors()[kind]
        processor.save_pretrained(tmp_path)
        how = processor_preprocessing(json.loads((tmp_path / "preprocessor_config.json").read_text()), "here")
        assert how.size == (SIZE, SIZE)
        assert_same_pixels(how, by_processor(processor), drawn)

    @pytest.mark.parametrize("kind", ["clip", "siglip", "chinese_clip"])
    def test_photos_are_prepared_as_by_transformers(self, kind, photos):
        """50 real photos."""
        processor = processors()[kind]
        assert_same_pixels(processor_preprocessing(processor.to_dict(), "here"), by_processor(processor), photos)

    @pytest.mark.parametrize("mode", ["shortest", "squash"])
    @pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
    def test_pixels_are_those_of_open_clip(self, mode, interpolation, drawn):
        """For images of odd sizes."""
        import open_clip

        options = {"resize_mode": mode, "interpolation": interpolation}
        transform = open_clip.image_transform(SIZE, is_train=False, **options)
        how = open_clip_preprocessing(options, SIZE, "here")
        assert_same_pixels(how, lambda image: transform(image).numpy(), drawn)

    def test_photos_are_prepared_as_by_open_clip(self, photos):
        """50 real photos."""
        import open_clip

        transform = open_clip.image_transform(SIZE, is_train=False)
        assert_same_pixels(open_clip_preprocessing({}, SIZE, "here"), lambda image: transform(image).numpy(), photos)

    def test_old_processor_with_a_number_as_size(self, drawn):
        """The first files of CLIP have ``"size": 224`` and ``"crop_size": 224``."""
        old = {"size": SIZE, "crop_size": SIZE, "do_center_crop": True, "resample": 3}
        new = {"size": {"shortest_edge": SIZE}, "crop_size": {"height": SIZE, "width": SIZE}, "resample": 3}
        assert processor_preprocessing(old, "here") == processor_preprocessing(new, "here")

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"resample": 1}, "'resample' is 1, expected 2"),
            ({"resample": None}, "'resample' is None"),
            ({"resample": [3]}, "'resample'"),
            ({"do_resize": False}, "'do_resize' is false"),
            ({"crop_size": {"height": 300, "width": 300}}, "a crop of .300, 300. from a shorter side of 224"),
            ({"crop_size": {"height": 200, "width": 224}}, "expected a smaller square"),
            ({"do_center_crop": False}, "not cropped"),
            ({"image_mean": [0.5]}, "three numbers"),
            ({"image_std": 0.5}, "three numbers"),
            ({"image_mean": ["a", "b", "c"]}, "three numbers"),
            ({"image_std": [0, 0, 0]}, "std"),
            ({"rescale_factor": 0}, "rescale_factor"),
            ({"size": None}, "'size' is None"),
            ({"size": {"longest_edge": 224}}, "'size' is"),
            ({"size": {"shortest_edge": "x"}}, "'size' is"),
            ({"size": {"shortest_edge": 0}}, "'size' is"),
        ],
    )
    def test_unsupported_processor_is_refused(self, changes, said):
        """One line with the file, the value and what was expected."""
        config = {"size": {"shortest_edge": SIZE}, "crop_size": {"height": SIZE, "width": SIZE}, "do_center_crop": True}
        with pytest.raises(InputError, match=said) as caught:
            processor_preprocessing(config | changes, "models/x/preprocessor_config.json")
        assert "\n" not in str(caught.value)
        assert "models/x/preprocessor_config.json" in str(caught.value)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"interpolation": "nearest"}, "interpolation 'nearest'"),
            ({"resize_mode": "longest"}, "resize_mode 'longest'"),
            ({"mean": [1, 2]}, "three numbers"),
            ({"size": "big"}, "'size' is 'big'"),
            ({"size": [1, 2, 3]}, "'size' is"),
        ],
    )
    def test_unsupported_open_clip_preprocessing_is_refused(self, changes, said):
        """As of a processor."""
        with pytest.raises(InputError, match=said) as caught:
            open_clip_preprocessing(changes, SIZE, "open_clip_config.json")
        assert "open_clip_config.json" in str(caught.value)
