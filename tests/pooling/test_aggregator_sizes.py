"""How many parameters each aggregator has at D = 1024, against the paper's table."""

from __future__ import annotations

import pytest
from tests.pooling.support import NEEDS_DIM

from vse.pooling import create_pooling

MILLIONS = {"seq2seq": 6.3, "gcn-avg": 4.2, "gcn-seq2seq": 23.1, "self-attention": 3.2}
EXACT = {
    "avg": 0, "max": 0, "k-max": 0, "top-percent": 0, "linear": 0, "cls": 0, "gem": 1, "fspool": 21 * 1024,
    "gpo": 12_704,
}  # fmt: skip


def _parameters(name: str) -> int:
    options = {"k-max": {"k": 5}, "top-percent": {"percent": 50}}.get(name, {})
    pool = create_pooling(name, **options, **({"dim": 1024} if name in NEEDS_DIM else {}))
    return sum(parameter.numel() for parameter in pool.parameters())


@pytest.mark.parametrize("name", MILLIONS)
def test_aggregators_have_the_papers_size(name):
    """Millions of parameters, to the digit the paper prints (self-attention: about)."""
    tolerance = 0.1 if name == "self-attention" else 0.051
    assert _parameters(name) / 1e6 == pytest.approx(MILLIONS[name], abs=tolerance)


@pytest.mark.parametrize("name", EXACT)
def test_simple_poolings_have_few_parameters(name):
    """GPO has 12,704 parameters, GeM its exponent, FSPool its knots, the others none."""
    assert _parameters(name) == EXACT[name]
