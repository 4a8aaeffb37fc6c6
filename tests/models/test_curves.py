"""Pooling curves: what a curve resembles, how it is kept in a file, and which curves a model has."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vse.errors import InputError
from vse.models.config import BiGRUConfig, GridConfig, ModelConfig, PoolingConfig, RegionConfig
from vse.models.curves import (
    ASCII_BARS,
    BARS,
    Likeness,
    PoolingCurve,
    nearest_named,
    read_curves,
    write_curves,
)
from vse.models.curves_plot import plot_curves
from vse.models.learned_curves import REGION_SIZES, TEXT_SIZES, curves_of
from vse.models.vse_model import VSEModel
from vse.pooling import FrozenPooling, create_pooling

integers = st.lists(st.integers(-20, 20), min_size=1, max_size=12).filter(any)
weights = st.lists(st.floats(-1e3, 1e3).map(lambda x: round(x, 5)), min_size=1, max_size=40).filter(any)


def build(image: str | PoolingConfig = "gpo", text: str | PoolingConfig = "gpo") -> VSEModel:
    """A tiny model of regions with these poolings."""
    regions = RegionConfig(feature_size=8, hidden_size=4, pooling=image)
    words = BiGRUConfig(vocabulary_size=9, word_size=5, pooling=text)
    return VSEModel.build(ModelConfig(embed_size=16, image=regions, text=words))


def build_grid(side: int) -> VSEModel:
    """A tiny model of images of this size."""
    backbone = {"name": "caffe-resnet", "options": {"blocks": [1, 1, 1, 1], "width": 2}}
    words = BiGRUConfig(vocabulary_size=9, word_size=5)
    return VSEModel.build(ModelConfig(embed_size=4, image=GridConfig(backbone=backbone, image_size=side), text=words))


def naive_nearest(curve: list[int]) -> tuple[str, int | None, Fraction]:
    """The definition in exact arithmetic: every candidate written out, the first of the best ones."""
    n = len(curve)
    whole = sum(abs(weight) for weight in curve)
    theta = [Fraction(weight, whole) for weight in curve]
    candidates = [("avg", None, [Fraction(1, n)] * n), ("max", None, [Fraction(int(i == 0)) for i in range(n)])]
    if n > 1:
        falling = [n - 1 - i for i in range(n)]
        candidates.append(("linear", None, [Fraction(fall, sum(falling)) for fall in falling]))
    candidates += [("k-max", k, [Fraction(int(i < k), k) for i in range(n)]) for k in range(2, n)]
    scored = [
        (name, k, 1 - sum((abs(a - b) for a, b in zip(theta, reference, strict=True)), Fraction(0)) / 2)
        for name, k, reference in candidates
    ]
    return max(scored, key=lambda entry: entry[2])  # the first of equals


@given(integers)
def test_the_nearest_simple_pooling_is_found(curve):
    """The name, its k and the likeness are those of exact arithmetic; ties go to the simpler pooling."""
    name, k, likeness = naive_nearest(curve)
    found = nearest_named(curve)
    assert (found.name, found.k) == (name, k)
    assert found.likeness == pytest.approx(float(likeness), abs=1e-12)


@given(weights, st.floats(1e-3, 1e3))
def test_likeness_is_a_share_and_ignores_scale(curve, scale):
    """A likeness lies in 0..1, with signs too, and a curve times a positive number keeps it."""
    found = nearest_named(curve)
    assert 0 <= found.likeness <= 1
    assert nearest_named([weight * scale for weight in curve]).likeness == pytest.approx(found.likeness, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "options", "size", "label"),
    [
        ("avg", {}, 36, "1.00 avg-like"),
        ("avg", {}, 1, "1.00 avg-like"),
        ("max", {}, 1, "1.00 avg-like"),
        ("max", {}, 36, "1.00 max-like"),
        ("linear", {}, 2, "1.00 max-like"),
        ("linear", {}, 20, "1.00 linear-like"),
        ("k-max", {"k": 5}, 36, "1.00 k-max(5)-like"),
        ("k-max", {"k": 5}, 4, "1.00 avg-like"),
        ("k-max", {"k": 1}, 4, "1.00 max-like"),
        ("top-percent", {"percent": 50}, 10, "1.00 k-max(5)-like"),
    ],
)
def test_simple_poolings_resemble_themselves(name, options, size, label):
    """A simple pooling is fully like itself, under its simplest name."""
    assert nearest_named(create_pooling(name, **options).coefficients(size).numpy()).label == label


def test_the_label_is_rounded():
    """Two decimals, then the name, with its k where there is one."""
    assert Likeness("max", 0.9312).label == "0.93 max-like"
    assert Likeness("k-max", 0.8765, 5).label == "0.88 k-max(5)-like"


@pytest.mark.parametrize("curve", [[], [0.0, 0.0], [1.0, float("nan")], [float("inf")], [[1.0]], 3.0])
def test_nearest_pooling_refuses_invalid_curves(curve):
    """Nothing, zeros, NaN, infinity and other shapes have no nearest pooling."""
    with pytest.raises(InputError, match="pooling curve"):
        nearest_named(curve)


curves = st.builds(
    lambda tower, coefficients, per_dimension: PoolingCurve(
        tower, "gpo", len(coefficients), tuple(coefficients), per_dimension
    ),
    st.sampled_from(["image", "text"]),
    weights,
    st.booleans(),
) | st.builds(
    lambda note, p: PoolingCurve("text", "gem", note=note, exponent=p), st.text(), st.floats(0.01, 1e6) | st.none()
)


@given(st.lists(curves, max_size=4))
def test_curves_json_round_trip(tmp_path_factory, some):
    """What is written to a file is read back equal, nearest pooling included."""
    path = tmp_path_factory.mktemp("curves") / "pooling_curves.json"
    write_curves(path, some)
    again = read_curves(path)
    assert again == tuple(some)
    assert [curve.nearest for curve in again] == [curve.nearest for curve in some]


GOOD = PoolingCurve("image", "gpo", 2, (0.75, 0.25)).to_json()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tower": "sound"}, "'sound'.*'image', 'text'"),
        ({"pooling": 3}, "texts, got 3"),
        ({"note": []}, "texts"),
        ({"size": 3}, "size 3 with 2 coefficients"),
        ({"size": None}, "size None with 2 coefficients"),
        ({"coefficients": "much"}, "list of finite numbers"),
        ({"coefficients": [1.0, None]}, "list of finite numbers"),
        ({"coefficients": [1.0, float("nan")]}, "list of finite numbers"),
        ({"coefficients": [1, 10**400]}, "list of finite numbers"),
        ({"coefficients": [0, 0]}, "not all zero"),
        ({"coefficients": [1e308, 1e308]}, "finite"),
        ({"exponent": "three"}, "'three'"),
    ],
)
def test_a_bad_curve_is_named_with_its_file(tmp_path, change, message):
    """A value that makes no curve is an error that begins with the file."""
    path = tmp_path / "pooling_curves.json"
    path.write_text(json.dumps({"format": 1, "curves": [GOOD, GOOD | change]}))
    with pytest.raises(InputError, match=message) as caught:
        read_curves(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("content", ['{"format": 2, "curves": []}', '{"format": 1}', "{}", "[]", '{"format": 1,'])
def test_another_file_is_not_taken_for_curves(tmp_path, content):
    """Another format, and what is no such file at all, is an error that begins with the file."""
    path = tmp_path / "pooling_curves.json"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        read_curves(path)
    assert str(caught.value).startswith(str(path))


@given(weights, st.integers(1, 30), st.sampled_from([BARS, ASCII_BARS]))
def test_a_sparkline_shows_the_extremes(coefficients, width, bars):
    """It has a character for each rank up to its width; the largest positive weight is the tallest bar."""
    line = PoolingCurve("image", "gpo", len(coefficients), tuple(coefficients)).sparkline(width, bars)
    assert len(line) == min(width, len(coefficients))
    assert set(line) <= set(bars)
    if len(coefficients) <= width and max(coefficients) > 0:
        assert line[coefficients.index(max(coefficients))] == bars[-1]
    if len(coefficients) <= width and 0 < min(coefficients) < max(coefficients) / 100:
        assert line[coefficients.index(min(coefficients))] == bars[0]


def test_a_model_of_regions_has_a_curve_for_each_size():
    """Curves are the poolings' own coefficients at the sizes that detectors and captions have."""
    model = build()
    found = curves_of(model)
    assert [(curve.tower, curve.size) for curve in found] == [
        *(("image", size) for size in REGION_SIZES),
        *(("text", size) for size in TEXT_SIZES),
    ]
    for curve in found:
        encoder = model.image_encoder if curve.tower == "image" else model.text_encoder
        torch.testing.assert_close(torch.tensor(curve.coefficients), encoder.pooling.coefficients(curve.size))
        assert (curve.pooling, curve.note, curve.per_dimension) == ("gpo", None, False)


