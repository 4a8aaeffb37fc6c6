"""Tables of models and datasets."""

from __future__ import annotations

import io
import shutil

import pytest
from rich.console import Console
from tests.models.test_inspection import change, export, tiny

from vse.cli.render import render
from vse.data.report import DataReport, Finding, SplitReport
from vse.models.card import save_with_card
from vse.models.config import About, BiGRUConfig, GridConfig, ModelConfig
from vse.models.inspection import inspect_folder
from vse.models.vse_model import VSEModel


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of a small model."""
    return save_with_card(tiny(), tmp_path_factory.mktemp("models") / "toy", draw=False)


@pytest.fixture
def folder(saved, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(saved, tmp_path / "toy")


def rendered(report, width: int = 120, encoding: str = "utf-8") -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    render(report, Console(file=stream, width=width, highlight=False))
    stream.seek(0)
    return stream.read()


@pytest.mark.parametrize("width", [80, 120])
def test_model_tables_show_everything(saved, width):
    """Towers, sizes, data, recipe, scores with their protocol, and every curve."""
    report = inspect_folder(saved)
    text = rendered(report, width)
    parts = ("Toy", "region", "bigru", "gpo", "generated scenes", "lr = 0.0005", "5K", "testall", "402.25")
    for expected in (*parts, report.fingerprint, f"{report.towers[0].parameters:,}", "trained for a test"):
        assert expected in text
    for curve in report.curves:
        assert curve.nearest.label in text
        assert curve.sparkline() in text
    assert max(map(len, text.splitlines())) <= width


def test_model_tables_mark_missing_facts(tmp_path):
    """A model without metadata shows data, recipe and scores as not recorded."""
    text = rendered(inspect_folder(save_with_card(tiny(About()), tmp_path / "plain", draw=False)))
    assert [line.split("│")[1].strip() for line in text.splitlines() if "not recorded" in line] == [
        *("data", "source", "recipe", "scores")
    ]


def test_model_tables_without_unicode_are_ascii(saved):
    """Bars and boxes fall back to ASCII where the stream cannot encode them."""
    assert rendered(inspect_folder(saved), encoding="ascii").isascii()


def test_model_tables_print_texts_without_markup_and_controls(folder):
    """Markup in a name has no effect, and control characters do not reach the terminal."""
    change(folder / "config.json", about={"name": "[bold]x[/nope]\x1b[2J", "data": "two\nlines"})
    text = rendered(inspect_folder(folder))
    assert "[bold]x[/nope] [2J" in text
    assert "two lines" in text
    assert "\x1b" not in text


def test_model_tables_show_image_size_and_missing_vocabulary(tmp_path):
    """A model that reads images shows their size; one without a vocabulary says so."""
    backbone = {"name": "caffe-resnet", "options": {"blocks": [1, 1, 1, 1], "width": 2}}
    image = GridConfig(backbone=backbone, image_size=64)
    config = ModelConfig(embed_size=4, image=image, text=BiGRUConfig(vocabulary_size=9, word_size=5))
    text = rendered(inspect_folder(save_with_card(VSEModel.build(config), tmp_path / "grid", draw=False)))
    assert "64 x 64" in text
    assert "no vocabulary" in text


def test_model_tables_without_curves_name_the_missing_file(folder):
    """Saving the model again writes it."""
    (folder / "pooling_curves.json").unlink()
    assert "pooling_curves.json is absent" in rendered(inspect_folder(folder))


@pytest.mark.parametrize(("values", "shown"), [({}, "onnx, int8"), ({"source": None}, "16 dimensions")])
def test_model_tables_of_an_export(folder, values, shown):
    """Runtime and precision, and what is known without the configuration of the source."""
    export(folder, **values)
    assert shown in rendered(inspect_folder(folder))


def test_data_report_lists_findings_without_markup_and_controls():
    """Brackets and invalid bytes in a name are printed; findings beyond the examples are counted."""
    finding = Finding("error", "missing file", 12, ("[red]x.jpg", "b\n\udcff.jpg"), 10)
    text = rendered(DataReport("data", "table", (), (finding,), ()))
    for line in (
        "data: layout table",
        "error: missing file: 12",
        "  [red]x.jpg",
        r"  b\n\udcff.jpg",
        "  … and 10 more",
    ):
        assert line in text.splitlines()
    text.encode()


def test_data_report_of_videos_has_a_table_of_videos():
    """The heading is the kind of the items."""
    split = SplitReport("train", 1, 2, (2, 2.0, 2), 3.0, None, None)
    text = rendered(DataReport("data", "hgr", (split,), (), (), shown="videos"))
    assert "videos" in text
    assert "images" not in text
    assert "no errors, no warnings" in text
