"""What size augmentation keeps, masks, exchanges and deletes: the rules of the paper's code, counted."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support_models import write_wordpieces

from vse.inputs import TextTokenizer, Vocabulary
from vse.training.augmentation import TextAugmentation, image_elements, keep_cells_as_released, keep_elements

RATE = 0.2
ROUNDS = 3000
LETTERS = [f"w{n}" for n in range(40)]
RULES = {"drop": keep_elements, "released": keep_cells_as_released}


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def words() -> TextTokenizer:
    """Forty words: ids 4 to 43, the mask is 44."""
    return Vocabulary.build(LETTERS, min_count=1).tokenizer(60)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory) -> TextTokenizer:
    return TextTokenizer.from_pretrained(write_wordpieces(tmp_path_factory.mktemp("pieces")))


def encoded(tokenizer: TextTokenizer, text: str) -> tuple[np.ndarray, np.ndarray]:
    batch = tokenizer.encode([text])
    return batch.tokens[0].astype(np.int32), batch.words[0].astype(np.int32)


def specials(tokenizer: TextTokenizer) -> set[int | None]:
    return {tokenizer.pad_id, tokenizer.unk_id, tokenizer.mask_id, tokenizer.start_id, tokenizer.end_id}


# Images


@given(
    st.sampled_from(sorted(RULES)), st.integers(1, 50), st.sampled_from([0.0, 0.2, 0.9, 0.999]), st.integers(0, 10**6)
)
def test_at_least_one_element_stays(rule, count, rate, seed):
    """Of any number, at any rate; the same generator gives the same elements."""
    kept = RULES[rule](count, rate, generator(seed))
    assert kept.shape == (count,)
    assert kept.dtype == bool
    assert kept.any()
    np.testing.assert_array_equal(kept, RULES[rule](count, rate, generator(seed)))
    if rate == 0:
        assert kept.all()


def test_each_region_goes_with_the_rate():
    """A fifth goes, every place alike, and neighbours independently of each other."""
    draws = generator()
    kept = np.stack([keep_elements(36, RATE, draws) for _ in range(ROUNDS)])
    assert kept.mean() == pytest.approx(1 - RATE, abs=0.01)
    np.testing.assert_allclose(kept.mean(axis=0), 1 - RATE, atol=0.04)
    assert kept.sum(axis=1).var() == pytest.approx(36 * RATE * (1 - RATE), rel=0.15)


def test_the_one_that_stays_is_any_of_them():
    """Where all would go, none is preferred."""
    draws = generator()
    alone = Counter(int(keep_elements(4, 0.99, draws).argmax()) for _ in range(4000))
    assert set(alone) == {0, 1, 2, 3}
    assert min(alone.values()) > 800


def test_released_cells_follow_a_rate_of_their_own_picture():
    """r ~ U(0, 1): r ≤ 0.2 keeps all, otherwise each of N cells goes with 0.2 · r.

    With many cells the share that goes tells r: a fifth of the images are whole, the others lie evenly between
    0.04 and 0.2.
    """
    draws, cells = generator(), 20_000
    gone = np.array([1 - keep_cells_as_released(cells, RATE, draws).mean() for _ in range(1500)])
    whole = gone == 0
    assert whole.mean() == pytest.approx(RATE, abs=0.04)
    assert gone[~whole].min() > 0.2 * 0.2 - 0.01
    assert gone[~whole].max() < 0.2 + 0.01
    for share in (0.4, 0.6, 0.8):  # r is uniform: as many images below 0.2 · share as that share of all
        assert (gone <= 0.2 * share).mean() == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize(("chosen", "rate"), [(0.2, 0.0), (0.21, 0.042), (0.9, 0.18)])
def test_the_bound_of_the_released_rule(chosen, rate):
    """At r = 0.2 exactly all cells stay; above it a cell goes when its own draw is below 0.2 · r."""
    own = np.array([0.0, 0.03, 0.05, 0.17, 0.19, 0.5])
    draws = iter([chosen, own])
    scripted = SimpleNamespace(random=lambda count=None: next(draws))
    np.testing.assert_array_equal(keep_cells_as_released(6, 0.2, scripted), own >= rate)


def test_which_rule_an_image_gets():
    """``released`` differs from ``drop`` for cells of a grid alone; ``none`` keeps all."""
    assert image_elements("none", grid=True) is None
    assert image_elements("none", grid=False) is None
    assert image_elements("drop", grid=True) is image_elements("drop", grid=False) is keep_elements
    assert image_elements("released", grid=False) is keep_elements
    assert image_elements("released", grid=True) is keep_cells_as_released


# Words


def test_nothing_changes_without_augmentation(words):
    """``none``, or a rate of 0."""
    tokens, owners = encoded(words, "w1 w2 w3")
    for style, rate in (("none", 0.9), ("drop", 0.0), ("released", 0.0)):
        np.testing.assert_array_equal(TextAugmentation(style, rate, words)(tokens, owners, generator()), tokens)


@given(st.integers(0, 10**6), st.sampled_from(["drop", "released"]), st.sampled_from([0.2, 0.9, 0.999]))
def test_any_caption_keeps_something_and_is_repeatable(words, seed, style, rate):
    """At least one token, the same for the same generator, and the caller's array untouched."""
    tokens, owners = encoded(words, " ".join(LETTERS[: 1 + seed % 12]))
    before = tokens.copy()
    augment = TextAugmentation(style, rate, words)
    found = augment(tokens, owners, generator(seed))
    np.testing.assert_array_equal(tokens, before)
    np.testing.assert_array_equal(found, augment(tokens, owners, generator(seed)))
    assert 1 <= len(found) <= len(tokens)
    assert found.dtype == np.int32
    if style == "drop":
        kept = iter(tokens.tolist())
        assert all(token in kept for token in found.tolist())  # a subsequence


