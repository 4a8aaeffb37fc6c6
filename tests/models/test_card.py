"""The model card tells what is known, marks what is not, and shows the pooling curves."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vse.inputs.vocabulary import FIRST, Vocabulary
from vse.models.card import card_text, escaped, save_with_card, table, write_card
from vse.models.config import About, BiGRUConfig, GridConfig, ModelConfig, RegionConfig, Score, read_config
from vse.models.curves import CARD_FILE, CURVES_FILE, FIGURE_FILE, read_curves
from vse.models.front_matter import front_matter
from vse.models.learned_curves import curves_of
from vse.models.vse_model import VSEModel

WORDS = (*FIRST, "a", "dog", "red", "runs")
CAFFE = {"name": "caffe-resnet", "options": {"blocks": [1, 1, 1, 1], "width": 2}}


def tiny(about: About | None = None, *, image=None, pooling="gpo", vocabulary: bool = True) -> VSEModel:
    text = BiGRUConfig(vocabulary_size=9, word_size=5, pooling=pooling)
    image = image or RegionConfig(feature_size=8, hidden_size=4, pooling=pooling)
    config = ModelConfig(embed_size=16, image=image, text=text, about=about or About())
    return VSEModel.build(config, Vocabulary(WORDS).tokenizer() if vocabulary else None)


def section(card: str, title: str) -> str:
    after = card.partition(f"## {title}\n\n")[2]
    return after.partition("\n\n## ")[0].partition("\n\n---\n")[0]


def card_of(model: VSEModel) -> str:
    return card_text(model, curves_of(model), figure=False)


def cells(line: str) -> list[str]:
    """The cells of a line of a Markdown table: bars that no backslash protects part them."""
    parts, current, i = [], "", 0
    while i < len(line):
        if line[i] == "\\" and i + 1 < len(line):
            current += line[i : i + 2]
            i += 2
            continue
        if line[i] == "|":
            parts.append(current.strip())
            current = ""
        else:
            current += line[i]
        i += 1
    return parts[1:]


def test_card_writes_three_files(tmp_path):
    """The card links the image, and the curves can be read without the model."""
    pytest.importorskip("matplotlib")
    model = tiny()
    write_card(tmp_path, model)
    assert {path.name for path in tmp_path.iterdir()} == {CARD_FILE, CURVES_FILE, FIGURE_FILE}
    assert f"]({FIGURE_FILE})" in (tmp_path / CARD_FILE).read_text(encoding="utf-8")
    assert (tmp_path / FIGURE_FILE).read_bytes().startswith(b"\x89PNG")
    assert read_curves(tmp_path / CURVES_FILE) == tuple(curves_of(model))


def test_card_without_curves_has_no_figure(tmp_path):
    """Poolings that do not sort leave a card that says so and links nothing."""
    write_card(tmp_path, tiny(pooling="cls"))
    assert {path.name for path in tmp_path.iterdir()} == {CARD_FILE, CURVES_FILE}
    card = (tmp_path / CARD_FILE).read_text(encoding="utf-8")
    assert FIGURE_FILE not in card
    assert "first element" in card


def test_card_without_matplotlib_has_no_figure(tmp_path):
    """The image and its link are skipped, the rest is written."""
    code = (
        "import sys; sys.modules['matplotlib'] = sys.modules['matplotlib.figure'] = None;"
        "from tests.models.test_card import tiny; from pathlib import Path; from vse.models.card import write_card;"
        "write_card(Path(sys.argv[1]), tiny())"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {CARD_FILE, CURVES_FILE}
    assert FIGURE_FILE not in (tmp_path / CARD_FILE).read_text(encoding="utf-8")


def test_front_matter_is_valid_for_the_hub():
    """The hub's own parser reads library, task and tags; nothing unknown is claimed."""
    hub = pytest.importorskip("huggingface_hub")
    assert hub.ModelCard(card_of(tiny())).data.to_dict() == {
        "library_name": "vse",
        "pipeline_tag": "feature-extraction",
        "tags": ["vse", "image-text-retrieval", "visual-semantic-embedding"],
    }


def hub_data(about: About) -> dict:
    """The front matter as the hub's own parser reads and writes it."""
    hub = pytest.importorskip("huggingface_hub")
    data = hub.ModelCard(card_of(tiny(about))).data
    assert hub.ModelCardData(**data.to_dict()).to_dict() == data.to_dict()
    return data.to_dict()


