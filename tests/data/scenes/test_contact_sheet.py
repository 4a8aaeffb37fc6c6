"""The contact sheet: every image, in rows."""

from __future__ import annotations

import numpy as np
import pytest

from vse.data.scenes import contact_sheet, render, sample_scene
from vse.errors import InputError


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_contact_sheet_shows_every_scene(columns):
    """Each scene appears whole, in reading order, and the sheet has dark text below it."""
    sheet = np.asarray(contact_sheet(2, "dev", [4, 9, 1], columns=columns, size=96, captions=1))
    places = []
    for index in (4, 9, 1):
        tile = np.asarray(render(sample_scene(2, "dev", index), 96))
        corners = np.argwhere((sheet == tile[0, 0]).all(axis=2))
        found = [(y, x) for y, x in corners if np.array_equal(sheet[y : y + 96, x : x + 96], tile)]
        assert len(found) == 1
        places += found
        (y, x) = found[0]
        assert (sheet[y + 96 : y + 130, x : x + 96] < 128).any()
    assert places == sorted(places)


@pytest.mark.parametrize("arguments", [{"columns": 0}, {"captions": 0}, {"indices": []}, {"size": 0}])
def test_contact_sheet_refuses_invalid_arguments(arguments):
    """An empty sheet is refused with the argument that makes it one."""
    with pytest.raises(InputError, match=r"must be an integer.*got 0"):
        contact_sheet(**arguments)
