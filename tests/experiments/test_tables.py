"""Every table on images as its command runs it, with a tiny recipe in the place of its own."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from tests.support_models import picture
from tests.training.support import tiny_values, write_pairs, write_toml

from vse.cli.main import main
from vse.data import FeatureStore, attach, open_data
from vse.encoders.backbones import CaffeResNet
from vse.experiments import EXPERIMENTS
from vse.experiments.image_table import Place, prepare, project_features, read_about
from vse.experiments.k_max_search import ALL
from vse.experiments.k_max_search import _image_ks as searched_image_ks
from vse.experiments.plan import Call
from vse.experiments.tables import local_elements
from vse.inputs.vocabulary import Vocabulary
from vse.models.extract import extract_features, find_images
from vse.progress import SilentProgress
from vse.training.result import TrainingResult

SIDES = ("image", "text")
SIMPLE = [{"name": "avg", "options": {}}, {"name": "max", "options": {}}, {"name": "k-max", "options": {"k": 4}}]
"""The poolings that a quick search tries."""
ROWS = {
    "headline": 7,
    "local-elements": 13,
    "aggregators": 6,
    "poolings": 18,
    "either-side": 4,
    "augmentation": 5,
    "sequence-model": 2,
    "per-dimension": 2,
    "data-dependent": 2,
    "gpo-start": 2,
    "ensemble": 2,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Data, a recipe, and a folder of runs that the experiments share."""
    folder = tmp_path_factory.mktemp("tables")
    write_pairs(folder / "data", train=32, dev=8)
    values = tiny_values(folder / "data", schedule={"epochs": 1, "batch_size": 16, "decay_epochs": 0})
    values["model"]["image"]["pooling"] = values["model"]["text"]["pooling"] = "gpo"
    write_toml(folder / "tiny.toml", values)
    return folder


@pytest.fixture(autouse=True)
def no_pictures_of_runs(monkeypatch):
    """They take longer than a tiny training; the images of the experiment are drawn."""
    monkeypatch.setattr(TrainingResult, "draw", lambda *_: None)


def run(place, name, *options, out=None):
    out = out or place / name
    given = ["--data", str(place / "data"), "--recipe", str(place / "tiny.toml"), "--runs", str(place / "runs")]
    code = main(["experiment", name, "--quick", "--jobs", "1", *given, "--out", str(out), *options])
    return code, json.loads((out / "result.json").read_text()) if code == 0 else None


def own_recipe(place, row):
    """What the run of a row says of itself."""
    return json.loads((place / "runs" / row["seeds"][0]["folder"] / "run.json").read_text())["recipe"]


@pytest.mark.parametrize("name", ROWS)
def test_image_table_trains_ranks_and_compares_rows(place, name):
    """All rows are trained and ranked, claims compare rows of the table, text and images are written."""
    code, result = run(place, name)
    assert code == 0
    labels = [row["label"] for row in result["rows"]]
    assert len(labels) == len(set(labels)) == ROWS[name]
    assert all(0 <= row["mean"]["rsum"] <= 600 for row in result["rows"])
    assert result["claims"]
    assert all(part in labels for claim in result["claims"] for part in claim["claim"].split(" above "))
    assert not [label for label in labels if "{" in label]
    table = (place / name / "table.md").read_text()
    assert table.startswith("|  | augmentation | seeds | i→t R@1 |")
    assert result["test"]["protocol"] == "all"
    assert "Protocol all on data test: every image of the split at once." in table
    assert all(f"| {label}" in table for label in labels)
    assert all((place / name / f"{picture}.png").stat().st_size for picture in ("seeds", "dev"))


def test_k_max_search_selects_on_dev(place):
    """The chosen pair is the one with the highest rsum on dev, and the others are reported too."""
    code, result = run(place, "k-max-search")
    assert code == 0
    dev = np.array(result["dev_rsum"])
    assert dev.shape == (len(result["image_ks"]), len(result["text_ks"]))
    row, column = np.unravel_index(dev.argmax(), dev.shape)
    assert result["best"] == {
        "image": result["image_ks"][row],
        "text": result["text_ks"][column],
        "dev_rsum": dev.max(),
    }