def test_front_matter_holds_what_is_known():
    """Licence, data, languages and base model; Norwegian is not false."""
    about = About(license="apache-2.0", datasets=("a/coco",), languages=("en", "no"), base_model="a/b", name="Toy")
    found = hub_data(about)
    assert (found["license"], found["datasets"]) == ("apache-2.0", ["a/coco"])
    assert (found["language"], found["base_model"]) == (["en", "no"], "a/b")
    assert section(card_of(tiny(about)), "Licence") == "apache-2.0"
    other = hub_data(About(license="Research use: no money"))
    assert (other["license"], other["license_name"]) == ("other", "research-use-no-money")


def test_front_matter_lists_scores_as_model_index(tmp_path):
    """A result for each protocol, as the hub's evaluation results; what is no number is left out."""
    hub = pytest.importorskip("huggingface_hub")
    scores = (
        Score(protocol="1K, mean of 5", data="COCO: 1k", split="test", values={"i2t_r1": 76.54, "rsum": 512.3}),
        Score(protocol="5K", data="COCO: 1k", split="test", values={"t2i R@10": 40.25, "loss": 0.00001}),
        Score(protocol="5K", data="broken", split="test", values={"rsum": float("nan")}),
    )
    write_card(tmp_path, tiny(About(name='A "toy"', scores=scores)), draw=False)
    data = hub.ModelCard.load(tmp_path / CARD_FILE).data
    assert data.model_name == 'A "toy"'
    found = [(each.dataset_config, each.metric_type, each.metric_name, each.metric_value) for each in data.eval_results]
    assert found == [
        ("1K, mean of 5", "recall_at_1", "i2t R@1", 76.54),
        ("1K, mean of 5", "rsum", "rsum", 512.3),
        ("5K", "recall_at_10", "t2i R@10", 40.25),
        ("5K", "loss", "loss", 0.0),
    ]
    first = data.eval_results[0]
    assert (first.task_type, first.dataset_type, first.dataset_name) == ("image-text-retrieval", "coco-1k", "COCO: 1k")
    assert first.dataset_split == "test"


@given(text=st.text(min_size=1))
@settings(max_examples=50)
def test_front_matter_survives_any_text(text):
    """Whatever was recorded, the front matter stays YAML with the same keys."""
    yaml = pytest.importorskip("yaml")
    score = Score(protocol=text, data=text, split=text, values={text: 1.5})
    written = front_matter(About(name=text, license=text, datasets=(text,), languages=(text,), scores=(score,)))
    start, _, rest = written.partition("\n")
    assert (start, rest[-4:]) == ("---", "---\n")
    found = yaml.safe_load(rest.removesuffix("---\n"))
    assert isinstance(found["license"], str)
    assert [type(each) for each in (*found["datasets"], *found["language"])] == [str, str]
    assert found["model-index"][0]["results"][0]["metrics"][0]["value"] == 1.5


def test_about_does_not_change_fingerprint():
    """A licence that is added later leaves collections valid."""
    model = tiny()
    before = model.fingerprint()
    about = model.config.about.model_copy(update={"license": "mit", "languages": ("en",)})
    model.config = model.config.model_copy(update={"about": about})
    assert model.fingerprint() == before


def test_configuration_written_before_licences_loads():
    """Fields of ``about`` that an earlier version did not write are unknown."""
    raw = tiny().config.model_dump(mode="json")
    for name in ("license", "datasets", "languages", "base_model"):
        del raw["about"][name]
    about = read_config(raw, "config.json").about
    assert (about.license, about.datasets, about.languages, about.base_model) == (None, (), (), None)


def test_card_invents_nothing():
    """Data, recipe, scores and source of a model without history are not invented."""
    card = card_of(tiny())
    for title in ("Data", "Recipe", "Scores"):
        assert section(card, title) == "not recorded"
    assert "Source: not recorded" in card
    assert "## Notes" not in card


