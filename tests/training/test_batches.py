"""A batch is a function of (seed, epoch, samples): rebuilt here one sample at a time, and read ahead by threads."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.support_models import picture, word_tokenizer

from vse.data import CaptionedImages, FeatureRows, ImageFiles
from vse.errors import InputError
from vse.inputs import ImagePreprocessing, prepare
from vse.training.augmentation import TextAugmentation, keep_cells_as_released, keep_elements
from vse.training.batches import Batch, TokenStore, TrainingPairs, prefetch_batches
from vse.training.keyed import Purpose, keyed
from vse.training.recipe import AugmentationRecipe

SEED = 11
OWNERS = np.array([2, 0, 0, 1, 3, 1, 1, 3, 3, 3, 5, 5])  # in no order; image 4 has no caption
CAPTIONS = tuple(
    f"{start} {rest}"
    for start in ("a dog", "two cats", "the man")
    for rest in ("runs", "sleep on a red chair", "rides a horse in the snow", "on snow")
)
HOW = ImagePreprocessing((12, 10), mean=(120.0, 110.0, 100.0), std=(60.0, 50.0, 40.0), resize="plain-bilinear")
CELLS = 6


def feature_data(dtype: str = "float32", regions: int = 5) -> CaptionedImages:
    """Six images, whose rows in the array are in another order and not all of them."""
    array = np.random.default_rng(0).standard_normal((9, regions, 4)).astype(dtype)
    if regions == 1:
        array = array[:, 0]
    rows = FeatureRows(array, np.array([8, 0, 3, 5, 1, 2]), tuple("abcdef"))
    return CaptionedImages("set", "train", "precomp", rows, CAPTIONS, OWNERS)


@pytest.fixture(scope="module")
def picture_data(tmp_path_factory) -> CaptionedImages:
    folder = tmp_path_factory.mktemp("pictures")
    paths = []
    for number in range(6):
        paths.append(folder / f"{number}.png")
        Image.fromarray(picture(number, 20 + number, 33)).save(paths[-1])
    images = ImageFiles(tuple(paths), tuple(path.name for path in paths))
    return CaptionedImages("set", "train", "folder", images, CAPTIONS, OWNERS)


def pairs_of(data: CaptionedImages, seed: int = SEED, **recipe: Any) -> TrainingPairs:
    tokenizer = word_tokenizer()
    augmentation = AugmentationRecipe(**recipe)
    pictures = isinstance(data.images, ImageFiles)
    return TrainingPairs(
        data,
        TokenStore.build(data.captions, tokenizer),
        TextAugmentation(augmentation.text, augmentation.rate, tokenizer),
        augmentation,
        seed=seed,
        preprocessing=HOW if pictures else None,
        cells=CELLS if pictures else None,
    )


def naive_tokens(epoch: int, sample: int, recipe: AugmentationRecipe) -> list[int]:
    tokenizer = word_tokenizer()
    tokens = tokenizer.encode([CAPTIONS[sample]]).tokens[0].tolist()
    if recipe.text == "none":
        return tokens
    draws = keyed(SEED, epoch, Purpose.TEXT_ELEMENTS, sample).random(len(tokens))
    kept = [token for token, draw in zip(tokens, draws, strict=True) if draw >= recipe.rate]
    return kept or [tokens[int(np.argmax(draws))]]


def check_captions(batch: Batch, epoch: int, samples: np.ndarray, recipe: AugmentationRecipe) -> None:
    expected = [naive_tokens(epoch, sample, recipe) for sample in samples.tolist()]
    assert batch.token_lengths.tolist() == [len(caption) for caption in expected]
    assert batch.tokens.shape == (len(samples), max(map(len, expected)))
    assert batch.tokens.dtype == batch.token_lengths.dtype == np.int64
    for row, caption in zip(batch.tokens.tolist(), expected, strict=True):
        assert row[: len(caption)] == caption
        assert not any(row[len(caption) :])
    np.testing.assert_array_equal(batch.samples, samples)
    np.testing.assert_array_equal(batch.image_ids, OWNERS[samples])
    assert len(batch) == len(samples)


@pytest.mark.parametrize("image", ["none", "drop", "released"])
@pytest.mark.parametrize("text", ["none", "drop"])
@pytest.mark.parametrize(("dtype", "regions"), [("float32", 5), ("float16", 5), ("float32", 1)])
@pytest.mark.parametrize("rate", [0.2, 0.9])
def test_a_batch_of_features_by_hand(image, text, dtype, regions, rate):
    """The kept features of each image in order, at the front, zeros after them, in the type of the file."""
    data, recipe = feature_data(dtype, regions), AugmentationRecipe(image=image, text=text, rate=rate)
    pairs = pairs_of(data, image=image, text=text, rate=rate)
    for epoch in (0, 4):
        samples = np.array([7, 0, 11, 4, 5])
        batch = pairs.batch(epoch, samples)
        check_captions(batch, epoch, samples, recipe)
        assert batch.mask is None
        assert batch.images.dtype == np.dtype(dtype)
        whole = [data.images[OWNERS[sample]].astype(dtype) for sample in samples.tolist()]
        if image == "none":
            assert batch.lengths is None
            np.testing.assert_array_equal(batch.images, np.stack(whole))
            continue
        kept = [
            features[keep_elements(regions, rate, keyed(SEED, epoch, Purpose.IMAGE_ELEMENTS, sample))]
            for sample, features in zip(samples.tolist(), whole, strict=True)
        ]
        assert batch.lengths.tolist() == [len(features) for features in kept]
        assert batch.images.shape == (5, max(map(len, kept)), 4)
        for found, features in zip(batch.images, kept, strict=True):
            np.testing.assert_array_equal(found[: len(features)], features)
            assert not found[len(features) :].any()


@pytest.mark.parametrize("image", ["none", "drop", "released"])
@pytest.mark.parametrize("views", [True, False])
def test_a_batch_of_pictures_by_hand(picture_data, image, views):
    """Each image decoded and prepared by itself, its view and its mask of cells keyed by the sample."""
    recipe = AugmentationRecipe(image=image, views=views, rate=0.4)
    pairs = pairs_of(picture_data, image=image, views=views, rate=0.4)
    rules = {"drop": keep_elements, "released": keep_cells_as_released}
    for epoch in (0, 2):
        samples = np.array([4, 7, 8, 1])  # three captions of one image: three views of it
        batch = pairs.batch(epoch, samples)
        check_captions(batch, epoch, samples, recipe)
        assert batch.lengths is None
        assert batch.images.shape == (4, 3, 12, 10)
        for row, sample in enumerate(samples.tolist()):
            pixels = np.asarray(Image.open(picture_data.images.paths[OWNERS[sample]]))
            view = keyed(SEED, epoch, Purpose.VIEW, sample) if views else None
            np.testing.assert_array_equal(batch.images[row], prepare(pixels, HOW, view))
            if image != "none":
                draws = keyed(SEED, epoch, Purpose.IMAGE_ELEMENTS, sample)
                np.testing.assert_array_equal(batch.mask[row], rules[image](CELLS, 0.4, draws))
        assert (batch.mask is None) == (image == "none")
        assert np.array_equal(batch.images[0], batch.images[1]) == (not views)


def test_pictures_for_a_model_of_features_are_refused(picture_data):
    """One line that says what to set."""
    tokenizer, recipe = word_tokenizer(), AugmentationRecipe()
    text = TextAugmentation("none", 0.2, tokenizer)
    pairs = TrainingPairs(picture_data, TokenStore.build(CAPTIONS, tokenizer), text, recipe, seed=0)
    with pytest.raises(InputError, match=r"the data has images: set data\.features, or a grid model"):
        pairs.batch(0, np.array([0]))


def rows_by_sample(batch: Batch) -> dict[int, tuple[Any, ...]]:
    """What each sample is given, without the padding that depends on its neighbours."""
    found = {}
    for row, sample in enumerate(batch.samples.tolist()):
        image = batch.images[row] if batch.lengths is None else batch.images[row, : batch.lengths[row]]
        mask = None if batch.mask is None else batch.mask[row].tolist()
        found[sample] = (image.tolist(), mask, batch.tokens[row, : batch.token_lengths[row]].tolist())
    return found


@settings(max_examples=15)
@given(st.permutations(range(12)), st.lists(st.integers(1, 11), unique=True, max_size=4), st.booleans())
def test_samples_do_not_depend_on_their_batch(picture_data, order, cuts, pictures):
    """However the samples are ordered and grouped, each is given the same arrays."""
    pairs = pairs_of(picture_data if pictures else feature_data(), text="released")
    together = rows_by_sample(pairs.batch(3, np.arange(12)))
    apart: dict[int, tuple[Any, ...]] = {}
    for part in np.split(np.array(order), sorted(cuts)):
        apart |= rows_by_sample(pairs.batch(3, part))
    assert apart == together


def test_draws_change_with_epoch_and_seed():
    """Another epoch, or another seed, augments in another way."""
    data, samples = feature_data(), np.arange(12)
    first = rows_by_sample(pairs_of(data).batch(0, samples))
    assert first == rows_by_sample(pairs_of(data).batch(0, samples))
    assert first != rows_by_sample(pairs_of(data).batch(1, samples))
    assert first != rows_by_sample(pairs_of(data, seed=SEED + 1).batch(0, samples))


# The order of an epoch


@given(st.integers(0, 2**32 - 1), st.integers(0, 1000))
def test_an_epoch_is_a_permutation(seed, epoch):
    """Every caption once; the same for the same (seed, epoch), another one for the next."""
    pairs = pairs_of(feature_data(), seed=seed)
    order = pairs.order(epoch)
    assert sorted(order.tolist()) == list(range(12))
    np.testing.assert_array_equal(order, pairs.order(epoch))
    np.testing.assert_array_equal(order, keyed(seed, epoch, Purpose.ORDER).permutation(12))
    later = [pairs.order(epoch + more).tolist() for more in (1, 2, 3)]
    assert any(other != order.tolist() for other in later)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(1, 8), st.integers(0, 50))
def test_some_captions_of_each_image(owners, wanted, epoch):
    """Exactly min(k, captions) distinct captions of every image, in a shuffled order."""
    images = FeatureRows(np.zeros((7, 2, 4), np.float32), np.arange(7), tuple("abcdefg"))
    data = CaptionedImages("set", "train", "precomp", images, ("a dog",) * len(owners), np.array(owners))
    order = pairs_of(data).order(epoch, wanted).tolist()
    assert len(set(order)) == len(order)
    for image in range(7):
        of_image = [sample for sample in order if owners[sample] == image]
        assert len(of_image) == min(wanted, owners.count(image))


def test_each_caption_is_drawn_as_often_as_any_other():
    """One of four captions an epoch: over the epochs each has its turn, and the order of images varies too."""
    images = FeatureRows(np.zeros((5, 2, 4), np.float32), np.arange(5), tuple("abcde"))
    data = CaptionedImages("set", "train", "precomp", images, ("a dog",) * 20, np.repeat(np.arange(5), 4))
    pairs = pairs_of(data)
    orders = np.stack([pairs.order(epoch, 1) for epoch in range(600)])
    counts = np.bincount(orders.ravel(), minlength=20)
    assert counts.sum() == 3000
    assert counts.min() > 100
    assert counts.max() < 200
    assert len({tuple(order) for order in (orders // 4).tolist()}) > 90  # of 120 orders of five images
    assert sorted(pairs.order(0, 4).tolist()) == sorted(pairs.order(0, 99).tolist()) == list(range(20))


# Reading ahead


def reader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("vse-reader")]


def parts(count: int) -> list[np.ndarray]:
    return [np.array([number]) for number in range(count)]


@pytest.mark.parametrize("readers", [1, 2, 5])
def test_reading_ahead_keeps_the_order(readers):
    """Whatever takes how long, the batches come in the order of the parts, and each is made once."""
    pairs, made = pairs_of(feature_data()), []

    def slow(samples: np.ndarray) -> Batch:
        time.sleep(0.004 * (samples[0] % 3))
        made.append(int(samples[0]))
        return pairs.batch(1, samples)

    found = list(prefetch_batches(slow, parts(12), readers))
    assert [int(batch.samples[0]) for batch, _ in found] == list(range(12))
    assert sorted(made) == list(range(12))
    assert all(waited >= 0 for _, waited in found)
    expected = [rows_by_sample(pairs.batch(1, part)) for part in parts(12)]
    assert [rows_by_sample(batch) for batch, _ in found] == expected
    assert not reader_threads()


@pytest.mark.parametrize("readers", [1, 3])
def test_no_more_than_a_few_batches_are_read_ahead(readers):
    """Memory is that of a few batches, however slow the consumer and long the epoch."""
    begun: list[int] = []

    def make(samples: np.ndarray) -> Any:
        begun.append(int(samples[0]))
        return samples

    largest = 0
    for taken, _ in enumerate(prefetch_batches(make, parts(40), readers), 1):
        time.sleep(0.002)
        largest = max(largest, len(begun) - taken)
    assert len(begun) == 40
    assert largest <= readers + 2


@pytest.mark.parametrize("readers", [1, 3])
def test_an_error_comes_at_its_turn(readers):
    """The batches before it are delivered, the error is the reader's own, and the threads end."""

    def make(samples: np.ndarray) -> Any:
        if samples[0] == 3:
            raise InputError("picture 3 is broken")
        return samples

    stream = prefetch_batches(make, parts(20), readers)
    assert [int(next(stream)[0][0]) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(InputError, match="picture 3 is broken"):
        next(stream)
    assert not reader_threads()


@pytest.mark.parametrize("readers", [1, 3])
def test_readers_stop_with_their_consumer(readers):
    """One that leaves early leaves no thread behind, and the rest of the epoch is not read."""
    begun: list[int] = []

    def make(samples: np.ndarray) -> Any:
        begun.append(int(samples[0]))
        time.sleep(0.005)
        return samples

    stream = prefetch_batches(make, parts(200), readers)
    next(stream)
    assert reader_threads()
    stream.close()
    assert not reader_threads()
    assert len(begun) <= readers + 3


def test_resuming_at_end_of_epoch_reads_nothing():
    """A run that resumes right at the end of an epoch has nothing to read."""
    assert list(prefetch_batches(lambda samples: pytest.fail("nothing to make"), [], 2)) == []


def test_an_undecodable_picture_is_named(tmp_path: Path):
    """The error of a reader names the file."""
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no picture")
    data = CaptionedImages("set", "train", "folder", ImageFiles((bad,), ("bad",)), ("a dog",), np.array([0]))
    pairs = pairs_of(data)
    with pytest.raises(InputError, match=r"bad\.png"):
        list(prefetch_batches(lambda samples: pairs.batch(0, samples), [np.array([0])], 1))