def test_k_max_search_selects_by_the_mean_over_seeds(place):
    """``--seeds`` is honoured: each seed is trained, and the mean of their dev rsum selects the pair."""
    code, result = run(place, "k-max-search", "--seeds", "1,0")
    assert code == 0
    assert result["seeds"] == [each["seed"] for each in result["by_seed"]] == [1, 0]
    first, second = (np.array(each["dev_rsum"]) for each in result["by_seed"])
    assert not np.array_equal(first, second)
    np.testing.assert_allclose(result["dev_rsum"], (first + second) / 2)
    row, column = np.unravel_index(np.argmax(first + second), first.shape)
    assert result["best"]["image"] == result["image_ks"][row]
    assert result["best"]["text"] == result["text_ks"][column]
    assert "mean of 2 seeds" in (place / "k-max-search/table.md").read_text()


@pytest.mark.parametrize(
    ("elements", "given", "expected"),
    [
        (36, None, (1, 4, 15, 29, ALL)),
        (49, None, (1, 5, 20, 40, ALL)),
        (196, None, (1, 20, 80, 160, ALL)),
        (36, (5, 20, 40), (1, 5, 20, ALL)),
        (None, None, (1, 5, 20, 40, ALL)),
    ],
)
def test_k_of_images_suits_the_number_of_elements(monkeypatch, tmp_path, elements, given, expected):
    """By default in proportion to it; a K of all elements or more is the average, which is searched anyway."""
    monkeypatch.setattr(Place, "elements", lambda _: elements)
    call = Call(tmp_path, SilentProgress(), image_ks=given)
    assert searched_image_ks(call, Place("flickr8k-small")) == expected


def test_k_max_search_holds_average_and_max_on_both_sides(place):
    """K = 1 and K = all are searched whatever K is asked for, and rows and columns are full."""
    code, result = run(place, "k-max-search", "--image-ks", "3", "--text-ks", "4,2")
    assert code == 0
    assert (result["image_ks"], result["text_ks"]) == ([1, 3, "all"], [1, 2, 4, "all"])
    assert np.array(result["dev_rsum"]).shape == (3, 4)
    assert (result["protocol"], result["augmentation"]) == ("rsum on the dev split, every image at once", "drop + drop")


def test_aggregators_follow_the_first_table_of_the_paper(place):
    """Words averaged and no augmentation in every row; the best simple pooling is that with the highest dev rsum."""
    _, result = run(place, "aggregators")
    recipes = {row["label"]: own_recipe(place, row) for row in result["rows"]}
    for recipe in recipes.values():
        assert recipe["model"]["text"]["pooling"]["name"] == "avg"
        assert (recipe["augmentation"]["image"], recipe["augmentation"]["text"]) == ("none", "none")
    (label,) = (label for label in recipes if label.startswith("best simple pooling"))
    simple = {}
    for folder in (place / "runs").iterdir():
        told = json.loads((folder / "run.json").read_text())["recipe"]
        pooled = told["model"]["image"]["pooling"]
        alike = told["augmentation"] == recipes[label]["augmentation"]
        if alike and told["model"]["text"]["pooling"]["name"] == "avg" and pooled["name"] in {"avg", "max", "k-max"}:
            simple[json.dumps(pooled)] = json.loads((folder / "result.json").read_text())["best"]["rsum"]
    assert len(simple) == 3
    assert simple[json.dumps(recipes[label]["model"]["image"]["pooling"])] == max(simple.values())


def test_headline_compares_poolings_at_equal_augmentation(place):
    """Of two rows with different poolings and different augmentation the claim says so; all others differ in one."""
    _, result = run(place, "headline")
    differs = {claim["claim"]: claim["differs"] for claim in result["claims"]}
    assert differs["VSE∞ above VSE++ with augmentation"] == ["pooling"]
    assert differs["VSE∞ without augmentation above VSE++"] == ["pooling"]
    assert differs["VSE∞ above VSE∞ without augmentation"] == ["augmentation"]
    mixed = [claim for claim, kinds in differs.items() if len(kinds) > 1]
    assert mixed == ["VSE∞ above VSE++"]
    assert "| VSE∞ above VSE++ (pooling and augmentation together) |" in (place / "headline/table.md").read_text()
    told = {row["label"]: row["augmentation"] for row in result["rows"]}
    assert told["VSE++"] == {"image": "none", "text": "none", "rate": 0.2}
    assert told["VSE++ with augmentation"] == {"image": "drop", "text": "drop", "rate": 0.2}


