"""The published figures are sound, and are found by configuration."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse.errors import InputError
from vse.evaluation.published import (
    USUAL_SETTINGS,
    PublishedRow,
    closest_row,
    find_rows,
    list_protocols,
    list_tables,
    load_table,
    table_caption,
)

ALL_ROWS = [row for name in list_tables() for row in load_table(name)]


def test_published_values_are_plausible():
    """Recalls are percentages that grow with the rank; what is not printed is absent."""
    for row in ALL_ROWS:
        assert row.values
        for key, value in row.values.items():
            assert isinstance(value, float)
            assert key == "rsum" or 0 < value <= 100
        for task in ("i2t", "t2i", "t2t", "i2i"):
            found = [row.values[f"{task}_{rank}"] for rank in ("r1", "r5", "r10") if f"{task}_{rank}" in row.values]
            assert found == sorted(found)


def test_names_are_from_closed_sets():
    """Rows agree on how to call things, and poolings are called as in the library."""
    known = {
        "run": {"own", "cited"},
        "image": {"region", "grid", "region+grid", "frames", None},
        "backbone": {"BUTD", "WSL", "ResNet-152", "I3D", None},
        "text": {"bigru", "bert", None},
        "data": {"coco", "f30k", "msrvtt", "vatex"},
        "protocol": {"coco-1k-5fold", "coco-5k", "flickr30k-1k", "cxc-retrieval", "msrvtt", "vatex"},
    }
    for name, values in known.items():
        assert {getattr(row, name) for row in ALL_ROWS} == values
    assert set(list_protocols()) == known["protocol"]
    for row in ALL_ROWS:
        assert set(row.settings) <= set(USUAL_SETTINGS)
        assert all(type(value) is type(USUAL_SETTINGS[name]) for name, value in row.settings.items())


def test_protocols_of_the_tables():
    """Each table keeps to its protocols, and a protocol to its data."""
    data = {"flickr30k-1k": "f30k", "msrvtt": "msrvtt", "vatex": "vatex"}
    protocols = {
        "main": ["coco-1k-5fold", "flickr30k-1k"] * 12,
        "extended": ["coco-1k-5fold", "flickr30k-1k"] * 23,
        "coco_5k": ["coco-5k"] * 20,
        "vl_bert": ["coco-5k"] * 9,
        "cxc": ["cxc-retrieval"] * 4,
        "video": ["msrvtt"] * 4 + ["vatex"] * 4,
    }
    for name in list_tables():
        rows = load_table(name)
        assert [row.protocol for row in rows] == protocols.get(name, ["coco-1k-5fold"] * len(rows))
        assert [row.data for row in rows] == [data.get(row.protocol, "coco") for row in rows]


def test_published_rows_include_settings_from_text():
    """Who ran a method, how it pools and what the smaller tables leave to the text follow simple rules."""
    methods = {"VSE∞": ("gpo", "gpo"), "VSE++": ("avg", "avg")}
    ours = {*methods, "CVSE", "HGR", "HGR∞"}
    for row in ALL_ROWS:
        if row.table == "aggregators":
            assert (row.run, row.text, row.text_pooling) == ("own", "bigru", "avg")
            assert (row.image, row.backbone) in {("region", "BUTD"), ("grid", None)}
        else:
            assert row.run == ("own" if row.method in ours and not (row.method == "VSE++" and row.year) else "cited")
        if row.table not in ("aggregators", "poolings"):
            assert (row.image_pooling, row.text_pooling) == (
                methods.get(row.method, (None, None)) if row.run == "own" else (None, None)
            )
        if row.table not in ("main", "extended", "coco_5k", "vl_bert"):
            assert not row.ensemble
    assert {(row.image, row.backbone, row.text) for row in load_table("poolings")} == {("region", "BUTD", "bert")}
    grid = [("grid", backbone, "bert") for backbone in ("BUTD", "WSL")]
    assert [(row.image, row.backbone, row.text) for row in load_table("cxc")] == [(None, None, None)] * 2 + grid
    frames = [("frames", backbone, "bigru") for backbone in ("ResNet-152", "I3D") for _ in range(4)]
    assert [(row.image, row.backbone, row.text) for row in load_table("video")] == frames
    aggregators = ["avg", "seq2seq", "self-attention", "gcn-avg", "gcn-seq2seq"]
    found = [row.image_pooling for row in load_table("aggregators")]
    assert found == [name for name in aggregators for _ in range(2)] + ["max", "k-max"]


def test_poolings_are_called_as_in_the_library():
    """A model's configuration can be compared with a row without translation."""
    pytest.importorskip("torch")
    from vse.pooling import list_poolings

    used = {row.image_pooling for row in ALL_ROWS} | {row.text_pooling for row in ALL_ROWS}
    assert used <= {*list_poolings(), None}