def test_a_model_of_pictures_has_a_curve_for_its_own_cells():
    """The number of cells that the backbone computes is the largest size."""
    model = build_grid(96)
    cells = model.image_encoder.backbone(torch.zeros(1, 3, 96, 96)).shape[1]
    sizes = [curve.size for curve in curves_of(model) if curve.tower == "image"]
    assert sizes == [cells // 4, cells // 2, cells]


@pytest.mark.parametrize("training", [True, False])
def test_reading_curves_changes_nothing(training):
    """Every module stays in its mode, the frozen batch norms of a backbone in training too, and no tensor changes."""
    model = build_grid(64)
    model.train(training)
    modes = [module.training for module in model.modules()]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    curves_of(model)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("name", ["fspool", "gpo"])
def test_curves_per_dimension_are_averaged_and_say_so(name):
    """A pooling with a curve for each dimension shows their mean."""
    options = {"per_dimension": True, "dim": 16} if name == "gpo" else {}
    model = build(PoolingConfig(name=name, options=options))
    curve = curves_of(model)[0]
    assert curve.per_dimension
    mean = model.image_encoder.pooling.coefficients(REGION_SIZES[0]).mean(dim=1)
    torch.testing.assert_close(torch.tensor(curve.coefficients), mean)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("cls", {}, "first element"),
        ("self-attention", {}, "look at each other"),
        ("seq2seq", {}, "GRU"),
        ("gcn-avg", {}, "graph"),
        ("gcn-seq2seq", {}, "graph"),
        ("gpo", {"data_dependent": True, "dim": 16}, "depend on the features"),
        ("gem", {"p": 4.5}, "p = 4.5"),
    ],
)
def test_a_pooling_without_curve_says_why(name, options, words):
    """One entry stands for the tower, without size and with a reason."""
    entry, *rest = curves_of(build("avg", PoolingConfig(name=name, options=options)))[len(REGION_SIZES) :]
    assert not rest
    assert (entry.tower, entry.pooling, entry.size, entry.coefficients, entry.nearest) == ("text", name, None, (), None)
    assert words in entry.note
    assert entry.exponent == (4.5 if name == "gem" else None)
    assert entry.sparkline() == ""


