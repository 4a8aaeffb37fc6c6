"""Near-duplicates: groups are those of comparing every pair, whatever the lists and blocks."""

from __future__ import annotations

import json
import tempfile
import tracemalloc
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.index.examples import DIMENSIONS, VECTORS, directions, entry, picture
from tests.index.support import create

from vse.errors import InputError
from vse.index import duplicates
from vse.index.duplicates import leaders, near_duplicates
from vse.index.scoring import rounding
from vse.index.types import Collection, Entry, Moment

moment_kinds = st.tuples(
    st.integers(0, 2), st.sampled_from([1.0, 0.99, 0.95, 0.6])
)  # which base vector, cosine with it


def naive_groups(collection: Collection, threshold: float, flat: np.ndarray | None = None) -> set[frozenset[str]]:
    """Join files pair by pair in plain Python, until nothing changes."""
    files: dict[str, tuple[str, list[np.ndarray]]] = {}
    bound = threshold - rounding(DIMENSIONS)
    for ids, vectors in collection.all_vectors():
        for item, vector in zip(collection.items(ids.tolist()), vectors, strict=True):
            kind, moments = files.setdefault(item.file.path, (item.file.kind, []))
            if kind == "image" or flat is None or max(float(vector @ each) for each in flat) < threshold:
                moments.append(vector.astype(np.float64))
    groups = {path: {path} for path in files}
    for path, (kind, ours) in files.items():
        for other, (their_kind, theirs) in files.items():
            if path == other or kind != their_kind or not ours or not theirs:
                continue
            if kind == "image":
                alike = float(ours[0] @ theirs[0]) >= bound
            else:
                alike = shares(ours, theirs, bound) and shares(theirs, ours, bound)
            if alike and groups[path] is not groups[other]:
                joined = groups[path] | groups[other]
                for each in joined:
                    groups[each] = joined
    return {frozenset(group) for group in groups.values() if len(group) > 1}