def test_k_is_searched_at_the_setting_of_each_row(place):
    """With augmentation and without, and of images with averaged words: each row has the best K of its own search."""
    _, headline = run(place, "headline")
    _, poolings = run(place, "poolings")
    rows = {row["label"]: row for row in (*headline["rows"], *poolings["rows"])}
    for beginning, free in (
        ("best K-max (", ("image", "text")),
        ("images: best K-max", ("image",)),
        ("words: best K-max", ("text",)),
    ):
        (row,) = (row for label, row in rows.items() if label.startswith(beginning))
        simple = simple_runs(place, row, free)
        assert len(simple) == 3 ** len(free)
        assert row_rsum(place, row) == max(simple)
    (row,) = (row for label, row in rows.items() if label.endswith(" without augmentation") and " + " in label)
    assert row["augmentation"]["image"] == "none"
    simple = simple_runs(place, row, ("image", "text"))
    assert len(simple) == 9
    assert row_rsum(place, row) == max(simple)


def row_rsum(place, row):
    """The dev rsum of the first seed of a row."""
    return json.loads((place / "runs" / row["seeds"][0]["folder"] / "result.json").read_text())["best"]["rsum"]


def simple_runs(place, row, free):
    """Dev rsum of all runs that differ from a row in the K of the ``free`` sides alone."""

    def rest(recipe):
        model = recipe["model"]
        kept = {side: {**model[side], "pooling": None if side in free else model[side]["pooling"]} for side in SIDES}
        return {**recipe, "model": {**model, **kept}}

    wanted, found = rest(own_recipe(place, row)), []
    for folder in (place / "runs").iterdir():
        told = json.loads((folder / "run.json").read_text())["recipe"]
        poolings = [told["model"][side]["pooling"] for side in free]
        if rest(told) == wanted and all(each in SIMPLE for each in poolings):
            found.append(json.loads((folder / "result.json").read_text())["best"]["rsum"])
    return found


def test_local_elements_compares_with_the_best_simple_pooling_on_dev(place, tmp_path):
    """Chosen by dev among the rows that are trained, and named in the table."""
    _, result = run(place, "local-elements")
    rows = {row["label"]: row for row in result["rows"]}
    simple = ["Avg", "Max", "10 %", "25 %", "50 %"]
    best = max(simple, key=lambda label: row_rsum(place, rows[label]))
    selected = {claim["claim"]: claim["selected"] for claim in result["claims"] if "selected" in claim}
    assert selected[f"GPO above {best}"] == "best of Avg, Max, 10 %, 25 %, 50 % on dev"
    assert len(selected) == 3
    table = (place / "local-elements/table.md").read_text()
    assert f"| GPO above {best} (best of Avg, Max, 10 %, 25 %, 50 % on dev) |" in table
    chosen = ["--row", "GPO", "--row", "Max", "--row", "25 %"]
    _, result = run(place, "local-elements", *chosen, out=tmp_path / "chosen")
    (claim,) = result["claims"]
    assert claim["selected"] == "best of Max, 25 % on dev"


def test_local_elements_holds_gpo_and_searches(place, tmp_path):
    """GPO is held at half of the values for half of the epochs; a search takes a third of them."""
    values = tiny_values(place / "data", schedule={"epochs": 6, "batch_size": 16, "decay_epochs": 1})
    values["model"]["image"]["pooling"] = values["model"]["text"]["pooling"] = "gpo"
    path = str(write_toml(tmp_path / "longer.toml", values))
    where = Place(path)
    table = local_elements(where)
    rows = {label: Place(path, changes) for panel in table.panels.values() for label, changes in panel.items()}
    held, searched = rows["GPO held at 50 %"].resolved(), rows["search"].resolved()
    for recipe in (held, searched):
        assert (recipe.augmentation.image, recipe.augmentation.text) == ("none", "none")
    for side in SIDES:
        assert getattr(held.model, side).pooling.options["start"] == 50
        assert getattr(searched.model, side).pooling.options == {"percent": "search"}
    assert (held.schedule.pooling_from, searched.schedule.search_epochs) == (3, 2)
    assert table.seeds == (0, 1, 2)


@pytest.mark.parametrize("own", ["average", "random", None])
def test_variants_of_gpo_keep_the_other_options_of_a_recipe(place, tmp_path, own):
    """What a recipe says decides, not its name: a GPO that begins as the average differs from a random one."""
    options = {"temperature": 0.5} | ({} if own is None else {"start": own})
    values = tiny_values(place / "data", schedule={"epochs": 1, "batch_size": 16, "decay_epochs": 0})
    for side in ("image", "text"):
        values["model"][side]["pooling"] = {"name": "gpo", "options": options}
    path = str(write_toml(tmp_path / f"gpo-{own}.toml", values))
    _, result = run(place, "gpo-start", "--recipe", path, out=tmp_path / "start")
    for row, start in zip(result["rows"], ("average", "random"), strict=True):
        for side in ("image", "text"):
            found = own_recipe(place, row)["model"][side]["pooling"]["options"]
            assert {"start": "random"} | found == {"temperature": 0.5, "start": start}
    unchanged = [row["label"] for row in result["rows"] if not row["changes"]]
    assert unchanged == ["GPO begun as the average" if own == "average" else "GPO begun at random"]