def test_sizes_that_a_pooling_refuses_are_left_out():
    """A table or an embedding of ranks that ends early still shows its curves up to there."""
    model = build(PoolingConfig(name="gpo", options={"position": "index", "max_size": 25}))
    model.text_encoder.pooling = FrozenPooling(model.text_encoder.pooling.table(12))
    assert [curve.size for curve in curves_of(model)] == [10, 20, 6, 12]


def test_a_diverged_model_has_a_note_and_no_curve():
    """NaN in the parameters does not stop a model from being described."""
    model = build()
    with torch.no_grad():
        model.image_encoder.pooling.linear.weight.fill_(float("nan"))
    entry = curves_of(model)[0]
    assert entry.size is None
    assert "not finite" in entry.note


@pytest.mark.parametrize(
    ("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF"), (".PNG", b"\x89PNG")]
)
def test_curves_are_drawn_into_a_file(tmp_path, suffix, magic):
    """The suffix chooses the format, the folder is made, and nothing else is left in it."""
    pytest.importorskip("matplotlib")
    path = tmp_path / "new" / f"curves{suffix}"
    assert plot_curves(curves_of(build("gpo", "gem")), path) == path
    assert path.read_bytes().startswith(magic)
    assert list(path.parent.iterdir()) == [path]


def test_plot_refuses_unknown_suffix_and_no_curves(tmp_path):
    """An unknown suffix and poolings without curves are errors, and no file appears."""
    with pytest.raises(InputError, match=r"'\.xyz'.*\.png"):
        plot_curves(curves_of(build()), tmp_path / "curves.xyz")
    with pytest.raises(InputError, match=r"no curve to draw.*first element"):
        plot_curves(curves_of(build("cls", "cls")), tmp_path / "curves.png")
    assert not list(tmp_path.iterdir())


def test_reading_and_drawing_load_no_torch():
    """Curves and their image belong to the light install."""
    code = "import sys, vse.models.curves, vse.models.curves_plot, vse.models.inspection; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