def shares(ours, theirs, bound) -> bool:
    """Whether enough of our distinct moments are among theirs."""
    stretches: list[tuple[np.ndarray, list[np.ndarray]]] = []
    for moment in ours:
        near_ones = [each for each in stretches if float(each[0] @ moment) >= bound]
        if near_ones:
            max(near_ones, key=lambda each: float(each[0] @ moment))[1].append(moment)
        else:
            stretches.append((moment, [moment]))
    found = sum(
        any(float(moment @ their) >= bound for moment in moments for their in theirs) for _, moments in stretches
    )
    return found >= (len(stretches) if len(stretches) <= 2 else max(2, (len(stretches) + 1) // 2))


def near(base: np.ndarray, cosine: float, seed: int) -> np.ndarray:
    """Return a unit vector at this cosine."""
    other = directions(1, len(base), seed=1000 + seed)[0].astype(np.float64)
    other -= (other @ base) * base
    other /= np.linalg.norm(other)
    return (cosine * base + np.sqrt(1 - cosine**2) * other).astype(np.float32)


@given(
    clips=st.lists(st.tuples(st.booleans(), st.lists(moment_kinds, min_size=1, max_size=4)), max_size=9),
    threshold=st.sampled_from([0.5, 0.9, 0.97, 1.0]),
    lists=st.integers(1, 6),
    block=st.integers(1, 6),
    uniform=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_groups_are_those_of_comparing_every_pair(clips, threshold, lists, block, uniform):
    """For any number of lists and block size; moments of one file do not form a group."""
    with tempfile.TemporaryDirectory() as folder, create(Path(folder) / "c") as collection:
        for number, (is_video, moments) in enumerate(clips):
            made = [near(VECTORS[base], cosine, number * 10 + n) for n, (base, cosine) in enumerate(moments)]
            if is_video:
                spans = tuple(Moment(vector, float(n), n + 1.0) for n, vector in enumerate(made))
                collection.add([Entry(picture(f"{number}.mp4", kind="video"), spans)])
            else:
                collection.add([Entry(picture(f"{number}.jpg"), (Moment(made[0]),))])
        flat = VECTORS[:1] if uniform else None
        with patch.object(duplicates, "BLOCK", block):
            found = near_duplicates(collection, threshold, lists=lists, flat=flat)
        assert {frozenset(item.file.path for item in group) for group in found.groups} == naive_groups(
            collection, threshold, flat
        )


@pytest.mark.parametrize("threshold", [0.7, 0.9])
def test_lists_miss_no_pair_of_clustered_vectors(tmp_path, threshold):
    """Vectors in clusters, as of images, with copies at some distance: the bound between lists is exact."""
    centres = directions(12, 32, seed=1)
    vectors = 0.7 * centres[np.arange(600) % 12] + 0.7 * directions(600, 32, seed=2)
    vectors = np.concatenate([vectors, vectors[:200] + 0.5 * directions(200, 32, seed=4)])
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    with create(tmp_path / "c", 32) as collection:
        collection.add([entry(f"{n}.jpg", vector) for n, vector in enumerate(vectors)])
        one = near_duplicates(collection, threshold, lists=1)
        assert one.groups
        for lists in (None, 2, 25, 200):
            assert near_duplicates(collection, threshold, lists=lists) == one


def test_common_titles_do_not_join_videos(tmp_path):
    """Two black starts and a title in common are not enough; a copy with another title is found."""
    vectors = directions(20, DIMENSIONS, seed=6)
    black, title = vectors[0], vectors[1]
    clips = {
        "a": [black, black, title, *vectors[2:6]],
        "b": [black, black, title, *vectors[6:10]],
        "copy": [vectors[11], *vectors[2:6]],
        "short": [black],
    }
    with create(tmp_path / "c") as collection:
        for name, moments in clips.items():
            spans = tuple(Moment(vector, float(n), n + 1.0) for n, vector in enumerate(moments))
            collection.add([Entry(picture(f"{name}.mp4", kind="video"), spans)])
        collection.add([entry("still.jpg", vectors[3])])
        found = near_duplicates(collection, 0.98)
    assert [sorted(item.file.path for item in group) for group in found.groups] == [["a.mp4", "copy.mp4"]]


def test_a_chain_joins_across_blocks(tmp_path):
    """If a matches b and b matches c, they form one group, even if a and c do not match."""
    turns = [np.array([np.cos(angle), np.sin(angle)], np.float32) for angle in np.arange(0, 1.2, 0.2)]
    with create(tmp_path / "c", 2) as collection:
        collection.add([entry(f"{n}.jpg", vector) for n, vector in enumerate(turns)])
        for lists in (1, 2, 4, 100):
            found = near_duplicates(collection, 0.97, lists=lists)
            assert [len(group) for group in found.groups] == [len(turns)]


@pytest.mark.parametrize("dimensions", [8, 300, 1024])
def test_copies_have_a_cosine_of_one(tmp_path, dimensions):
    """Whatever the rounding of its length, each embedding joins its copy, and nothing that is merely near."""
    vectors = directions(60, dimensions, seed=8)
    away = [near(vector, 1 - 4 * rounding(dimensions), row) for row, vector in enumerate(vectors)]
    with create(tmp_path / "c", dimensions) as collection:
        for name, some in (("a", vectors), ("b", vectors), ("c", away)):
            collection.add([entry(f"{row}{name}.jpg", vector) for row, vector in enumerate(some)])
        found = near_duplicates(collection, 1.0, lists=5)
    groups = [[item.file.path for item in group] for group in found.groups]
    assert groups == [[f"{row}a.jpg", f"{row}b.jpg"] for row in range(60)]
    leading = leaders(np.concatenate([vectors, vectors, np.stack(away)]), 1.0)
    assert leading.tolist() == [*range(60), *range(60), *range(120, 180)]


def test_the_largest_comes_first(tmp_path):
    """Within a group by pixels, then bytes, then id; groups by their first file."""
    with create(tmp_path / "c") as collection:
        collection.add(
            [
                entry("small.jpg", VECTORS[0], width=10, height=10),
                entry("other.jpg", VECTORS[1]),
                entry("large.jpg", VECTORS[0], width=100, height=10),
                entry("heavy.jpg", VECTORS[0], width=10, height=10, size=99),
                entry("again.jpg", VECTORS[1]),
            ]
        )
        found = near_duplicates(collection)
    names = [[item.file.path for item in group] for group in found.groups]
    assert names == [["large.jpg", "heavy.jpg", "small.jpg"], ["other.jpg", "again.jpg"]]


def test_duplicates_json(tmp_path):
    """Ids and full paths, whatever bytes a name has."""
    with create(tmp_path / "c") as collection:
        collection.add([entry("a[b].jpg", VECTORS[0]), entry("new\nline\udcff.jpg", VECTORS[0])])
        found = near_duplicates(collection)
    told = json.loads(json.dumps(found.to_json()))
    assert [each["path"] for each in told["groups"][0]] == ["/photos/a[b].jpg", "/photos/new\nline\udcff.jpg"]


def test_duplicates_of_empty_collection(tmp_path):
    with create(tmp_path / "c") as collection:
        assert near_duplicates(collection).groups == ()


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.01, float("nan")])
def test_a_threshold_that_is_no_cosine_is_an_error(threshold, tmp_path):
    """One line with the value."""
    with create(tmp_path / "c") as collection, pytest.raises(InputError, match="threshold"):
        near_duplicates(collection, threshold)


@given(
    st.integers(1, 20), st.integers(0, 10_000), st.sampled_from([0.3, 0.6, 0.9]), st.integers(1, 20), st.integers(1, 5)
)
def test_leaders_are_decided_in_order(count, seed, threshold, at_once, block):
    """Each row follows the most similar earlier leader, else it leads; later rows do not matter.

    Neither do the block sizes.
    """
    vectors = directions(count, DIMENSIONS, seed=seed)
    expected: list[int] = []
    for row in range(count):
        before = [each for each in range(row) if expected[each] == each]
        best = max(before, key=lambda each: float(vectors[row] @ vectors[each]), default=row)
        expected.append(best if best != row and float(vectors[row] @ vectors[best]) >= threshold else row)
    with patch.multiple(duplicates, AT_ONCE=at_once, BLOCK=block):
        assert leaders(vectors, threshold).tolist() == expected
        assert leaders(vectors[: count // 2], threshold).tolist() == expected[: count // 2]


def test_leaders_of_many_take_little_memory():
    """The products of all pairs, 400 MB here, are never held at once."""
    vectors = directions(10_000, 4, seed=3)
    tracemalloc.start()
    leaders(vectors, 0.99)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6
