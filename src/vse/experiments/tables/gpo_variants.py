"""The paper's tab:gpo_rnn, tab:gpo_per_dim and tab:gpo_data_dep: other ways to make the coefficients of a GPO."""

from __future__ import annotations

from vse.experiments.call import Call
from vse.experiments.grid.plan import Claim
from vse.experiments.grid.report import GridResult
from vse.experiments.photo_table import Changes, prepare, run_table

PLAIN = "GPO (BiGRU)"


def _on_both(option: str) -> Changes:
    return tuple(f'model.{side}.pooling={{name = "gpo", options = {{{option}}}}}' for side in ("image", "text"))


def run_sequence_model(call: Call) -> GridResult:
    """A Transformer in the place of the BiGRU that reads the ranks."""
    return _run(call, "sequence-model", "The sequence model of GPO", "GPO (Transformer)", 'decoder = "transformer"')


def run_per_dimension(call: Call) -> GridResult:
    """Coefficients of their own for each dimension."""
    return _run(call, "per-dimension", "Coefficients per dimension", "GPO per dimension", "per_dimension = true")


def run_data_dependent(call: Call) -> GridResult:
    """Coefficients that depend on the features too, not on the ranks alone."""
    return _run(call, "data-dependent", "Data-dependent coefficients", "GPO data-dependent", "data_dependent = true")


def _run(call: Call, name: str, title: str, label: str, option: str) -> GridResult:
    """The paper finds the plain GPO as good or better on all three."""
    return run_table(
        call,
        prepare(call),
        name=name,
        title=title,
        panels={"": {PLAIN: (), label: _on_both(option)}},
        claims=[Claim(PLAIN, label)],
        seeds=(0, 1),
    )