def test_words_are_dropped_at_the_rate_start_and_end_too(words):
    """Each token by itself, as in the released code."""
    tokens, owners = encoded(words, " ".join(LETTERS[:10]))
    augment, draws = TextAugmentation("drop", RATE, words), generator()
    seen: Counter[int] = Counter()
    for _ in range(ROUNDS):
        seen.update(augment(tokens, owners, draws).tolist())
    for token in tokens.tolist():
        assert seen[token] / ROUNDS == pytest.approx(1 - RATE, abs=0.04)
    assert set(seen) == set(tokens.tolist())


def test_the_released_fates_of_words(words):
    """Of the fifth that is changed half are masked, a tenth exchanged, the rest deleted."""
    tokens, owners = encoded(words, "w1 w1 w1 w1 w1 w1 w1 w1")
    own = set(tokens.tolist())
    augment, draws = TextAugmentation("released", RATE, words), generator()
    masked = exchanged = deleted = 0
    total = ROUNDS * len(tokens)
    others: Counter[int] = Counter()
    for _ in range(ROUNDS):
        found = augment(tokens, owners, draws)
        deleted += len(tokens) - len(found)
        masked += int((found == words.mask_id).sum())
        new = [token for token in found.tolist() if token not in own and token != words.mask_id]
        exchanged += len(new)
        others.update(new)
    assert masked / total == pytest.approx(0.5 * RATE, abs=0.01)
    assert exchanged / total == pytest.approx(0.1 * RATE * 39 / 40, abs=0.005)  # one of 40 is exchanged for itself
    assert deleted / total == pytest.approx(0.4 * RATE, abs=0.01)
    assert not specials(words) & set(others)
    assert len(others) == 39  # every other word, none beyond the vocabulary


def naive_released(tokens, owners, rate, tokenizer, seed):
    """One token after the other, with the draws in the order in which published runs made them."""
    draws = generator(seed)
    units = owners.tolist() if tokenizer.kind == "subwords" else list(range(len(tokens)))
    fates = draws.random(max(units) + 1)
    ordinary = [n for n in range(tokenizer.vocab_size) if n not in specials(tokenizer)]
    instead = draws.integers(len(ordinary), size=len(tokens))
    found, unit_stays = [], False
    for token, unit, other in zip(tokens.tolist(), units, instead.tolist(), strict=True):
        share = fates[unit] / rate
        if unit < 0 or share >= 1:
            found.append(token)
        elif share < 0.5:
            found.append(tokenizer.mask_id)
        elif share < 0.6:
            found.append(ordinary[other])
        else:
            continue
        unit_stays = unit_stays or unit >= 0
    if not unit_stays:
        last = int(np.argmax(fates))
        found = [token for token, unit in zip(tokens.tolist(), units, strict=True) if unit in {-1, last}]
    return found


