"""``vse eval`` with tiny models on generated scenes: tables, files and errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.data.support import features, write_precomp
from tests.evaluation.test_embeddings import make
from tests.support_models import FEATURES, bigru_config, build, draw_nothing, grid_config

from vse.cli.main import main
from vse.data import open_data
from vse.data.scenes import write_scenes
from vse.evaluation.embeddings import Embeddings
from vse.inputs import Vocabulary

COUNTS = {"train": 8, "dev": 4, "test": 8}
QUICK = ("--samples", 20)


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in a subprocess, in a writable folder."""
    command = [sys.executable, "-m", "vse", "eval", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=cwd)


def reported(done: subprocess.CompletedProcess[str]) -> dict:
    """The JSON object of a successful call."""
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    return json.loads(done.stdout)


def assert_one_line(done: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    """The error alone on the last line of stderr, nothing on stdout."""
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert done.stderr.endswith("\n")
    errors = [line for line in done.stderr.splitlines() if line.startswith("vse: error: ")]
    assert errors == done.stderr.splitlines()[-1:]
    for part in parts:
        assert part in errors[0]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Scenes, two grid models and a region model with their vocabulary, and the test split as features and files."""
    home = tmp_path_factory.mktemp("eval")
    scenes = write_scenes(home / "scenes", **COUNTS, size=40).folder
    test = open_data(scenes, "test")
    tokenizer = Vocabulary.build(open_data(scenes, "train").captions, min_count=1).tokenizer(20)
    text = bigru_config(vocabulary_size=tokenizer.vocab_size)
    models = {}
    with pytest.MonkeyPatch.context() as patch:
        draw_nothing(patch)
        for name, image, seed in (("first", grid_config(), 0), ("second", grid_config(), 1), ("region", None, 2)):
            models[name] = build(image, text, tokenizer=tokenizer, seed=seed).save(home / name)
    numbers = [str(100 + i) for i in range(len(test.images))]
    rows = features(len(numbers), regions=4, size=FEATURES)
    both = write_precomp(home / "both" / "precomp", "test", rows, test.captions, ids=numbers)
    files = {number: test.images[i].name for i, number in enumerate(numbers)}
    (both / "id_mapping.json").write_text(json.dumps(files))
    return SimpleNamespace(scenes=scenes, test=test, both=both.parent, **models)


@pytest.fixture(scope="module")
def saved(place, tmp_path_factory):
    """Both grid models evaluated once with saved embeddings: the call, its JSON and the two folders."""
    home = tmp_path_factory.mktemp("saved")
    arguments = (place.first, place.second, "--data", place.scenes, *QUICK)
    done = run(*arguments, "--save-embeddings", home / "vectors", "--json", cwd=home)
    found = reported(done)
    folders = [next((home / "vectors").glob(f"{name}-*")) for name in ("first", "second")]
    return SimpleNamespace(done=done, json=found, home=home, first=folders[0], second=folders[1])


class TestResults:
    """What is measured, printed and written."""

    def test_eval_prints_json(self, place, saved):
        """stdout is one object with a row for each model and equals ``results.json``; progress is on stderr."""
        rows = saved.json["results"]
        assert [(row["name"], row["protocol"]) for row in rows] == [("first", "all"), ("second", "all")]
        assert json.loads((saved.home / "results.json").read_text()) == saved.json
        card = rows[0]["card"]
        assert (card["images"], card["texts"]) == (len(place.test.images), len(place.test.captions))
        assert (card["split"], card["bootstrap"]["samples"]) == ("test", 20)
        assert rows[0]["card"]["models"][0]["fingerprint"] != rows[1]["card"]["models"][0]["fingerprint"]
        assert f"{card['images']} images, {card['texts']} captions" in saved.done.stderr
        assert saved.json["comparisons"] == []

    def test_eval_prints_table_with_card(self, place, tmp_path):
        """One model: the table with its card, and the file in the current folder."""
        done = run(place.first, "--data", place.scenes, *QUICK, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        for part in ("R@1", "R@5", "R@10", "rsum", "first", "Ties pessimistic", "any-hit"):
            assert part in done.stdout
        assert [row["name"] for row in json.loads((tmp_path / "results.json").read_text())["results"]] == ["first"]

    def test_eval_from_saved_embeddings(self, saved, tmp_path):
        """All figures and cards are the same, without models and data."""
        done = run("--from-embeddings", saved.first, "--from-embeddings", saved.second, *QUICK, "--json", cwd=tmp_path)
        assert reported(done) == saved.json

    def test_eval_appends_markdown_rows(self, saved, tmp_path):
        """The second call adds its row below the first one's; ``--out`` says where the JSON goes."""
        for name in ("first", "second"):
            options = ("--markdown", "table.md", "--out", f"{name}.json", *QUICK)
            assert run("--from-embeddings", getattr(saved, name), *options, cwd=tmp_path).returncode == 0
        lines = (tmp_path / "table.md").read_text(encoding="utf-8").splitlines()
        assert [line.split(" | ")[0] for line in lines] == [
            "| model",
            "|---" + "|---" * 10 + "|",
            "| first",
            "| second",
        ]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["first.json", "second.json", "table.md"]

    def test_eval_ensemble(self, saved, tmp_path):
        """One row for the mean of the scores, of models or saved embeddings."""
        both = ("--from-embeddings", saved.first, "--from-embeddings", saved.second)
        (row,) = reported(run(*both, "--ensemble", *QUICK, "--json", cwd=tmp_path))["results"]
        assert (row["name"], row["card"]["ensemble"]) == ("first + second", True)
        scores = [
            np.asarray(e.images) @ np.asarray(e.texts).T for e in map(Embeddings.load, (saved.first, saved.second))
        ]
        best = (scores[0] + scores[1]).argmax(axis=0)
        owners = Embeddings.load(saved.first).text_to_image
        assert row["metrics"]["t2i"]["r1"] == pytest.approx(100 * float((best == owners).mean()))

    def test_eval_compares_ensemble_with_members(self, saved, tmp_path):
        """``--ensemble --compare`` adds a row for each member, and the differences."""
        both = ("--from-embeddings", saved.first, "--from-embeddings", saved.second)
        found = reported(run(*both, "--ensemble", "--compare", *QUICK, "--json", cwd=tmp_path))
        assert [row["name"] for row in found["results"]] == ["first + second", "first", "second"]
        pairs = [(each["first"], each["second"]) for each in found["comparisons"]]
        assert pairs == [("first", "first + second"), ("second", "first + second")]
        means = [row["metrics"]["t2i"]["mean_rank"] for row in found["results"]]
        for comparison, mean in zip(found["comparisons"], means[1:], strict=True):
            assert comparison["differences"]["t2i_mean_rank"]["value"] == pytest.approx(mean - means[0])
        assert len(set(means)) > 1  # else the sign would be left open

    def test_eval_compare(self, saved, tmp_path):
        """The difference to the first model with its interval and a verdict; a model and itself do not differ."""
        twice = ("--from-embeddings", saved.first, "--from-embeddings", saved.first)
        done = run(*twice, "--compare", *QUICK, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "first (row 2) minus first (row 1) (all)" in done.stdout
        assert "+ means that first (row 2) has the higher figure" in done.stdout
        assert "may be chance" in done.stdout
        (comparison,) = json.loads((tmp_path / "results.json").read_text())["comparisons"]
        for each in comparison["differences"].values():
            assert each == {"value": 0.0, "interval": [0.0, 0.0], "real": False}

    def test_eval_seeds_and_ties(self, saved, tmp_path):
        """The same call gives the same intervals, another seed others; the tie rule is on the card."""
        vectors = ("--from-embeddings", saved.first, "--json")
        rows = [
            reported(run(*vectors, "--samples", 50, *options, cwd=tmp_path))["results"][0]
            for options in ((), ("--seed", 1, "--ties", "optimistic"))
        ]
        assert rows[0]["intervals"] != rows[1]["intervals"]
        assert [row["card"]["ties"] for row in rows] == ["pessimistic", "optimistic"]

    def test_eval_region_and_grid_ensemble(self, place, tmp_path):
        """A model of features and one of images are averaged on a split that has both."""
        pictures = place.scenes / "images"
        done = run(
            *(place.region, place.first, "--data", place.both, "--images", pictures, "--ensemble", "--compare"),
            *(*QUICK, "--json"),
            cwd=tmp_path,
        )
        rows = reported(done)["results"]
        assert [row["name"] for row in rows] == ["region + first", "region", "first"]
        assert {row["card"]["split_hash"] for row in rows} == {rows[0]["card"]["split_hash"]}
        assert [model["image"] for model in rows[0]["card"]["models"]] == ["region", "grid"]


class TestPaper:
    """``--against paper``."""

    def test_eval_against_paper_without_published_row(self, saved, tmp_path):
        """The paper has no row for scenes."""
        found = reported(run("--from-embeddings", saved.first, "--against", "paper", *QUICK, "--json", cwd=tmp_path))
        assert "published" not in found["results"][0]

    def test_eval_shows_published_row(self, tmp_path):
        """Flickr30K's thousand images are recognised, and the paper's row is below ours."""
        traits = {"image": "region", "text": "bigru", "image_pooling": "gpo", "text_pooling": "gpo"}
        make(range(1000), 1000, hint=1.0, data="f30k", traits=traits).save(tmp_path / "vectors")
        done = run("--from-embeddings", "vectors", "--against", "paper", "--samples", 2, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "VSE∞" in done.stdout
        assert "76.5" in done.stdout
        (row,) = json.loads((tmp_path / "results.json").read_text())["results"]
        assert (row["protocol"], row["published"]["values"]["rsum"]) == ("flickr30k-1k", 498.1)


def write_coco(folder: Path, test) -> None:
    """Made-up ids of the scenes, ratings in the style of CxC and answers in the style of ECCV Caption."""
    count = len(test.images)
    entries = [
        {
            "image_id": 1000 + i,
            "file": f"{i}.jpg",
            "sentids": [int(j) for j in test.caption_indices_of(i)],
            "captions": list(test.captions_of(i)),
        }
        for i in range(count)
    ]
    (folder / "ids.json").write_text(json.dumps(entries))

    def sentence(j: int) -> str:
        return f"COCO_val2014:sentid:{j}"

    rows = {
        "sits": ("caption,image", [(sentence(j), f"{j % count}.jpg", j % 6) for j in range(12)]),
        "sis": ("image1,image2", [(f"{i}.jpg", f"{(i + 1) % count}.jpg", i % 6) for i in range(count)]),
        "sts": ("caption1,caption2", [(sentence(j), sentence(j + 7), j % 6) for j in range(12)]),
    }
    for task, (head, lines) in rows.items():
        text = "\n".join([f"{head},agg_score,sampling_method", *(f"{a},{b},{score},drawn" for a, b, score in lines)])
        (folder / f"{task}_test.csv").write_text(text + "\n")
    (folder / "eccv_image_to_caption.json").write_text(json.dumps({"1000": [0, 1, 7], "1003": [15]}))
    (folder / "eccv_caption_to_image.json").write_text(json.dumps({"0": [1000, 1002], "16": [1003]}))


class TestCoco:
    """``--cxc`` and ``--eccv``."""

    def test_eval_cxc_and_eccv(self, place, saved, tmp_path):
        """Figures of each model for both, in JSON and as tables."""
        write_coco(tmp_path, place.test)
        both = ("--from-embeddings", saved.first, "--from-embeddings", saved.second)
        tasks = ("--cxc", ".", "--eccv", ".", "--coco-ids", "ids.json")
        done = run(*both, *tasks, *QUICK, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        for part in ("Crisscrossed Captions: first", "ECCV Caption: second", "mAP@R", "image→image", "STS"):
            assert part in done.stdout
        found = json.loads((tmp_path / "results.json").read_text())
        assert [each["name"] for each in found["eccv"]] == ["first", "second"]
        assert (found["eccv"][0]["i2t"]["queries"], found["eccv"][0]["t2i"]["queries"]) == (2, 2)
        assert found["cxc"][0]["i2t"]["queries"] == len(place.test.images)
        assert found["cxc"][1]["card"]["models"][0]["name"] == "second"
        for task, figure in (("cxc", "i2i_r10"), ("eccv", "t2i_map_at_r")):
            low, high = found[task][0]["intervals"][figure]
            assert 0 <= low <= high <= 100
            assert found[task][0]["card"]["bootstrap"]["unit"].startswith("images with all their captions")
        assert "95 %" in done.stdout.split("ECCV Caption")[1]

    def test_eval_cxc_and_eccv_of_ensemble(self, place, saved, tmp_path):
        """The scores are averaged for these tasks too."""
        write_coco(tmp_path, place.test)
        both = ("--from-embeddings", saved.first, "--from-embeddings", saved.second, "--ensemble")
        tasks = ("--cxc", ".", "--eccv", ".", "--coco-ids", "ids.json")
        found = reported(run(*both, *tasks, *QUICK, "--json", cwd=tmp_path))
        found |= {task: found[task][0] for task in ("cxc", "eccv")}
        assert (found["cxc"]["name"], found["eccv"]["name"]) == ("first + second", "first + second")
        members = [Embeddings.load(folder) for folder in (saved.first, saved.second)]
        scores = sum(np.asarray(each.texts, dtype=np.float64) @ each.images.T for each in members)
        right = {0: {0, 2}, 16: {3}}  # the answers for captions, by rows
        hits = [int(scores[caption].argmax()) in images for caption, images in right.items()]
        assert found["eccv"]["t2i"]["r1"] == 100 * sum(hits) / len(hits)
        alike = sum(np.asarray(each.texts, dtype=np.float64) @ each.texts.T for each in members)
        np.fill_diagonal(alike, -np.inf)
        owners = members[0].text_to_image
        right_texts = {(j, j + 7) for j in range(12) if j % 6 >= 3}
        nearest = alike.argmax(axis=1)
        found_texts = [
            owners[j] == owners[near] or bool({(j, int(near)), (int(near), j)} & right_texts)
            for j, near in enumerate(nearest)
        ]
        assert found["cxc"]["t2t"]["r1"] == pytest.approx(100 * sum(found_texts) / len(found_texts))

    @pytest.mark.parametrize("task", ["--cxc", "--eccv"])
    def test_eval_cxc_needs_coco_ids(self, saved, tmp_path, task):
        """Nothing is written without them."""
        done = run("--from-embeddings", saved.first, task, ".", cwd=tmp_path)
        assert_one_line(done, 2, "--coco-ids FILE")
        assert list(tmp_path.iterdir()) == []

    def test_eval_refuses_coco_ids_of_another_split(self, place, saved, tmp_path):
        """Ids for fewer images are an error."""
        write_coco(tmp_path, place.test)
        fewer = json.loads((tmp_path / "ids.json").read_text())[:-1]
        (tmp_path / "ids.json").write_text(json.dumps(fewer))
        options = ("--eccv", ".", "--coco-ids", "ids.json", *QUICK)
        assert_one_line(run("--from-embeddings", saved.first, *options, cwd=tmp_path), 1)

    def test_eval_refuses_coco_ids_in_another_order(self, place, saved, tmp_path):
        """Captions that belong to other images by the ids are an error."""
        write_coco(tmp_path, place.test)
        whole = Embeddings.load(saved.first)
        turned = Embeddings(whole.images, whole.texts[::-1].copy(), whole.text_to_image[::-1].copy(), whole.header)
        turned.save(tmp_path / "turned")
        options = ("--eccv", ".", "--coco-ids", "ids.json", *QUICK)
        assert_one_line(run("--from-embeddings", "turned", *options, cwd=tmp_path), 1)


class TestMistakes:
    """One line, nothing on stdout, nothing written. In this process, for speed."""

    @pytest.fixture
    def call(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)

        def called(*arguments: object) -> subprocess.CompletedProcess[str]:
            code = main(["eval", *map(str, arguments)])
            output = capsys.readouterr()
            return subprocess.CompletedProcess(arguments, code, output.out, output.err)

        yield called
        assert not (tmp_path / "results.json").exists()

    def test_eval_usage_errors(self, call, saved):
        """Exit code 2, and the name of the option."""
        vectors = ("--from-embeddings", saved.first)
        assert_one_line(call(), 2, "nothing to evaluate")
        assert_one_line(call("model"), 2, "--data DIR is needed")
        assert_one_line(call(*vectors, "--compare"), 2, "--compare needs at least two models")
        assert_one_line(call(*vectors, "--ensemble"), 2, "--ensemble needs at least two models")
        assert_one_line(call(*vectors, "--ties", "pesimistic"), 2, "--ties", "did you mean 'pessimistic'?")
        assert_one_line(call(*vectors, "--against", "papr"), 2, "--against", "'paper'")
        assert_one_line(call(*vectors, "--samples", "0"), 2, "--samples")
        assert_one_line(call(*vectors, "--seed", "-1"), 2, "--seed")

    def test_eval_lists_protocols_for_unknown_one(self, call, saved):
        """The protocols are listed, with the closest."""
        done = call("--from-embeddings", saved.first, "--protocol", "coco-1k")
        assert done.returncode in {1, 2}
        assert_one_line(done, done.returncode, "unknown protocol 'coco-1k'", "'all'", "did you mean")

    def test_eval_refuses_protocol_of_another_size(self, call, saved):
        """Eight scenes are not COCO's 5,000 images."""
        done = call("--from-embeddings", saved.first, "--protocol", "coco-5k")
        assert_one_line(done, 1, "defined for 5000 images, this split has 8", "--protocol all")

    def test_eval_names_folder_without_embeddings_model_or_data(self, call, place, tmp_path):
        """Each error names its folder."""
        assert_one_line(call("--from-embeddings", tmp_path), 1, f"{tmp_path}: no saved embeddings here")
        assert_one_line(call(tmp_path, "--data", place.scenes), 1, str(tmp_path))
        assert_one_line(call(place.first, "--data", tmp_path / "absent"), 1, "absent")
        assert_one_line(call(place.first, "--data", place.scenes, "--split", "tset"), 1, "tset", "'test'")

    def test_eval_region_model_needs_features(self, call, place):
        """A region model cannot use images alone."""
        assert_one_line(call(place.region, "--data", place.scenes), 1, "features")

    def test_eval_refuses_models_with_different_tests(self, call, saved, tmp_path):
        """They can neither be averaged nor compared."""
        make([0, 1, 2], 3, model="other").save(tmp_path / "other")
        both = ("--from-embeddings", saved.first, "--from-embeddings", tmp_path / "other")
        assert_one_line(call(*both, "--ensemble"), 1, "first and other were not given the same test")
        assert_one_line(call(*both, "--compare", *QUICK), 1, "first and other were not given the same test")