def test_tables_agree_with_each_other():
    """Where two tables print the same configuration under the same protocol, they print the same figures."""
    seen: dict[tuple, PublishedRow] = {}
    for row in ALL_ROWS:
        settings = tuple({**USUAL_SETTINGS, **row.settings}.items())
        key = (row.method, row.run, row.image, row.backbone, row.text, row.image_pooling, row.text_pooling)
        first = seen.setdefault((*key, row.protocol, row.ensemble, settings), row)
        for name in row.values.keys() & first.values.keys():
            assert row.values[name] == first.values[name]


@pytest.mark.parametrize(
    ("wanted", "rsum"),
    [
        ({"image": "region", "backbone": "BUTD", "text": "bigru", "data": "f30k"}, 498.1),
        ({"image": "region", "backbone": "butd", "text": "bert", "protocol": "flickr30k-1k"}, 513.5),
        ({"image": "region+grid", "text": "bert", "protocol": "coco-5k"}, 451.8),
        ({"image": "grid", "backbone": "WSL", "ensemble": True, "data": "f30k"}, 555.1),
        ({"image": "grid", "backbone": "ResNet-152", "protocol": "coco-1k-5fold"}, 519.6),
        ({"protocol": "msrvtt"}, 174.7),
    ],
)
def test_a_row_is_found_by_its_configuration(wanted, rsum):
    """A result that several tables print is found once, with all its figures."""
    (row,) = find_rows(method="VSE∞", **wanted)
    assert row.values["rsum"] == rsum


def test_ablations_are_found_beside_the_method():
    """Rows of ablations are found too, if their settings are unusual; the usual model is not repeated."""
    rows = find_rows(method="VSE∞", image="region", text="bigru", protocol="coco-1k-5fold")
    assert [row.table for row in rows].count("main") == 1
    assert not rows[0].settings
    assert all(row.settings.items() - USUAL_SETTINGS.items() for row in rows[1:])


def test_nothing_is_lost_without_conditions():
    """Every figure of every table is in the answer to an empty question, for the same configuration."""
    found = find_rows()
    assert len(found) == len(set(found))
    for row in ALL_ROWS:
        assert any(
            row.values.items() <= other.values.items()
            and (row.method, row.protocol, row.image, row.text)
            == (other.method, other.protocol, other.image, other.text)
            for other in found
        )


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "method": st.sampled_from(sorted({row.method for row in ALL_ROWS})),
            "image": st.sampled_from(["region", "grid", "region+grid", "frames"]),
            "backbone": st.sampled_from(["BUTD", "WSL", "ResNet-152", "I3D"]),
            "text": st.sampled_from(["bigru", "bert"]),
            "data": st.sampled_from(["coco", "f30k", "msrvtt", "vatex"]),
            "protocol": st.sampled_from(list_protocols()),
            "ensemble": st.booleans(),
        },
    )
)
def test_conditions_are_all_met(wanted):
    """Rows are found exactly if they meet every condition, save those that repeat another."""
    found = find_rows(**wanted)
    fitting = [row for row in ALL_ROWS if all(getattr(row, name) == value for name, value in wanted.items())]
    assert [row for row in fitting if row in found] == found
    for row in fitting:
        assert any(row.values.items() <= other.values.items() for other in found)