def test_card_lists_scores_with_protocol():
    """Scores come with data, split and protocol; a figure that one of them lacks leaves its cell empty."""
    scores = (
        Score(protocol="1K, mean of 5", data="coco", split="test", values={"i2t R@1": 76.54, "rsum": 512.3}),
        Score(protocol="5K", data="coco", split="testall", values={"rsum": 402.25}),
    )
    about = About(
        name="Toy", data="scenes", source="a test", recipe={"lr": 5e-4, "clip": None}, scores=scores, notes=("x",)
    )
    model = tiny(about)
    card = card_of(model)
    assert "# Toy\n" in card
    assert section(card, "Data") == "scenes"
    assert "Source: a test" in card
    head, _, first, second = map(cells, section(card, "Scores").splitlines())
    assert head == ["data", "split", "protocol", "i2t R@1", "rsum"]
    assert first == ["coco", "test", "1K, mean of 5", "76.54", "512.3"]
    assert second == ["coco", "testall", "5K", "", "402.25"]
    assert [cells(line) for line in section(card, "Recipe").splitlines()[2:]] == [["lr", "0.0005"], ["clip", "null"]]
    assert section(card, "Notes") == "- x"
    for encoder in (model.image_encoder, model.text_encoder):
        assert f"{sum(p.numel() for p in encoder.parameters()):,}" in card


def test_card_example_runs(tmp_path, monkeypatch):
    """The Python of the card works as it stands on the saved model."""
    import numpy as np

    model = tiny()
    code = section(card_of(model), "Use").removeprefix("```python\n").removesuffix("\n```")
    model.save(tmp_path / "toy")
    np.save(tmp_path / "features.npy", np.ones((3, 4, 8), np.float32))
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(code.replace("path/to/this/folder", "toy").replace("two dogs play in the snow", "a red dog"), names)  # noqa: S102
    assert names["scores"].shape == (3, 1)


def test_card_example_fits_the_model():
    """Images are shown to a model that reads images, and no text to one without a vocabulary."""
    grid = GridConfig(backbone=CAFFE, image_size=64)
    card = card_of(tiny(image=grid, vocabulary=False))
    assert 'encode_images(["photo.jpg"])' in card
    assert "encode_texts" not in card
    assert "without a vocabulary" in card
    assert "64 x 64" in section(card, "Inputs")


def test_card_lists_every_curve():
    """The table shows tower, set size and likeness of each curve."""
    model = tiny()
    rows = [cells(line) for line in section(card_of(model), "Pooling curves").splitlines() if line.startswith("|")]
    assert [row[:4] for row in rows[2:]] == [
        [curve.tower, curve.pooling, str(curve.size), curve.nearest.label] for curve in curves_of(model)
    ]


@given(st.lists(st.lists(st.text(), min_size=3, max_size=3), max_size=3))
def test_card_tables_escape_any_text(rows):
    """Whatever cells hold, a row stays one line with its own number of cells, and nothing becomes HTML."""
    lines = table(("a", "b", "c"), rows).split("\n")
    assert len(lines) == len(rows) + 2
    assert [len(cells(line)) for line in lines] == [3] * len(lines)
    assert all("<" not in line and "\r" not in line for line in lines)


def test_card_escapes_markup():
    """Markup of Markdown and HTML is escaped, whitespace is one space."""
    assert escaped("a|b *c* <img>\n[d](e) `f`") == r"a\|b \*c\* &lt;img&gt; \[d\](e) \`f\`"
    assert escaped("plain words, 3.5 % (k = 5)") == "plain words, 3.5 % (k = 5)"


@given(st.text())
def test_card_title_escapes_any_name(name):
    """No name can end the title's line or begin a section of its own."""
    model = tiny(About(name=name))
    lines = card_text(model, [], figure=False).splitlines()
    assert len(lines) == len(card_text(tiny(), [], figure=False).splitlines())
    assert sum(line.startswith("# ") and line != "# " for line in lines) == 1


def test_save_with_card_writes_card_beside_weights(tmp_path):
    """The card and the curves lie beside the weights; ``model.save`` alone writes neither."""
    folder = tiny().save(tmp_path / "toy")
    assert not (folder / CARD_FILE).exists()
    assert not (folder / CURVES_FILE).exists()
    assert save_with_card(tiny(), folder, draw=False) == folder
    assert (folder / CARD_FILE).read_text(encoding="utf-8").startswith("---\n")
    assert json.loads((folder / CURVES_FILE).read_text())["curves"]
