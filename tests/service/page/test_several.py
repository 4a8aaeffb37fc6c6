"""Several collections behind one page, one of them with embeddings that are computed elsewhere."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.service.page.support import serving, vse
from tests.service.page.visits import visit


@pytest.fixture(scope="module")
def several(index, tmp_path_factory):
    """The service over the shared collection and one of own vectors."""
    folder = tmp_path_factory.mktemp("several")
    np.save(folder / "vectors.npy", np.eye(12, dtype=np.float32))
    rows = [{"id": f"document {number}", "taken": f"2024-01-{number + 1:02d}"} for number in range(12)]
    (folder / "rows.json").write_text(json.dumps(rows))
    vse("collection", "import", folder / "own.vse", folder / "vectors.npy", folder / "rows.json", "--model", "mine")
    with serving(index, folder / "own.vse") as made:
        yield made


def test_chooser_switches_to_own_vectors_and_back(several, context):
    """Its files are listed, its texts cannot be searched and the page says so; the first one is as before."""
    page = visit(context, several.address)
    chooser = page.page.get_by_role("combobox", name="Collection")
    chooser.wait_for()
    assert chooser.locator("option").all_text_contents() == ["scenes.vse (63)", "own.vse (12)"]
    page.changing(lambda: chooser.select_option("own.vse"))
    page.page.wait_for_function("() => document.getElementById('words').disabled")
    assert "computed elsewhere" in page.page.get_attribute("#words", "placeholder")
    assert page.page.url.endswith("?collection=own.vse")
    assert page.names()[:2] == ["document 11", "document 10"]
    page.changing(lambda: chooser.select_option("scenes.vse"))
    page.page.wait_for_function("() => !document.getElementById('words').disabled")
    assert "computed elsewhere" not in (page.page.get_attribute("#words", "placeholder") or "")
    page.search("red")
    page.page.wait_for_selector(".tile img")
    assert page.messages == []
    page.page.close()