def test_variant_of_gpo_needs_gpo(place, tmp_path, capsys):
    """A recipe of another pooling is named."""
    values = tiny_values(place / "data")
    values["model"]["image"]["pooling"] = "avg"
    path = str(write_toml(tmp_path / "average.toml", values))
    code, _ = run(place, "per-dimension", "--recipe", path)
    assert code == 1
    assert 'the pooling of the image tower is "avg", and this experiment varies GPO' in capsys.readouterr().err


def test_quick_shortens_any_recipe(place, tmp_path):
    """``--quick`` with ``--recipe`` trains one epoch of one caption of each image; ``--set`` has the last word."""
    values = tiny_values(place / "data", schedule={"epochs": 5, "batch_size": 16, "decay_epochs": 1})
    path = str(write_toml(tmp_path / "long.toml", values))
    _, result = run(place, "gpo-start", "--recipe", path, out=tmp_path / "short")
    schedule = own_recipe(place, result["rows"][0])
    assert (schedule["schedule"]["epochs"], schedule["data"]["captions_per_image"]) == (1, 1)
    options = ("--set", "data.captions_per_image=2", "--runs", str(tmp_path / "runs"))
    _, result = run(place, "gpo-start", "--recipe", path, *options, out=tmp_path / "other")
    assert own_recipe(place, result["rows"][0])["data"]["captions_per_image"] == 2


def test_quick_shortens_a_recipe_that_searches(place, tmp_path):
    """One epoch searches and one trains what was found."""
    values = tiny_values(place / "data", schedule={"epochs": 4, "search_epochs": 2, "decay_epochs": 1})
    for side in SIDES:
        values["model"][side]["pooling"] = {"name": "top-percent", "options": {"percent": "search"}}
    path = str(write_toml(tmp_path / "searched.toml", values))
    resolved = prepare(Call(tmp_path, SilentProgress(), quick=True, data=place / "data", recipe=path)).resolved()
    assert (resolved.schedule.epochs, resolved.schedule.search_epochs) == (2, 1)


def test_coefficients_experiment_draws_both_sides(place):
    """The curves of both sides are given and drawn."""
    code, result = run(place, "coefficients")
    assert code == 0
    assert {curve["tower"] for curve in result["curves"]} == {"image", "text"}
    assert (place / "coefficients/coefficients.png").stat().st_size


def test_main_table_trains_named_recipes(place):
    """``--recipe`` names a section of the paper's table: both of its recipes are trained, and nothing else."""
    family = "coco-butd-region-bigru"
    Vocabulary.build(open_data(place / "data", "train").captions, min_count=1).save(place / "words.json")
    small = [f"data.vocabulary={place / 'words.json'}", "model.embed_size=16", "model.text.word_size=8"]
    small += ["model.image.feature_size=16", "model.image.hidden_size=8", "schedule.batch_size=16", "run.threads=1"]
    options = [part for change in small for part in ("--set", change)]
    code, result = run(place, "main-table", "--recipe", family, "--seeds", "0", *options)
    assert code == 0
    told = {row["label"]: (row["recipe"], own_recipe(place, row)) for row in result["rows"]}
    assert {label: name for label, (name, _) in told.items()} == {
        "VSE++": f"{family}-vse-plus-plus",
        "VSE∞": f"{family}-vse-infinity",
    }
    assert [own["model"]["image"]["pooling"]["name"] for _, own in told.values()] == ["avg", "gpo"]
    assert [claim["claim"] for claim in result["claims"]] == ["VSE∞ above VSE++"]
    assert family in result["title"]


def test_rows_differ_in_what_they_say(place):
    """A run's own record has the pooling and the augmentation that its row is called by."""
    _, result = run(place, "augmentation")
    told = {}
    for row in result["rows"]:
        recipe = own_recipe(place, row)
        sides = (recipe["augmentation"]["image"], recipe["augmentation"]["text"])
        told[row["label"]] = (*sides, recipe["model"]["image"]["pooling"]["name"])
    assert told == {
        "VSE∞, none": ("none", "none", "gpo"),
        "VSE∞, visual": ("drop", "none", "gpo"),
        "VSE∞, visual + text": ("drop", "drop", "gpo"),
        "VSE++, none": ("none", "none", "avg"),
        "VSE++, visual + text": ("drop", "drop", "avg"),
    }


