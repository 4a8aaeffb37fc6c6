"""Poolings whose percentage is searched in training: drawn at first, then selected on dev and kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.training.support import tiny_recipe, write_pairs
from torch import nn

import vse
from vse.convert.onnx_export import export_onnx
from vse.errors import InputError
from vse.models.inspection import inspect_folder
from vse.pooling import TopPercentPool, create_pooling
from vse.progress import SilentProgress
from vse.training import train
from vse.training.distributed import Ranks
from vse.training.log import read_metrics
from vse.training.schedule import PoolingSearch

SEARCHED = {"name": "top-percent", "options": {"percent": "search"}}


class Notes(SilentProgress):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, message: str) -> None:
        self.said.append(message)


class Impatient(SilentProgress):
    """Interrupts after a number of steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def advance(self, amount: int = 1, message: str = "") -> None:
        self.left -= amount
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("search") / "data")


def searching(data: Path, **changes: object):
    """Both sides searched in the first two of four epochs."""
    image = {"kind": "region", "feature_size": 16, "hidden_size": 8, "head": "linear", "pooling": SEARCHED}
    model = {"embed_size": 16, "image": image, "text": {"kind": "bigru", "word_size": 8, "pooling": SEARCHED}}
    schedule = {"epochs": 4, "batch_size": 16, "decay_epochs": 1, "search_epochs": 2}
    return tiny_recipe(data, **({"model": model, "schedule": schedule} | changes))


def test_searched_percent_begins_as_the_average():
    """A new pooling is the mean; the percentage is part of its state."""
    pool = create_pooling("top-percent", percent="search")
    features = torch.randn(3, 10, 4)
    torch.testing.assert_close(pool(features), features.mean(1))
    pool.found.fill_(30.0)
    torch.testing.assert_close(pool(features), TopPercentPool(30)(features))
    other = create_pooling("top-percent", percent="search")
    other.load_state_dict(pool.state_dict())
    torch.testing.assert_close(other.freeze(12)(features), TopPercentPool(30)(features))
    assert repr(other) == "TopPercentPool(percent='search', found=30)"


def test_search_draws_all_candidates_and_selects_the_best():
    """Each pooling by itself; the same step draws the same, and nothing is drawn after the search."""
    pools = nn.ModuleList([TopPercentPool("search"), TopPercentPool("search"), TopPercentPool(10)])
    search = PoolingSearch(pools, seed=0, steps=200)
    drawn = []
    for step in range(200):
        search.draw(step)
        drawn.append((float(pools[0].found), float(pools[1].found)))
    assert {one for one, _ in drawn} == {two for _, two in drawn} == set(TopPercentPool.CANDIDATES)
    search.draw(0)
    assert (float(pools[0].found), float(pools[1].found)) == drawn[0]
    assert search.settle(100, lambda: 0.0, Ranks()) == []
    assert float(pools[0].found) == 100
    found = search.settle(200, lambda: -abs(float(pools[0].found) - 20) - abs(float(pools[1].found) - 70), Ranks())
    assert found == [20, 70]
    search.draw(200)
    assert search.settle(300, lambda: 0.0, Ranks()) == []
    assert [float(pool.found) for pool in pools[:2]] == [20, 70]


def test_run_with_searched_poolings_keeps_what_it_selects(data, tmp_path):
    """The report names the percentages, and the saved model pools with them."""
    notes = Notes()
    result = train(searching(data), tmp_path / "run", progress=notes)
    (said,) = [line for line in notes.said if line.startswith("poolings take the largest")]
    last = vse.load(str(tmp_path / "run" / "last"))
    found = [module.found.item() for module in last.modules() if isinstance(module, TopPercentPool)]
    assert said == f"poolings take the largest {found[0]:g} %, {found[1]:g} % from now on"
    assert result.model.is_dir()


