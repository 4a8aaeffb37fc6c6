"""Constructor arguments and names: what is outside the valid range is an InputError that names the value."""

from __future__ import annotations

import pytest
import torch
from tests.pooling.support import NEEDS_DIM

from vse.errors import InputError
from vse.pooling import (
    GPO,
    AvgPool,
    FSPool,
    GeMPool,
    KMaxPool,
    SizeAugmentation,
    TopPercentPool,
    create_pooling,
    drop_elements,
    list_poolings,
)


def test_names_are_those_of_the_documentation():
    """list_poolings is exactly the thirteen documented names."""
    expected = "avg max k-max top-percent linear gem fspool cls self-attention seq2seq gcn-avg gcn-seq2seq gpo"
    assert list_poolings() == expected.split()


@pytest.mark.parametrize("name", ["kmax", "", "GPO", None])
def test_unknown_pooling_lists_the_valid_names(name):
    """The error shows the name as given and every valid name."""
    with pytest.raises(InputError) as caught:
        create_pooling(name)
    assert repr(name) in str(caught.value)
    assert all(valid in str(caught.value) for valid in list_poolings())


@pytest.mark.parametrize("name", list_poolings())
def test_unknown_pooling_option_is_named(name):
    """An option the pooling does not have is an InputError with the option and the pooling's name."""
    options = {"k": 3} if name == "k-max" else {"percent": 5} if name == "top-percent" else {}
    options |= {"dim": 4} if name in NEEDS_DIM else {}
    with pytest.raises(InputError, match=rf"{name}.*colour"):
        create_pooling(name, **options, colour="red")


@pytest.mark.parametrize("name", [*sorted(NEEDS_DIM), "k-max", "top-percent"])
def test_missing_pooling_option_is_named(name):
    """A pooling that cannot do without an option says which."""
    missing = {"k-max": "k", "top-percent": "percent"}.get(name, "dim")
    with pytest.raises(InputError, match=rf"{name}.*'{missing}'"):
        create_pooling(name)


def test_ready_pooling_passes_through():
    """An object is accepted where a name is, without options."""
    pool = GPO()
    assert create_pooling(pool) is pool
    with pytest.raises(InputError, match=r"temperature.*GPO"):
        create_pooling(pool, temperature=1.0)


def test_names_build_the_named_class():
    """A name and the class behind it are two ways to the same pooling."""
    assert isinstance(create_pooling("avg"), AvgPool)
    assert create_pooling("k-max", k=7).k == 7
    assert create_pooling("gpo", temperature=0.5).temperature == 0.5
    assert create_pooling("avg", check_finite=True).check_finite


@pytest.mark.parametrize("value", [0, -1, 2.5, "3", True, None])
@pytest.mark.parametrize(
    ("build", "name"),
    [
        (KMaxPool, "k"),
        (FSPool, "dim"),
        (lambda dim: create_pooling("self-attention", dim=dim), "dim"),
        (lambda dim: create_pooling("seq2seq", dim=dim), "dim"),
        (lambda dim: create_pooling("gcn-avg", dim=dim), "dim"),
        (lambda blocks: create_pooling("gcn-seq2seq", dim=4, blocks=blocks), "blocks"),
        (lambda knots: FSPool(4, knots=knots), "knots"),
        (lambda d_hidden: GPO(d_hidden=d_hidden), "d_hidden"),
        (lambda d_pe: GPO(d_pe=d_pe), "d_pe"),
        (lambda max_size: GPO(position="index", max_size=max_size), "max_size"),
        (lambda knots: GPO(decoder="interpolation", knots=knots), "knots"),
        (lambda size: GPO().coefficients(size), "size"),
        (lambda size: GPO().table(size), "max_size"),
        (lambda size: GPO().freeze(size), "max_size"),
    ],
)
def test_sizes_are_whole_numbers_from_one(build, name, value):
    """Anything but a whole number of at least one (two, for knots) is refused with its value."""
    with pytest.raises(InputError, match=rf"{name}.*{value!r}"):
        build(value)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TopPercentPool(0), "percent.*0"),
        (lambda: TopPercentPool(-5), "percent.*-5"),
        (lambda: TopPercentPool(100.5), r"percent.*100\.5"),
        (lambda: TopPercentPool(float("nan")), "percent.*nan"),
        (lambda: TopPercentPool("50"), "percent.*'50'"),
        (lambda: GPO(temperature=0), "temperature.*0"),
        (lambda: GPO(temperature=-0.1), r"temperature.*-0\.1"),
        (lambda: GPO(temperature=float("inf")), "temperature.*inf"),
        (lambda: GPO(temperature=float("nan")), "temperature.*nan"),
        (lambda: GPO(d_pe=31), "d_pe.*31"),
        (lambda: GPO(decoder="transformer", d_hidden=30), "d_hidden.*30"),
        (lambda: GPO(position="learned"), "position.*'learned'.*'sincos'.*'index'"),
        (lambda: GPO(decoder="lstm"), "decoder.*'lstm'.*'bigru'.*'transformer'.*'mlp'.*'interpolation'"),
        (lambda: GPO(head="deep"), "head.*'deep'.*'linear'.*'mlp'"),
        (lambda: GPO(first_position=-1), "first_position.*-1"),
        (lambda: GPO(per_dimension=True), "dim"),
        (lambda: GPO(data_dependent=True), "dim"),
        (lambda: GPO(dim=0, per_dimension=True), "dim.*0"),
        (lambda: GPO(decoder="interpolation", data_dependent=True, dim=4), "interpolation"),
        (lambda: GPO().freeze(4, beyond="guess"), "beyond.*'guess'.*'error'.*'stretch'"),
        (lambda: GeMPool(p=0), "p must.*0"),
        (lambda: GeMPool(p=float("nan")), "p must.*nan"),
        (lambda: GeMPool(eps=0), "eps.*0"),
        (lambda: SizeAugmentation(1.0), r"rate.*1\.0"),
        (lambda: SizeAugmentation(-0.1), r"rate.*-0\.1"),
        (lambda: SizeAugmentation(float("nan")), "rate.*nan"),
        (lambda: drop_elements(torch.randn(1, 2, 3), rate=1.5), r"rate.*1\.5"),
    ],
)
def test_values_out_of_range_are_named(build, message):
    """The message names the argument, the value and, for a closed set, the choices."""
    with pytest.raises(InputError, match=message):
        build()
