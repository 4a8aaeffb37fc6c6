"""The collapse guard: what it measures, when it speaks, what it remembers."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vse.training.guard import CollapseGuard, spread
from vse.training.recipe import GuardRecipe

LIMIT, PATIENCE = 0.02, 3
VALUES = st.sampled_from([0.0, 0.01, 0.0199, 0.02, 0.03, 0.04, 0.041, 0.5])
# Stretches of one value: single draws would hardly ever stay below or above for long enough.
COURSES = st.lists(st.tuples(VALUES, st.integers(1, 5)), max_size=12).map(
    lambda stretches: [value for value, length in stretches for _ in range(length)]
)


def guard(action: str = "soften") -> CollapseGuard:
    return CollapseGuard(GuardRecipe(action=action, spread=LIMIT, patience=PATIENCE), begun=True)


@given(st.integers(2, 9), st.integers(0, 1000), st.data())
def test_the_spread_equals_a_double_loop(count, seed, data):
    """One minus the mean cosine over ordered pairs of different images; pairs of one image do not count."""
    ids = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    vectors = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    vectors = torch.nn.functional.normalize(vectors, dim=1)
    cosines = [
        sum(a * b for a, b in zip(vectors[i].tolist(), vectors[j].tolist(), strict=True))
        for i in range(count)
        for j in range(count)
        if ids[i] != ids[j]
    ]
    expected = 1 - sum(cosines) / len(cosines) if cosines else 1.0
    assert spread(vectors, torch.tensor(ids)) == pytest.approx(expected, abs=1e-5)


def test_one_point_has_no_spread_and_captions_of_one_image_do_not_hide_it():
    """All vectors equal: 0. Three captions of each image: still only different images are compared."""
    point = torch.nn.functional.normalize(torch.ones(6, 8), dim=1)
    assert spread(point, torch.arange(6)) == pytest.approx(0, abs=1e-6)
    pair = torch.eye(2).repeat_interleave(3, dim=0)  # two images at a right angle
    assert spread(pair, torch.tensor([0, 0, 0, 1, 1, 1])) == pytest.approx(1)
    assert spread(pair.requires_grad_(), torch.tensor([0, 0, 0, 1, 1, 1])) == pytest.approx(1)
    half = spread(point.bfloat16(), torch.arange(6))
    assert isinstance(half, float)
    assert half == pytest.approx(0, abs=0.01)


def naive_events(values: list[float]) -> list[tuple[int, str]]:
    """Look back over the last steps at every step."""
    told, collapsed = [], False
    for step in range(len(values)):
        last = values[max(0, step + 1 - PATIENCE) : step + 1]
        if len(last) < PATIENCE:
            continue
        if not collapsed and all(value < LIMIT for value in last):
            collapsed = True
            told.append((step, "collapsed"))
        elif collapsed and all(value > 2 * LIMIT for value in last):
            collapsed = False
            told.append((step, "recovered"))
    return told


@given(COURSES)
def test_events_are_told_once_when_they_begin(values):
    """``patience`` steps in a row below the limit, then as many above twice the limit; nothing in between."""
    watch = guard()
    told = [(step, event) for step, value in enumerate(values) if (event := watch.observe(value)) is not None]
    assert told == naive_events(values)
    assert watch.softened == (len(told) % 2 == 1)


@pytest.mark.parametrize(("value", "recovers"), [(0.02, False), (0.03, False), (0.04, False), (0.041, True)])
def test_recovery_is_above_twice_the_limit(value, recovers):
    """Right above the limit a run may fall back at once: it stays softened."""
    watch = guard()
    for _ in range(PATIENCE):
        watch.observe(0.001)
    assert watch.softened
    events = [watch.observe(value) for _ in range(2 * PATIENCE)]
    assert ("recovered" in events) == recovers
    assert watch.softened != recovers


@pytest.mark.parametrize("action", ["warn", "stop", "soften", "off"])
def test_only_softening_softens_and_off_is_silent(action):
    """The same events for every action that watches; the loss changes with ``soften`` alone."""
    watch = guard(action)
    events = [watch.observe(0.001) for _ in range(10)]
    assert [event for event in events if event] == ([] if action == "off" else ["collapsed"])
    assert watch.softened == (action == "soften")
    assert [event for _ in range(5) if (event := watch.observe(0.9))] == ([] if action == "off" else ["recovered"])
    assert not watch.softened


@given(COURSES, st.integers(0, 30))
def test_a_restart_changes_nothing(values, stop):
    """State through JSON in the middle: the same events as without."""
    straight, before = guard(), guard()
    expected = [straight.observe(value) for value in values]
    found = [before.observe(value) for value in values[:stop]]
    state = json.loads(json.dumps(before.to_json()))
    after = CollapseGuard(before.recipe, **state)
    found += [after.observe(value) for value in values[stop:]]
    assert found == expected
    assert after == straight


def test_a_bunched_beginning_is_no_collapse():
    """Random networks may begin close together: silence until they have spread once, or for ten patiences."""
    recipe = guard().recipe
    learning = CollapseGuard(recipe)
    assert [learning.observe(0.001) for _ in range(10 * PATIENCE)] == [None] * (10 * PATIENCE)
    learning.observe(0.5)
    assert [event for _ in range(PATIENCE) if (event := learning.observe(0.001))] == ["collapsed"]
    dead = CollapseGuard(recipe)
    events = [dead.observe(0.001) for _ in range(12 * PATIENCE)]
    assert events.count("collapsed") == 1
    assert events.index("collapsed") == 11 * PATIENCE - 1
