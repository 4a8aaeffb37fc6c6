"""The published figures are those of the paper's source, digit by digit and in their order.

The source is read here a second time, cell by cell; nothing but the files under test comes from ``vse``.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest

import vse.evaluation.published as module
from vse.evaluation.published import find_rows, list_tables, load_table, table_caption

FOLDER = Path(module.__file__).parent / "published_tables"
RECALLS = ["i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10"]
SEVEN = [*RECALLS, "rsum"]
FOUR = ["i2t_r1", "i2t_r5", "t2i_r1", "t2i_r5"]
# The number of rows, and the columns of figures in a printed line, a list for each row that the line makes.
SHAPES = {
    "main": (24, [SEVEN, SEVEN]),
    "extended": (46, [SEVEN, SEVEN]),
    "coco_5k": (20, [SEVEN]),
    "vl_bert": (9, [FOUR]),
    "cxc": (4, [[f"{task}_{rank}" for task in ("i2t", "t2i", "t2t", "i2i") for rank in ("r1", "r5")]]),
    "video": (8, [SEVEN]),
    "aggregators": (12, [["t2i_r1", "i2t_r1"], ["t2i_r1", "i2t_r1"]]),
    "poolings": (4, [FOUR]),
    "size_augmentation": (3, [FOUR]),
    "sequence_model": (4, [FOUR]),
    "per_dimension": (4, [FOUR]),
    "data_dependent": (4, [FOUR]),
}


@pytest.fixture(scope="session")
def source(shared_reference):
    """The LaTeX source of the paper."""
    path = shared_reference.parent / "paper.tex"
    if not path.is_file():
        pytest.skip("no source of the paper beside the reference numbers")
    return path.read_text(encoding="utf-8")


def environment(source: str, label: str) -> str:
    """The table with the given label, from its beginning to its end."""
    tables = re.findall(r"\\begin\{table\*?\}.*?\\end\{table\*?\}", source, flags=re.DOTALL)
    (table,) = [table for table in tables if f"\\label{{{label}}}" in table]
    return table


def figure(cell: str) -> str | None:
    """The text of a cell that is nothing but a figure or a dash, whatever macros surround it."""
    bare = re.sub(r"\\[a-z]+|[{}\s]", "", cell)
    return bare if re.fullmatch(r"\d+\.\d|-", bare) else None


def printed_lines(source: str, label: str) -> list[tuple[list[str], list[str]]]:
    """The lines of a table that hold figures: cells before the figures, and the figures as printed."""
    found = []
    for line in environment(source, label).split("\\\\"):
        cells = line.split("&")
        figures = [text for text in map(figure, cells) if text is not None]
        if len(figures) >= 4:
            found.append(([cell.strip() for cell in cells if figure(cell) is None], figures))
    return found


def as_written(name: str) -> dict:
    """The file with its numbers as text, so that 54.0 is not 54."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"), parse_float=str)


def plain(latex: str) -> str:
    """The name that a cell shows, in lower case."""
    text = re.sub(r"(?s).*\\(midrule|\[2pt\])|\[2pt\]", "", latex)
    text = re.sub(r"\\cite\{[^}]*\}|\\textsubscript\{[^}]*\}|\$?\{?\\star\}?\$|Our:|~", "", text)
    text = re.sub(r"\\(ourmethod|vseinf)", "VSE∞", text).replace("$\\infty$", "∞")
    return re.sub(r"\\textsc|[{}$]", "", text).strip().casefold()


def test_every_file_is_a_table():
    """The list of tables and the files are the same; each file tells its name, and leaves out what is not known."""
    assert sorted(list_tables()) == sorted(path.stem for path in FOLDER.iterdir()) == sorted(SHAPES)
    for name in list_tables():
        assert as_written(name)["table"] == name
        assert "null" not in (FOLDER / f"{name}.json").read_text(encoding="utf-8")
        assert table_caption(name)


def test_every_table_of_recalls_is_there(source):
    """No table of the paper is left out but the synthetic one, which holds no recalls."""
    labels = set(re.findall(r"\\label\{(tab:[^}]*)\}", source))
    assert labels - {as_written(name)["label"] for name in SHAPES} == {"tab:design"}


@pytest.mark.parametrize("name", SHAPES)
def test_figures_are_as_printed(source, name):
    """Every figure of the printed table stands in its order, under its column, with its digits; no other does."""
    count, columns = SHAPES[name]
    table = as_written(name)
    expected = []
    for _, figures in printed_lines(source, table["label"]):
        assert len(figures) == sum(map(len, columns))
        left = iter(figures)
        for keys in columns:
            printed = [(key, next(left)) for key in keys]
            expected.append([(key, text) for key, text in printed if text != "-"])
    assert len(expected) == count
    assert [list(row["values"].items()) for row in table["rows"]] == expected