def test_run_with_searched_poolings_resumes_exactly(data, tmp_path):
    """Interrupted in the search and after it, a run ends with the same figures."""
    train(searching(data), tmp_path / "whole")
    recipe = searching(data, run={"threads": 1, "readers": 1, "checkpoint_minutes": 1e-9})
    for steps in (5, 16):
        with pytest.raises(KeyboardInterrupt):
            train(recipe, tmp_path / "parts", progress=Impatient(steps))
    train(recipe, tmp_path / "parts")
    assert read_metrics(tmp_path / "parts") == read_metrics(tmp_path / "whole")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schedule": {"epochs": 4, "decay_epochs": 1}}, r"search_epochs is 0: a searched pooling needs 1 to 3"),
        ({"schedule": {"epochs": 2, "decay_epochs": 1, "search_epochs": 2}}, r"needs 1 to 1 of the 2 epochs"),
        ({"run": {"average": 0.9}}, r"run\.average is not for a pooling"),
    ],
)
def test_search_that_cannot_work_is_refused(data, changes, message):
    """No epochs to search in, none to train afterwards, or an average over drawn percentages."""
    with pytest.raises(InputError, match=message):
        searching(data, **changes)


HELD = {"name": "gpo", "options": {"start": 50}}
AVERAGED = {
    "embed_size": 16,
    "image": {"kind": "region", "feature_size": 16, "hidden_size": 8, "pooling": "avg"},
    "text": {"kind": "bigru", "word_size": 8, "pooling": "avg"},
}


def holding(data: Path, **changes: object):
    """GPO on both sides, held at half of the values in the first two of four epochs, with weight decay."""
    image = {"kind": "region", "feature_size": 16, "hidden_size": 8, "head": "linear", "pooling": HELD}
    model = {"embed_size": 16, "image": image, "text": {"kind": "bigru", "word_size": 8, "pooling": HELD}}
    schedule = {"epochs": 4, "batch_size": 16, "decay_epochs": 1, "pooling_from": 2}
    optimizer = {"weight_decay": 0.1}
    return tiny_recipe(data, **({"model": model, "schedule": schedule, "optimizer": optimizer} | changes))


def gpo_weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: value for name, value in vse.load(str(folder)).state_dict().items() if "pooling." in name}


def test_held_gpo_resumes_exactly_and_is_saved(data, tmp_path):
    """Held and then trained, interrupted in both, a run ends with the same figures and weights; exports and curves
    have its coefficients.
    """
    train(holding(data), tmp_path / "whole")
    recipe = holding(data, run={"threads": 1, "readers": 1, "checkpoint_minutes": 1e-9})
    states = []
    for steps in (2, 5, 18):
        with pytest.raises(KeyboardInterrupt):
            train(recipe, tmp_path / "parts", progress=Impatient(steps))
        (state,) = (tmp_path / "parts").glob("checkpoint-*/state.safetensors")
        states.append(load_file(state))
    early, later, trained = states
    for name, value in early.items():
        if "pooling." in name:  # no gradient, no weight decay, no state in the optimizer
            assert name.startswith("model|")
            assert torch.equal(later[name], value)
            assert not torch.equal(trained[name], value)
    rest = [name for name in early if name.startswith("model|") and "pooling." not in name]
    assert any(not torch.equal(early[name], later[name]) for name in rest)
    train(recipe, tmp_path / "parts")
    assert read_metrics(tmp_path / "parts") == read_metrics(tmp_path / "whole")
    whole, parts = gpo_weights(tmp_path / "whole/last"), gpo_weights(tmp_path / "parts/last")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    model = vse.load(str(tmp_path / "whole/last"))
    curves = inspect_folder(tmp_path / "whole/last").curves
    expected = model.image_encoder.pooling.coefficients(curves[0].size)
    torch.testing.assert_close(torch.tensor(curves[0].coefficients), expected)
    assert 0.8 < float(expected[: curves[0].size // 2].sum()) < 1
    report = export_onnx(model, tmp_path / "export", largest_set=40)
    assert max(tower.max_difference for tower in report.agreement.values()) < 1e-5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schedule": {"epochs": 4, "decay_epochs": 1, "pooling_from": 4}}, "leaves no epoch of 4 that trains GPO"),
        ({"model": AVERAGED}, "no side of the model is pooled with GPO"),
    ],
)
def test_held_gpo_that_is_never_trained_is_refused(data, tmp_path, changes, message):
    """No epoch left for it, or no GPO."""
    with pytest.raises(InputError, match=message):
        train(holding(data, **changes), tmp_path)
