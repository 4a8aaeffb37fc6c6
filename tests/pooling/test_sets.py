"""Bad input: every wrong call is an InputError, a ValueError, whose message names what was wrong."""

from __future__ import annotations

import pytest
import torch
from tests.pooling.support import ALL, NAMES, NEEDS_DIM, build

from vse.errors import InputError
from vse.pooling import drop_elements, sorted_weighted_sum

FEATURES = torch.randn(2, 5, 6)
FULL = torch.ones(2, 5, dtype=torch.bool)

BAD = {
    "empty sets": ({"features": torch.randn(2, 0, 6)}, r"\(2, 0, 6\).*at least one element"),
    "rank 2": ({"features": torch.randn(5, 6)}, r"\(5, 6\)"),
    "rank 4": ({"features": torch.randn(1, 2, 5, 6)}, r"\(1, 2, 5, 6\)"),
    "integer features": ({"features": torch.ones(2, 5, 6, dtype=torch.int64)}, "int64"),
    "complex features": ({"features": torch.ones(2, 5, 6, dtype=torch.complex64)}, "complex64"),
    "features not a tensor": ({"features": [[[1.0] * 6] * 5] * 2}, "list"),
    "length zero": ({"lengths": torch.tensor([5, 0])}, r"lengths\[1\] is 0"),
    "length negative": ({"lengths": torch.tensor([-3, 5])}, r"lengths\[0\] is -3"),
    "length beyond N": ({"lengths": torch.tensor([5, 7])}, r"lengths\[1\] is 7.*5"),
    "lengths float": ({"lengths": torch.tensor([5.0, 2.0])}, "float32"),
    "lengths bool": ({"lengths": torch.tensor([True, True])}, "bool"),
    "lengths too many": ({"lengths": torch.tensor([5, 2, 1])}, r"\(2,\).*\(3,\)"),
    "lengths of two axes": ({"lengths": torch.tensor([[5], [2]])}, r"\(2,\).*\(2, 1\)"),
    "lengths list of float": ({"lengths": [5.0, 2.0]}, r"\[5\.0, 2\.0\]"),
    "lengths list of bool": ({"lengths": [True, True]}, r"\[True, True\]"),
    "lengths list too short": ({"lengths": [5]}, r"\(2,\).*\(1,\)"),
    "lengths list zero": ({"lengths": [0, 5]}, r"lengths\[0\] is 0"),
    "lengths a number": ({"lengths": 5}, "int"),
    "lengths a string": ({"lengths": "55"}, "str"),
    "both": ({"lengths": torch.tensor([5, 2]), "mask": FULL}, "lengths or mask, not both"),
    "mask all false": ({"mask": torch.tensor([[True] * 5, [False] * 5])}, r"mask\[1\] is all False"),
    "mask of numbers": ({"mask": torch.ones(2, 5)}, "float32"),
    "mask of bytes": ({"mask": torch.ones(2, 5, dtype=torch.uint8)}, "uint8"),
    "mask too short": ({"mask": torch.ones(2, 4, dtype=torch.bool)}, r"\(2, 5\).*\(2, 4\)"),
    "mask of one axis": ({"mask": torch.ones(5, dtype=torch.bool)}, r"\(2, 5\).*\(5,\)"),
    "mask not a tensor": ({"mask": [[True] * 5] * 2}, "list"),
    "lengths elsewhere": ({"lengths": torch.ones(2, dtype=torch.int64, device="meta")}, "meta.*cpu"),
    "mask elsewhere": ({"mask": torch.ones(2, 5, dtype=torch.bool, device="meta")}, "meta.*cpu"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("name", ALL)
def test_every_pooling_refuses_sets_that_do_not_fit(name, case):
    """Features, lengths and masks that make no batch of sets are refused by every pooling in the same words."""
    call, message = BAD[case]
    pool = build(name, 6)
    with pytest.raises(InputError, match=message) as caught:
        pool(**{"features": FEATURES, **call})
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("case", [case for case, (call, _) in BAD.items() if "lengths" not in call])
def test_functions_refuse_the_same(case):
    """The functional core checks what it is given as the modules do."""
    call, message = BAD[case]
    arguments = {"features": FEATURES, **call}
    with pytest.raises(InputError, match=message):
        sorted_weighted_sum(weights=torch.ones(5), **arguments)
    with pytest.raises(InputError, match=message):
        drop_elements(**arguments)


@pytest.mark.parametrize("lengths", [[3, 5], (3, 5), torch.tensor([3, 5]), torch.tensor([3, 5], dtype=torch.uint8)])
def test_lengths_come_as_tensor_or_sequence(lengths):
    """Tensors of any integer dtype, lists and tuples of whole numbers mean the same lengths."""
    pool = build("gpo")
    expected = pool(FEATURES, mask=torch.arange(5) < torch.tensor([[3], [5]]))
    torch.testing.assert_close(pool(FEATURES, lengths=lengths), expected, rtol=0, atol=0)
    torch.testing.assert_close(pool(FEATURES, lengths), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", [*sorted(NEEDS_DIM), "gpo-per-dimension", "gpo-data-dependent"])
def test_pooling_refuses_features_of_another_width(name):
    """A pooling made for one feature size names its own and the given one when they differ."""
    with pytest.raises(InputError, match="7"):
        build(name, 6)(torch.randn(2, 5, 7))


@pytest.mark.parametrize("name", [*NAMES, "gpo-data-dependent", "gpo-per-dimension"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
class TestCheckFinite:
    """check_finite concerns valid elements, at construction and per call."""

    @staticmethod
    def _features(value: float, row: int) -> torch.Tensor:
        features = torch.rand(2, 5, 6) + 0.5
        features[1, row, 4] = value
        return features

    def test_check_finite_at_construction(self, name, value):
        """A pooling built to check refuses the value where it is valid and says what it is and where."""
        pool = build(name, 6, check_finite=True)
        message = rf"1 feature values.*set 1, element 2, dimension 4: {str(value).replace('+', '')}"
        for sets in ({}, {"lengths": [5, 3]}, {"mask": torch.tensor([[True] * 5, [False, False, True, True, False]])}):
            with pytest.raises(InputError, match=message):
                pool(self._features(value, 2), **sets)

    def test_check_finite_per_call(self, name, value):
        """The call decides over the constructor, both ways."""
        features = self._features(value, 2)
        with pytest.raises(InputError, match="not finite"):
            build(name, 6)(features, check_finite=True)
        assert build(name, 6, check_finite=True)(features, check_finite=False).shape == (2, 6)

    def test_check_finite_ignores_padding(self, name, value):
        """The value in a padded element is no error."""
        pool = build(name, 6, check_finite=True)
        features = self._features(value, 4)
        assert pool(features, lengths=[5, 3]).isfinite().all()
        assert pool(features, mask=torch.tensor([[True] * 5, [False, True, True, True, False]])).isfinite().all()

    def test_unchecked_values_do_not_crash(self, name, value):
        """Without the check they go through, and the clean set beside them stays clean."""
        features = self._features(value, 2).requires_grad_()
        pooled = build(name, 6)(features, lengths=[5, 4])
        pooled.sum().backward()
        assert pooled[0].isfinite().all()
        assert features.grad[0].isfinite().all()


def test_functional_check_finite():
    """sorted_weighted_sum checks on request, valid elements only."""
    features = torch.rand(2, 5, 6)
    features[0, 3, 1] = float("nan")
    mask = torch.tensor([[True, True, True, False, True], [True] * 5])
    with pytest.raises(InputError, match="set 0, element 3, dimension 1: nan"):
        sorted_weighted_sum(features, torch.ones(5), check_finite=True)
    assert sorted_weighted_sum(features, torch.ones(5), mask, check_finite=True).isfinite().all()


@pytest.mark.parametrize("name", ["gpo", "fspool", "self-attention", "frozen"])
def test_a_pooling_on_another_device(name):
    """Features and pooling on two devices are an error that names both, before any arithmetic."""
    with pytest.raises(InputError, match=r"cpu.*meta"):
        build(name, 6).to("meta")(torch.randn(2, 5, 6))