def test_every_table_is_here():
    """An experiment that trains on images has a test."""
    trained = {name for name, entry in EXPERIMENTS.items() if entry.trains}
    assert trained - {"video", "bench"} == {*ROWS, "main-table", "k-max-search", "coefficients"}


def test_experiment_ranks_chosen_rows_on_a_named_split(place, tmp_path):
    """``--row`` trains those rows and keeps the claims about them; ``--split`` ranks another split than test."""
    chosen = ["--row", "Avg", "--row", "GPO", "--split", "dev"]
    code, result = run(place, "local-elements", *chosen, out=tmp_path / "chosen")
    assert code == 0
    assert [row["label"] for row in result["rows"]] == ["Avg", "GPO"]
    assert {claim["claim"] for claim in result["claims"]} == {"GPO above Avg"}
    assert result["test"]["split"] == "dev"


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("local-elements", "Agv", "unknown row 'Agv'"),
        ("ensemble", "GPO", "--row: the rows of 'ensemble' belong together"),
    ],
)
def test_rows_that_cannot_be_chosen_are_refused(place, tmp_path, capsys, name, row, message):
    """A wrong label, or an experiment without rows to leave out, is one line before any training."""
    assert run(place, name, "--row", row, out=tmp_path / "refused")[0] == 1
    assert message in capsys.readouterr().err


def test_ensemble_experiment_needs_pairs(place, capsys):
    """Three models cannot be paired."""
    code, _ = run(place, "ensemble", "--seeds", "0,1,2")
    assert code == 1
    assert "3 seeds cannot be paired" in capsys.readouterr().err


def write_store(tmp_path):
    """A table of twelve pictures, and the store of their cells."""
    rows = []
    (tmp_path / "data").mkdir()
    for number in range(12):
        Image.fromarray(picture(number)).save(tmp_path / "data" / f"{number}.png")
        split = "train" if number < 8 else "dev" if number < 10 else "test"
        rows.append({"path": f"{number}.png", "caption": f"number {number}", "split": split})
    table = tmp_path / "data/table.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    backbone = CaffeResNet(blocks=(1, 1, 1, 1), width=4)
    extract_features(find_images(table), backbone, tmp_path / "store", size=64, name="caffe-resnet")
    return table, FeatureStore.open(tmp_path / "store")


@pytest.mark.parametrize("narrower", [True, False])
def test_experiment_projects_a_store_wider_than_the_recipe_takes(tmp_path, narrower):
    """Onto the width of the recipe; features of that width are read as they are."""
    table, store = write_store(tmp_path)
    values = tiny_values(table)
    values["model"]["image"]["feature_size"] = 4 if narrower else store.header.channels
    recipe = str(write_toml(tmp_path / "tiny.toml", values))
    given = Call(tmp_path / "out", SilentProgress(), data=table, features=store.folder, recipe=recipe)
    resolved = prepare(given).resolved()
    if not narrower:
        assert resolved.data.features == str(store.folder)
        return
    assert resolved.data.features is None
    assert open_data(resolved.data.path, "dev", use="features").images.feature_size == 4


def test_projection_keeps_distances(tmp_path):
    """Cells keep their distances: as many directions as values change nothing but the base."""
    table, store = write_store(tmp_path)
    size = store.header.channels
    folder = project_features(table, tmp_path / "store", tmp_path, size, SilentProgress())
    assert read_about(folder)["variance_kept"] == pytest.approx(1.0, abs=1e-5)
    before = attach(open_data(table, "test", use="files"), store).images
    after = open_data(folder, "test", use="features")
    assert after.captions == ("number 10", "number 11")
    for number in range(len(before)):
        cells, projected = before[number], after.images[number]
        distances = [np.linalg.norm(each[:, None] - each[None], axis=-1) for each in (cells, projected)]
        np.testing.assert_allclose(distances[0], distances[1], rtol=2e-2, atol=2e-2)
    stamp = (folder / "test_ims.npy").stat().st_mtime_ns
    assert project_features(table, tmp_path / "store", tmp_path, size, SilentProgress()) == folder
    assert (folder / "test_ims.npy").stat().st_mtime_ns == stamp
    assert project_features(table, tmp_path / "store", tmp_path, 2, SilentProgress()) != folder
