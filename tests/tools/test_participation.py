"""The participation ratio of a set of features, against eigenvalues."""

import numpy as np
import pytest
from benchmarks.participation import mean_cosine, participation_ratio


@pytest.mark.parametrize("shape", [(7, 3), (4, 30), (2, 5)])
def test_participation_ratio_is_that_of_the_eigenvalues(shape):
    """Rows or columns first makes no difference."""
    elements = np.random.default_rng(0).normal(size=shape)
    values = np.linalg.eigvalsh(np.cov(elements, rowvar=False))
    assert participation_ratio(elements) == pytest.approx(values.sum() ** 2 / (values**2).sum())


def test_participation_ratio_of_equal_elements_is_zero():
    """Nothing varies."""
    assert participation_ratio(np.ones((5, 3))) == 0.0


def test_mean_cosine_leaves_each_element_with_itself_out():
    """Two orthogonal rows and one between them."""
    rows = np.array([[1.0, 0], [0, 2], [3, 3]])
    assert mean_cosine(rows) == pytest.approx(2 * np.sqrt(0.5) / 3)