@given(st.sampled_from(ALL_ROWS))
def test_the_closest_row_to_a_row_is_itself(row):
    """Asked with the configuration of a row, the answer is that row, or another that says the same and more."""
    closest = closest_row(
        protocol=row.protocol,
        method=row.method,
        image=row.image,
        backbone=row.backbone,
        text=row.text,
        image_pooling=row.image_pooling,
        text_pooling=row.text_pooling,
        ensemble=row.ensemble,
        settings=row.settings,
    )
    assert not closest.differences
    if row.run == closest.row.run:
        assert row.values.items() <= closest.row.values.items()


@pytest.mark.parametrize(
    ("wanted", "table", "method", "rsum"),
    [
        ({"image_pooling": "gpo", "text_pooling": "gpo", "text": "bigru"}, "main", "VSE∞", 498.1),
        ({"image_pooling": "avg", "text_pooling": "avg", "text": "bert"}, "main", "VSE++", 449.7),
        ({"image_pooling": "gpo", "text_pooling": "gpo", "text": "bigru", "ensemble": True}, "main", "VSE∞", 498.1),
        ({}, "main", "VSE∞", 498.1),
    ],
)
def test_the_closest_row_of_a_model(wanted, table, method, rsum):
    """The poolings of a model decide which method it is; without them it is VSE∞."""
    closest = closest_row(protocol="flickr30k-1k", image="region", backbone="BUTD", **wanted).row
    assert (closest.table, closest.method, closest.values["rsum"]) == (table, method, rsum)


def test_a_mixed_model_finds_its_ablation():
    """A model with GPO on one side only, or trained without dropping elements, has a row of its own."""
    common = {"protocol": "coco-1k-5fold", "image": "region", "backbone": "BUTD", "ensemble": False}
    mixed = closest_row(**common, text="bert", image_pooling="avg", text_pooling="gpo")
    assert (mixed.row.table, mixed.row.values["i2t_r1"], mixed.differences) == ("poolings", 71.7, {})
    settings = {"size_augmentation": "none"}
    whole = closest_row(**common, text="bigru", image_pooling="gpo", text_pooling="gpo", settings=settings)
    assert (whole.row.table, whole.row.values["i2t_r1"], whole.differences) == ("size_augmentation", 74.6, {})


def test_published_row_lists_differences():
    """A backbone or a pooling that the paper does not have is among the differences, and so is what it leaves open."""
    closest = closest_row(
        protocol="flickr30k-1k", image="grid", backbone="efficientnet-lite0", text="bert", image_pooling="max"
    )
    assert closest.row.method == "VSE∞"
    assert closest.differences == {"image_pooling": ("max", "gpo"), "backbone": ("efficientnet-lite0", "WSL")}
    open_point = closest_row(protocol="cxc-retrieval", method="DE", text="bert")
    assert open_point.differences == {"text": ("bert", None)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_table("mian"), r"unknown published table 'mian': expected one of 'main'.*did you mean 'main'"),
        (lambda: table_caption("../main"), r"unknown published table '\.\./main'"),
        (lambda: find_rows(protocol="coco-1k"), r"unknown published protocol 'coco-1k'.*'coco-1k-5fold'"),
        (lambda: find_rows(method="VSE"), r"unknown published method 'VSE': expected one of 'LIWE'"),
        (lambda: find_rows(image="grids"), r"unknown published image 'grids'.*did you mean 'grid'"),
        (lambda: find_rows(text="bret"), r"unknown published text 'bret'"),
        (lambda: closest_row(protocol="flickr8k-1k"), r"unknown published protocol 'flickr8k-1k'.*'flickr30k-1k'"),
        (
            lambda: closest_row(protocol="coco-5k", settings={"per-dimension": True}),
            r"unknown published setting 'per-dimension'.*did you mean 'per_dimension'",
        ),
    ],
)
def test_unknown_names_are_errors(call, message):
    """A name the paper does not have is one line that tells the names it has."""
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_rows_can_be_kept_in_sets():
    """Rows are values: equal when read twice, usable as keys; reading again is not spoilt by what a caller did."""
    first, again = load_table("main"), load_table("main")
    assert first == again
    assert len({*first, *again}) == len(first)
    first[0].values.clear()
    assert load_table("main") == again


def test_torch_is_not_loaded():
    """The published figures can be shown in the light install."""
    code = "import sys; from vse.evaluation.published import find_rows; find_rows(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
