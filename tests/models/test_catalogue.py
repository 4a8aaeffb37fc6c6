"""``vse models``: the catalogue, what is bundled and pulled, and the table in the guide."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vse.cli.main import main
from vse.models.catalogue import PULLED_FILE, RECOMMENDED, Recommended, list_models, models_home
from vse.models.sources import shipped_folder

GUIDE = Path(__file__).parents[2] / "docs" / "models.md"
COLUMNS = ("for", "model", "download", "languages", "licence", "data", "t2i / i2t R@1", "published in")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home of pulled models."""
    monkeypatch.setenv("VSE_HOME", str(tmp_path))
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def pulled(folder: Path, source: str = "owner/model", **changes: object) -> Path:
    """An export in the place of a pulled model that records neither licence nor languages, with the bundled towers."""
    shipped = shipped_folder("photo")
    assert shipped is not None
    folder.mkdir(parents=True)
    config = json.loads((shipped / "config.json").read_text())
    config["source"]["about"] |= {"license": None, "languages": []}
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("image.onnx", "text.onnx"):
        (folder / name).symlink_to(shipped / name)
    record = {"source": source, "revision": "abc", "precision": "fp16", "bytes": 12_000_000} | changes
    (folder / PULLED_FILE).write_text(json.dumps(record))
    return folder


def recalls(model: Recommended) -> list[tuple[str, str]]:
    """The datasets of a model with R@1 in both directions."""
    names = list(dict.fromkeys(name.rpartition(" ")[0].rpartition(" ")[0] for name in model.figures))
    return [(name, f"{model.figures[f'{name} t2i R@1']} / {model.figures[f'{name} i2t R@1']}") for name in names]


def rows() -> list[str]:
    """The table of the guide, as the catalogue says it."""
    lines = [" | ".join(COLUMNS), "|".join("---" for _ in COLUMNS)]
    for model in RECOMMENDED:
        data, figures = (list(each) for each in zip(*recalls(model), strict=True)) if model.figures else (["-"], ["-"])
        cells = (model.need, f"`{model.name}`", f"{model.megabytes:,} MB", model.languages, model.licence)
        lines.append(" | ".join((*cells, "<br>".join(data), "<br>".join(figures), model.source or "-")))
    return [f"| {line} |" if "---|" not in line else f"|{line}|" for line in lines]


def test_guide_table_agrees_with_catalogue():
    """Whoever changes the catalogue pastes this into the guide."""
    expected = "\n".join(rows())
    assert expected in GUIDE.read_text(encoding="utf-8"), f"docs/models.md needs this table:\n{expected}"


def test_catalogue_figures_have_sources():
    """No figure without a place where it is published, no name twice, recalls in per cent and in both directions."""
    assert len({model.name for model in RECOMMENDED}) == len(RECOMMENDED) >= 8
    assert {"tiny", "fast", "best", "multilingual"} <= {model.need for model in RECOMMENDED}
    for model in RECOMMENDED:
        assert model.name.count("/") == 1
        assert bool(model.figures) == bool(model.source), model.name
        assert all(1 < value < 100 for value in model.figures.values())
        assert recalls(model) or not model.figures
        assert model.megabytes == pytest.approx(4 * model.parameters, rel=0.02), model.name  # published in float32


def test_models_home_follows_environment(monkeypatch, tmp_path):
    """``VSE_HOME`` where it is set, else the cache of the user."""
    monkeypatch.setenv("VSE_HOME", str(tmp_path / "elsewhere"))
    assert models_home() == tmp_path / "elsewhere" / "models"
    monkeypatch.delenv("VSE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert models_home() == tmp_path / ".cache" / "vse" / "models"
    assert list_models().pulled == ()


def test_bundled_model_is_listed(home):
    """With its size and what its configuration records."""
    (photo,) = list_models().bundled
    assert (photo.name, photo.problem) == ("photo", None)
    assert photo.bytes > 10_000_000
    assert photo.embed_size == 512
    assert photo.scores


def test_pulled_models_are_listed(home):
    """Flat or by owner; what is being written is not."""
    pulled(home / "one")
    pulled(home / "owner" / "two", RECOMMENDED[0].name)
    pulled(home / ".writing")
    one, two = list_models().pulled
    assert (one.name, one.revision, one.precision, one.bytes) == ("owner/model", "abc", "fp16", 12_000_000)
    assert (two.name, two.licence, two.problem) == (RECOMMENDED[0].name, RECOMMENDED[0].licence, None)
    assert (one.languages, two.languages) == ((), ("en",))
    listed = {model["name"]: model["pulled"] for model in list_models().to_json()["recommended"]}
    assert listed[two.name]
    assert sum(listed.values()) == 1


def test_damaged_pulled_models_are_listed_with_reason(home, capsys):
    """A truncated file, a missing tower, another runtime and an empty folder do not hide the others."""
    pulled(home / "good")
    (pulled(home / "no record") / PULLED_FILE).unlink()
    (pulled(home / "no tower") / "text.onnx").unlink()
    (pulled(home / "cut") / "config.json").write_text('{"runtime": "on')
    (pulled(home / "torch") / "config.json").write_text('{"runtime": "torch"}')
    (home / "empty").mkdir()
    pulled(home / "odd types", source=3, bytes="many", precision=None)
    reasons = {Path(model.folder).name: model.problem for model in list_models().pulled}
    assert {name for name, reason in reasons.items() if reason is None} == {"good", "odd types"}
    assert "text.onnx missing" in reasons["no tower"]
    assert "not JSON" in reasons["cut"]
    assert "not an export" in reasons["torch"]
    assert PULLED_FILE in reasons["no record"]
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    assert "text.onnx missing" in shown
    assert "owner/model" in shown


def test_models_command_shows_names_unbroken(home, capsys, monkeypatch):
    """Names are copied from the table, so even a narrow terminal shows them whole; every source is named."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    for model in RECOMMENDED:
        assert model.name in shown
        assert (model.source or "") in shown
    assert "vse pull NAME" in shown


def test_models_command_prints_json(home, capsys):
    """One object with the three lists."""
    assert main(["models", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == {"home", "bundled", "pulled", "recommended"}
    assert printed["home"] == str(home)
    assert {"name", "figures", "source", "licence", "megabytes"} <= set(printed["recommended"][0])


def test_models_command_needs_no_heavy_library():
    """Neither torch nor the hub's library is loaded."""
    code = (
        "import sys; from vse.cli.main import main; main(['models', '--json']);"
        "print(*({'torch', 'huggingface_hub', 'onnxruntime', 'transformers'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "\n"
