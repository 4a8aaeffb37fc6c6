"""Images of coefficients: one panel a size, the learned curve drawn as it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.pooling.support import RANK_POOLINGS, build

from vse.errors import InputError
from vse.pooling import RankPooling, plot_coefficients

Figure = pytest.importorskip("matplotlib.figure").Figure
DIM = 6


def panels(figure: Figure) -> list:
    return [axis for axis in figure.axes if axis.get_visible()]


def draws(axis, values) -> bool:
    """Whether one of the panel's lines has these values at the ranks 1 to N."""
    expected = np.asarray(values, dtype=float)
    for line in axis.get_lines():
        x, y = (np.asarray(data, dtype=float) for data in line.get_data())
        if len(y) == len(expected) and np.allclose(y, expected, atol=1e-6):
            return np.array_equal(x, np.arange(1, len(expected) + 1))
    return False


@pytest.mark.parametrize("sizes", [(5,), (5, 10), (1, 2, 3, 36), (1, 5, 9, 20, 100)])
def test_plot_has_one_panel_per_size(sizes):
    """Each size has a panel of its own, in the given order, with its number in the title."""
    figure = plot_coefficients(build("gpo"), sizes)
    assert isinstance(figure, Figure)
    assert len(panels(figure)) == len(sizes)
    for axis, size in zip(panels(figure), sizes, strict=True):
        assert str(size) in axis.get_title()


@pytest.mark.parametrize("name", [name for name in RANK_POOLINGS if name != "fspool"])
def test_the_curve_is_the_coefficients(name):
    """The values drawn are coefficients(N), beside those of mean pooling."""
    pool = build(name, DIM)
    for axis, size in zip(panels(plot_coefficients(pool, (4, 12))), (4, 12), strict=True):
        assert draws(axis, pool.coefficients(size))
        assert draws(axis, [1 / size] * size)


@pytest.mark.parametrize("name", ["fspool", "gpo-per-dimension"])
def test_coefficients_per_dimension_are_drawn_as_their_mean(name):
    """A pooling with coefficients per dimension shows their mean and how they spread."""
    pool = build(name, DIM)
    (axis,) = panels(plot_coefficients(pool, 12))
    assert draws(axis, pool.coefficients(12).mean(dim=1))
    assert axis.collections


def test_a_single_size_and_the_default():
    """sizes may be one number; without it several usual sizes are drawn."""
    assert len(panels(plot_coefficients(build("gpo"), 7))) == 1
    assert len(panels(plot_coefficients(build("gpo")))) > 1


def test_the_learned_curve_is_in_view():
    """No value of the learned curve falls outside its panel."""
    for name in ("gpo", "max", "fspool"):
        pool = build(name, DIM)
        curve = pool.coefficients(12)
        curve = curve if curve.dim() == 1 else curve.mean(dim=1)
        (axis,) = panels(plot_coefficients(pool, 12))
        low, high = axis.get_ylim()
        assert low <= float(curve.min())
        assert float(curve.max()) <= high


def test_a_frozen_pooling_can_be_drawn():
    """What has coefficients can be drawn, frozen tables too."""
    frozen = build("gpo").freeze(12)
    (axis,) = panels(plot_coefficients(frozen, 12))
    assert draws(axis, frozen.coefficients(12))


@pytest.mark.parametrize("k", [3, 50])
def test_k_is_drawn_when_given(k):
    """The K-max curve is that of the given K, all of the set when K is larger."""
    (axis,) = panels(plot_coefficients(build("gpo"), 8, k=k))
    used = min(k, 8)
    assert str(used) in axis.get_title()
    heights = {round(float(y), 6) for line in axis.get_lines() for y in line.get_ydata()}
    assert round(1 / used, 6) in heights


def test_plot_title_can_be_set():
    """A title replaces the default, which names the pooling's class."""
    assert "GPO" in plot_coefficients(build("gpo"), 5).get_suptitle()
    assert plot_coefficients(build("gpo"), 5, title="Mine").get_suptitle() == "Mine"


def test_plot_can_be_saved(tmp_path):
    """savefig writes a real PNG, without a display."""
    file = tmp_path / "curve.png"
    plot_coefficients(build("gpo"), (5, 36)).savefig(file)
    content = file.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 5000


def test_plotting_leaves_pooling_unchanged():
    """The pooling keeps its mode, its parameters and its gradients, and no global figure is left behind."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pool, before = build("gpo").train(), pyplot.get_fignums()
    state = {name: value.clone() for name, value in pool.state_dict().items()}
    plot_coefficients(pool, 5)
    assert pool.training
    assert all(torch.equal(state[name], value) for name, value in pool.state_dict().items())
    assert all(parameter.grad is None for parameter in pool.parameters())
    assert pyplot.get_fignums() == before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_coefficients(build("gpo"), ()), "sizes"),
        (lambda: plot_coefficients(build("gpo"), 0), "0"),
        (lambda: plot_coefficients(build("gpo"), (5, -2)), "-2"),
        (lambda: plot_coefficients(build("gpo"), (5, 2.5)), r"2\.5"),
        (lambda: plot_coefficients(build("gpo"), 5, k=0), "k.*0"),
        (lambda: plot_coefficients(build("gem"), 5), "GeMPool"),
        (lambda: plot_coefficients("gpo", 5), "str"),
        (lambda: plot_coefficients(build("gpo-data-dependent"), 5), "data-dependent"),
        (lambda: plot_coefficients(build("frozen"), 65), "65"),
    ],
)
def test_plot_names_bad_input(call, message):
    """Sizes that are none, poolings without coefficients and a bad K are InputErrors with the value."""
    with pytest.raises(InputError, match=message):
        call()


def test_every_rank_pooling_is_drawn():
    """The list of poolings that can be drawn is that of the poolings by rank."""
    assert all(isinstance(build(name, DIM), RankPooling) for name in RANK_POOLINGS)