@given(st.integers(0, 10**6), st.sampled_from([0.2, 0.9]), st.sampled_from(["words", "subwords"]))
def test_the_released_rule_equals_a_loop(words, pieces, seed, rate, kind):
    """Token by token, in their places, with the same draws."""
    tokenizer, text = (words, " ".join(LETTERS[: 1 + seed % 9])) if kind == "words" else (pieces, "dogs a snows runs")
    tokens, owners = encoded(tokenizer, text)
    found = TextAugmentation("released", rate, tokenizer)(tokens, owners, generator(seed))
    assert found.tolist() == naive_released(tokens, owners, rate, tokenizer, seed)


def test_a_tokenizer_without_a_mask_exchanges_instead():
    """Half and a tenth are then random words; nothing is masked with an id that does not exist."""
    plain = Vocabulary.build(LETTERS, min_count=1).tokenizer(60)
    special = plain.special
    bare = TextTokenizer(
        plain._tokenizer, max_length=60, kind="words", special=type(special)(0, unk=3, mask=None, start=1, end=2)
    )
    tokens, owners = encoded(bare, "w1 w1 w1 w1 w1 w1")
    augment, draws = TextAugmentation("released", RATE, bare), generator()
    found = [augment(tokens, owners, draws) for _ in range(ROUNDS)]
    changed = sum(int((~np.isin(each, tokens)).sum()) for each in found) / (ROUNDS * len(tokens))
    gone = 1 - sum(map(len, found)) / (ROUNDS * len(tokens))
    assert changed == pytest.approx(0.6 * RATE * 40 / 41, abs=0.01)
    assert gone == pytest.approx(0.4 * RATE, abs=0.01)


# Pieces of words


@given(st.integers(0, 10**6), st.sampled_from(["drop", "released"]), st.sampled_from([0.2, 0.9, 0.999]))
def test_pieces_of_a_word_share_its_fate_and_specials_stay(pieces, seed, style, rate):
    """ "dogs" is two pieces: both there, both masked, both exchanged or both gone; [CLS] and [SEP] always there."""
    tokens, owners = encoded(pieces, "dogs")
    assert owners.tolist() == [-1, 0, 0, -1]
    for text in ("dogs", "dogs snows runs dogs a"):
        tokens, owners = encoded(pieces, text)
        found = TextAugmentation(style, rate, pieces)(tokens, owners, generator(seed)).tolist()
        assert found[0] == pieces.start_id
        assert found[-1] == pieces.end_id
        assert len(found) >= 3
        assert pieces.start_id not in found[1:-1]
        assert pieces.end_id not in found[1:-1]
        if style == "drop":
            left, units = found[1:-1], [[6, 9], [8, 9], [7], [6, 9], [5]] if text != "dogs" else [[6, 9]]
            assert any(left == [piece for unit in chosen for piece in unit] for chosen in _subsequences(units))
    tokens, owners = encoded(pieces, "dogs")
    alone = TextAugmentation(style, rate, pieces)(tokens, owners, generator(seed)).tolist()
    assert len(alone) == 4  # one word: it stays whole, whatever becomes of it
    assert (alone[1] == pieces.mask_id) == (alone[2] == pieces.mask_id)


def _subsequences(units: list[list[int]]) -> list[list[list[int]]]:
    return [[unit for bit, unit in enumerate(units) if chosen >> bit & 1] for chosen in range(1, 2 ** len(units))]


def test_the_released_fates_of_whole_words(pieces):
    """Counted by words: 0.1 masked, 0.02 exchanged, 0.08 deleted; a random piece is never a special one."""
    tokens, owners = encoded(pieces, "dogs dogs dogs dogs dogs")
    augment, draws = TextAugmentation("released", RATE, pieces), generator()
    count = masked = deleted = 0
    new: set[int] = set()
    for _ in range(ROUNDS):
        found = augment(tokens, owners, draws)
        count += 5
        deleted += (len(tokens) - len(found)) // 2
        assert (len(tokens) - len(found)) % 2 == 0
        inside = found[1:-1].reshape(-1, 2)
        both = inside == pieces.mask_id
        assert (both[:, 0] == both[:, 1]).all()
        masked += int(both[:, 0].sum())
        new |= set(inside.ravel().tolist()) - {6, 9, pieces.mask_id}
    assert masked / count == pytest.approx(0.5 * RATE, abs=0.015)
    assert deleted / count == pytest.approx(0.4 * RATE, abs=0.015)
    assert new
    assert not specials(pieces) & new
    assert max(new) < pieces.vocab_size
