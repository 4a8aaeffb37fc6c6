"""Many feature sets or sentences to many vectors: order, batches, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support_models import (
    CAPTIONS,
    FEATURES,
    SIZE,
    assert_unit,
    build,
    feature_sets,
    grid_config,
    picture,
)

from vse.errors import InputError
from vse.models.encode import TEXT_CHUNK

EXIF_ORIENTATION = 0x0112


@pytest.fixture(scope="module")
def grid():
    return build(grid_config())


@pytest.fixture(scope="module")
def region():
    return build()


class Recorder:
    """A progress reporter that writes down what it is reported."""

    def __init__(self):
        self.said = []

    def start(self, total, description):
        self.said.append(("start", total, description))

    def advance(self, steps=1, description=None):
        self.said.append(("advance", steps))

    def note(self, message):
        self.said.append(("note", message))

    def finish(self):
        self.said.append(("finish",))

    @property
    def steps(self):
        return sum(entry[1] for entry in self.said if entry[0] == "advance")


class TestBatches:
    """How the work is cut does not show in the result."""

    @given(count=st.integers(0, 7), batch_size=st.integers(1, 9))
    @settings(max_examples=15)
    def test_batch_size_changes_nothing(self, grid, region, count, batch_size):
        """For images, feature sets and texts, any batch gives what one by one gives."""
        pictures = [picture(n) for n in range(count)]
        sets = feature_sets(*range(1, count + 1))
        texts = [CAPTIONS[n % len(CAPTIONS)] for n in range(count)]
        for encode, items in ((grid.encode_images, pictures), (region.encode_images, sets), (grid.encode_texts, texts)):
            found = encode(items, batch_size=batch_size)
            assert found.shape == (count, SIZE)
            for row, item in zip(found, items, strict=True):
                np.testing.assert_allclose(row, encode([item])[0], atol=2e-6)

    @pytest.mark.parametrize("batch_size", [0, -1, 2.5, "8", None, True])
    def test_a_batch_holds_at_least_one(self, region, batch_size):
        """Zero, fractions and texts are refused, for images and texts alike."""
        with pytest.raises(InputError, match="batch_size"):
            region.encode_images(feature_sets(2), batch_size=batch_size)
        with pytest.raises(InputError, match="batch_size"):
            region.encode_texts(["a dog"], batch_size=batch_size)

    def test_nothing_in_nothing_out(self, grid, region):
        """Empty lists and arrays give (0, D)."""
        for found in (
            grid.encode_images([]),
            region.encode_images([]),
            region.encode_images(np.empty((0, 3, FEATURES), np.float32)),
            region.encode_texts([]),
        ):
            assert found.shape == (0, SIZE)
            assert found.dtype == np.float32

    def test_encoding_reports_progress(self, grid, region):
        """Start with the total, steps that add up to it, a finish."""
        for encode, items, what in (
            (grid.encode_images, [picture(n) for n in range(5)], "images"),
            (region.encode_texts, CAPTIONS, "texts"),
        ):
            recorder = Recorder()
            encode(items, batch_size=2, progress=recorder)
            assert recorder.said[0] == ("start", len(items), what)
            assert recorder.said[-1] == ("finish",)
            assert recorder.steps == len(items)

    def test_the_mode_of_the_model_is_kept(self, tmp_path):
        """A model in the midst of training is evaluated for its vectors, and goes on training."""
        model = build(grid_config())
        expected = model.encode_images([picture()])
        model.train()
        before = {name: module.training for name, module in model.named_modules()}
        np.testing.assert_array_equal(model.encode_images([picture()]), expected)
        model.encode_texts(["a dog"])
        assert {name: module.training for name, module in model.named_modules()} == before


class TestFeatureSets:
    """A model of region features."""

    def test_ragged_sets_and_full_arrays(self, region):
        """A list of (N_i, F), or one array (n, N, F)."""
        assert_unit(region.encode_images(feature_sets(3, 1, 36)), 3)
        array = np.stack(feature_sets(4, 4))
        np.testing.assert_allclose(region.encode_images(array), region.encode_images(list(array)), atol=1e-6)
        assert_unit(region.encode_images(array[0]), 1)

    def test_encoding_takes_half_and_double_features(self, region):
        """float16 and float64 features are taken."""
        (features,) = feature_sets(5)
        expected = region.encode_images([features.astype(np.float16).astype(np.float32)])
        np.testing.assert_allclose(region.encode_images([features.astype(np.float16)]), expected, atol=1e-6)
        assert_unit(region.encode_images([features.astype(np.float64)]), 1)

    def test_memory_maps_are_read_in_place(self, region, tmp_path):
        """A store larger than memory is an array like any other."""
        array = np.stack(feature_sets(4, 4, 4))
        np.save(tmp_path / "a.npy", array)
        mapped = np.load(tmp_path / "a.npy", mmap_mode="r", allow_pickle=False)
        np.testing.assert_array_equal(region.encode_images(mapped), region.encode_images(array))

    def test_an_empty_set_is_a_bad_image(self, region):
        """Its row is NaN, and it is named by its place."""
        problems = []
        found = region.encode_images([*feature_sets(3), np.empty((0, FEATURES), np.float32)], problems=problems)
        assert np.isnan(found[1]).all()
        assert [problem.index for problem in problems] == [1]
        assert "image 1" in problems[0].name + problems[0].reason

    def test_features_that_are_not_finite_are_a_bad_image(self, region):
        """A NaN in a store does not become a vector in silence."""
        (broken,) = feature_sets(3)
        broken[1, 2] = np.nan
        problems = []
        found = region.encode_images([*feature_sets(3), broken], problems=problems)
        assert np.isnan(found[1]).all()
        assert [problem.index for problem in problems] == [1]

    def test_pictures_are_refused_with_a_way_out(self, region, tmp_path):
        """The error says what the model takes and what to do; nothing is computed."""
        for pictures in (["photo.jpg"], tmp_path / "a.jpg", [picture()], [b"bytes"]):
            with pytest.raises(InputError, match=rf"features \(N, {FEATURES}\), not images.*vse inspect"):
                region.encode_images(pictures)

    def test_another_width_names_both(self, region):
        """Features of another detector: their width and the right one."""
        with pytest.raises(InputError, match=rf"(?s)(?=.*\b{FEATURES}\b)(?=.*\b{FEATURES + 2}\b)"):
            region.encode_images(feature_sets(3, width=FEATURES + 2))


class TestTexts:
    """Sentences to vectors."""

    def test_order_is_kept_although_lengths_are_sorted(self, region):
        """Each row is the vector of its own text, encoded alone."""
        texts = [
            "snow",
            "a dog runs in the snow",
            "two cats",
            "the man rides a horse in the snow",
            "a",
            "red chair on a",
        ]
        found = region.encode_texts(texts, batch_size=2)
        alone = np.concatenate([region.encode_texts([text]) for text in texts])
        np.testing.assert_allclose(found, alone, atol=2e-6)
        assert_unit(found, len(texts))

    def test_more_texts_than_a_chunk(self, region):
        """Chunks do not show either: the rows behind the first one are right, and so is the count of a bad text."""
        texts = [CAPTIONS[n % len(CAPTIONS)] for n in range(TEXT_CHUNK + 7)]
        expected = region.encode_texts(CAPTIONS)
        found = region.encode_texts(texts, batch_size=512)
        np.testing.assert_allclose(found, np.resize(expected, found.shape), atol=2e-6)

    @pytest.mark.parametrize("bad", ["", "zebra"])
    def test_a_bad_text_behind_the_first_chunk_is_counted_from_the_start(self, region, bad):
        """The number in the message is the place in the list that was handed in."""
        with pytest.raises(InputError, match=rf"text {TEXT_CHUNK + 2}\b"):
            region.encode_texts([*["snow"] * (TEXT_CHUNK + 2), bad], batch_size=512)

    def test_single_sentence_is_a_batch_of_one(self, region):
        """A str is a list of one."""
        np.testing.assert_array_equal(region.encode_texts("a dog runs"), region.encode_texts(["a dog runs"]))

    def test_no_known_word_is_an_error_unless_allowed(self, region):
        """It is quoted with its place; ``unknown="allow"`` encodes it, and others as before."""
        with pytest.raises(InputError, match=r"text 1, 'zebras gallop'.*unknown='allow'"):
            region.encode_texts(["a dog", "zebras gallop"])
        found = region.encode_texts(["a dog", "zebras gallop"], unknown="allow")
        assert_unit(found, 2)
        np.testing.assert_allclose(found[0], region.encode_texts(["a dog"])[0], atol=2e-6)

    @pytest.mark.parametrize("empty", ["", "   ", "\n\t"])
    def test_an_empty_text_is_an_error(self, region, empty):
        """Also when unknown words are allowed."""
        for unknown in ("error", "allow"):
            with pytest.raises(InputError, match="text 1 is empty"):
                region.encode_texts(["a dog", empty], unknown=unknown)

    def test_mistyped_unknown_policy_is_refused(self, region):
        """A mistyped ``unknown`` does not mean "allow"."""
        with pytest.raises(InputError, match="'alow'"):
            region.encode_texts(["zebra"], unknown="alow")

    def test_a_long_text_is_cut(self, region):
        """Beyond the model's length nothing is read: 20 tokens, of which 18 words."""
        long = " ".join(["dog"] * 500)
        np.testing.assert_allclose(
            region.encode_texts([long]), region.encode_texts([" ".join(["dog"] * 18)]), atol=1e-6
        )
        assert np.abs(region.encode_texts([long]) - region.encode_texts([" ".join(["dog"] * 17)])).max() > 1e-6

    @pytest.mark.parametrize("given", [[3], [None], [b"a dog"], ["a dog", ["nested"]]])
    def test_encoding_names_invalid_text(self, region, given):
        """Its place and its type."""
        with pytest.raises(InputError, match=r"text \d is \w+, expected str"):
            region.encode_texts(given)

    def test_encoding_without_tokenizer_is_refused(self):
        """The error says how to get one, before any work."""
        model = build()
        model.tokenizer = None
        with pytest.raises(InputError, match=r"no vocabulary.*--vocab"):
            model.encode_texts(["a dog"])
