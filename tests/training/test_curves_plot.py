"""The plot of a run shows what its log says."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest

from vse.training.curves_plot import LINES, SMOOTHING, plot_training

pytest.importorskip("matplotlib")


def run(epochs: int = 4, per_epoch: int = 5, *, averaged: bool = False, scale: float = 1.0) -> list[dict[str, Any]]:
    """The lines of a run, with numbers that all differ."""
    lines: list[dict[str, Any]] = []
    for epoch in range(epochs):
        lines += [
            {"kind": "step", "step": step, "epoch": epoch, "loss": scale * (9 - step / 10), "spread": step / 100}
            for step in range(epoch * per_epoch, (epoch + 1) * per_epoch)
        ]
        dev = {"rsum": scale * (100 + 10 * epoch - (14 if epoch == epochs - 1 else 0))}  # the best is not the last
        line = {"kind": "epoch", "step": (epoch + 1) * per_epoch, "epoch": epoch, "dev": dev}
        lines.append(line | ({"dev_averaged": {"rsum": dev["rsum"] + 3}} if averaged else {}))
    return lines


def curves(axis: Any) -> list[tuple[list[float], list[float]]]:
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in axis.get_lines()]


def test_training_curves_of_one_run():
    """Loss and spread at every step, rsum at the end of each epoch, x in epochs."""
    figure = plot_training({"one": run()}, title="a title")
    loss, spread, rsum = figure.axes
    ((x, y),) = curves(loss)
    assert x == pytest.approx([step / 5 for step in range(20)])
    assert y == pytest.approx([9 - step / 10 for step in range(20)])
    ((x, y),) = curves(spread)
    assert x == pytest.approx([step / 5 for step in range(20)])
    assert y == pytest.approx([step / 100 for step in range(20)])
    ((x, y),) = curves(rsum)
    assert x == [1, 2, 3, 4]
    assert y == [100, 110, 120, 116]
    (best,) = rsum.texts
    assert best.get_text() == "120.0"
    assert best.xy == (3, 120)
    assert figure.get_suptitle() == "a title"
    assert [text.get_text() for text in rsum.get_legend().get_texts()] == ["one"]
    assert all(axis.get_xlabel() == "epoch" and axis.get_title(loc="left") for axis in figure.axes)


def test_a_part_of_a_run_keeps_its_place():
    """Lines from the second epoch on are drawn from there on."""
    loss, _, rsum = plot_training({"one": run()[6:]}).axes
    assert curves(loss)[0][0] == pytest.approx([step / 5 for step in range(5, 20)])
    assert curves(rsum)[0][0] == [2, 3, 4]


def test_several_runs_share_the_axis_of_epochs():
    """Runs of other batch sizes lie over each other, each in its own colour, named in the legend."""
    runs = {f"run {n}": run(per_epoch=3 + n, scale=1 + n) for n in range(len(LINES) + 1)}
    figure = plot_training(runs)
    loss, _, rsum = figure.axes
    assert len(curves(loss)) == len(curves(rsum)) == len(runs)
    for number, (x, y) in enumerate(curves(loss)):
        assert x == pytest.approx([step / (3 + number) for step in range(4 * (3 + number))])
        assert y[0] == 9 * (1 + number)
    colours = [line.get_color() for line in rsum.get_lines()]
    assert len(set(colours)) == len(LINES)
    assert [line.get_color() for line in loss.get_lines()] == colours
    assert [text.get_text() for text in rsum.get_legend().get_texts()] == list(runs)


def test_averaged_weights_are_a_line_of_their_own():
    """Dotted, in the colour of the run."""
    rsum = plot_training({"one": run(averaged=True)}).axes[2]
    plain, averaged = rsum.get_lines()
    assert list(averaged.get_ydata()) == [103, 113, 123, 119]
    assert list(averaged.get_xdata()) == [1, 2, 3, 4]
    assert averaged.get_linestyle() == ":"
    assert averaged.get_color() == plain.get_color()
    assert averaged.get_label() == "one, averaged weights"


def test_events_are_marked_where_they_happened():
    """A vertical line in the image of the spread at the epoch of each event."""
    lines = run()
    lines += [{"kind": "event", "step": step, "epoch": 1, "event": "collapsed", "spread": 0.0} for step in (7, 15)]
    loss, spread, rsum = plot_training({"one": lines}).axes
    assert [x for x, y in curves(spread)[1:]] == [[1.4, 1.4], [3.0, 3.0]]
    assert len(curves(loss)) == len(curves(rsum)) == 1


@pytest.mark.parametrize("steps", [59, 60, 61, 1234])
def test_long_runs_are_smoothed_by_means(steps):
    """At most sixty points, each the mean of its steps, in order; nothing is left out."""
    lines = run(epochs=1, per_epoch=steps)
    ((x, y),) = curves(plot_training({"one": lines}).axes[0])
    assert len(x) == len(y) == min(SMOOTHING, steps)
    weights = [len(part) for part in np.array_split(np.arange(steps), len(x))]
    assert max(weights) - min(weights) <= 1
    assert np.average(y, weights=weights) == pytest.approx(np.mean([9 - step / 10 for step in range(steps)]))
    assert np.average(x, weights=weights) == pytest.approx(np.mean(np.arange(steps) / steps))
    assert x == sorted(x)


def test_a_loss_that_falls_far_has_a_logarithmic_axis():
    """So that its end can be seen; one that falls a little keeps a plain axis."""
    lines = run()
    for line in lines:
        if line["kind"] == "step":
            line["loss"] = 10.0 ** (-line["step"] / 5)
    assert plot_training({"one": lines}).axes[0].get_yscale() == "log"
    assert plot_training({"one": run()}).axes[0].get_yscale() == "linear"


def test_a_missing_value_is_a_gap():
    """A step whose loss was written as null draws nothing there, and the image is made."""
    lines = run()
    lines[3]["loss"] = None
    figure = plot_training({"one": lines})
    ((_, y),) = curves(figure.axes[0])
    assert [index for index, value in enumerate(y) if np.isnan(value)] == [3]
    figure.savefig(BytesIO())


def test_a_run_without_an_epoch_is_left_out():
    """Beside others it is not drawn; alone it gives empty axes, not an error."""
    figure = plot_training({"begun": run()[:3], "one": run()})
    assert [line.get_label() for line in figure.axes[2].get_lines()] == ["one"]


@pytest.mark.filterwarnings("error")
def test_nothing_to_draw_is_no_error():
    """No warning either: the library says nothing by itself."""
    figure = plot_training({"begun": run()[:3]})
    assert [len(curves(axis)) for axis in figure.axes] == [0, 0, 0]