@pytest.mark.parametrize("name", ["main", "extended", "coco_5k"])
def test_configurations_are_as_printed(source, name):
    """Method, year, kind of feature, star, and the section's backbone and text encoder are those of the line."""
    rows = iter(load_table(name))
    backbone = text = ""
    for line in environment(source, as_written(name)["label"]).split("\\\\"):
        if "\\bf {ResNe" in line:
            title = line.partition("\\bf {ResNe")[2].casefold()
            backbone = next(short for short in ("butd", "wsl", "t-152") if short in title).replace("t-", "resnet-")
            text = next(short for short in ("bigru", "bert") if short in title)
        cells = line.split("&")
        if sum(figure(cell) is not None for cell in cells) < 7:
            continue
        year = re.search(r"\\textsubscript\{(\d+)\}", line)
        for _ in SHAPES[name][1]:
            row = next(rows)
            assert row.method.casefold() == plain(cells[0])
            assert row.image == cells[1].strip().casefold()
            assert row.backbone is not None
            assert (row.backbone.casefold(), row.text) == (backbone, text)
            assert row.year == (int(year[1]) if year else None)
            assert row.ensemble == ("star" in cells[0] or row.image == "region+grid")
            assert row.run == ("own" if "Our:" in line or row.method == "CVSE" else "cited")
    assert next(rows, None) is None


@pytest.mark.parametrize("name", ["vl_bert", "cxc", "video", "aggregators"])
def test_methods_are_as_printed(source, name):
    """The names of the methods stand in the printed order; one misspelling is mended and noted."""
    lines = printed_lines(source, as_written(name)["label"])
    # The second half of the video table has no names: its lines belong to those of the first half.
    printed = [plain(labels[0]) if labels else "" for labels, _ in lines]
    if name == "video":
        assert printed[4:] == [""] * 4
        printed = printed[:4] * 2
    repeated = [method for method in printed for _ in SHAPES[name][1]]
    for row, method in zip(load_table(name), repeated, strict=True):
        mended = method.replace("seg2seq", "seq2seq") if "Seg2Seq" in row.note else method
        assert mended.startswith(row.method.casefold())


def test_comparison_with_bert_models_is_as_printed(source):
    """Kind of feature, backbone, star and pretraining are those of the line; the others' features are not printed."""
    kinds = {"(r)": "region", "(r+g)": "region+grid", "(g)": "grid"}
    lines = printed_lines(source, as_written("vl_bert")["label"])
    for row, (labels, _) in zip(load_table("vl_bert"), lines, strict=True):
        assert row.image == kinds.get(plain(labels[0]).removeprefix("vse∞"))
        assert row.ensemble == ("star" in labels[0] or row.image == "region+grid")
        assert row.settings == {"vision_language_pretraining": labels[1] == "\\cmark"}
        assert (str(row.backbone).casefold(), row.text) == (plain(labels[2]), "bert")


def test_ablations_are_as_printed(source):
    """What an ablation varies is what its line says."""
    marks = {"\\cmark": True, "\\xmark": False, "$\\varnothing$": "none"}
    pooling = {"AvgPool": "avg", "CLS": "cls", "GPO": "gpo"}

    def labels_of(name):
        lines = printed_lines(source, as_written(name)["label"])
        return zip(load_table(name), (labels for labels, _ in lines), strict=True)

    for row, labels in labels_of("poolings"):
        image, text = (re.sub(r"(?s).*\\midrule", "", label).strip() for label in labels)
        assert (row.image_pooling, row.text_pooling) == (pooling[image], pooling[text])
    for name in ("size_augmentation", "sequence_model", "per_dimension", "data_dependent"):
        for row, labels in labels_of(name):
            label = next(label for label in reversed(labels) if label)
            assert row.settings == {name: marks.get(label, label.casefold())}
            assert (row.image_pooling, row.text_pooling) == ("gpo", "gpo")


def test_features_of_ablations_are_as_printed(source):
    """Features that are printed once for several lines belong to each of them."""
    for name in ("size_augmentation", "sequence_model", "per_dimension", "data_dependent"):
        groups = re.findall(
            r"\\multirow\{(\d)\}\{\*\}\{\\makecell\[c\]\{\\textsc\{(\w+)\} \((\w+)\) \\\\ \+ (\w+)\}\}",
            environment(source, as_written(name)["label"]),
        )
        expected = [features for count, *features in groups for _ in range(int(count))]
        found = [[row.backbone, row.image, row.text] for row in load_table(name)]
        assert found == [[backbone.upper(), image.lower(), text.lower()] for backbone, image, text in expected]


def test_the_text_side_of_the_aggregators_is_a_conclusion():
    """It is not printed; average pooling of regions there is the VSE++ row with BiGRU of the main table."""
    row = load_table("aggregators")[0]
    (same,) = find_rows(method="VSE++", image="region", text="bigru", protocol="coco-1k-5fold")
    assert row.values.items() <= same.values.items()
    assert (row.image, row.text, row.backbone) == (same.image, same.text, same.backbone)
    assert (row.image_pooling, row.text_pooling) == (same.image_pooling, same.text_pooling)


def test_sums_add_up_or_are_noted():
    """rsum is the sum of the six recalls within the rounding; a row where it is not exact says so."""
    noted = 0
    for name in SHAPES:
        for row in as_written(name)["rows"]:
            values = row["values"]
            if not all(key in values for key in SEVEN):
                assert "add up" not in row.get("note", "")
                continue
            total = sum(Decimal(values[key]) for key in RECALLS)
            assert abs(total - Decimal(values["rsum"])) <= Decimal("0.2")
            if total == Decimal(values["rsum"]):
                assert "add up" not in row.get("note", "")
            else:
                assert f"the six recalls add up to {total}" in row["note"]
                noted += 1
    assert noted == 9
