"""Reports about models: what a folder holds, a conversion, an export, an upload, the models that there are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from vse.models.card import NOT_RECORDED, describe_preprocessing, describe_tokenizer
from vse.models.curves import ASCII_BARS, BARS, CURVES_FILE
from vse.models.pair_options import UNPOOLED

if TYPE_CHECKING:
    from rich.console import Console

    from vse.cli.convert import Converted
    from vse.cli.doctor import DoctorReport
    from vse.cli.models import Pushed
    from vse.convert.onnx_export import ExportReport
    from vse.convert.pull import PullReport
    from vse.models.catalogue import Installed, ModelList, Recommended
    from vse.models.inspection import ModelReport

UNCALIBRATED = "default ('vse calibrate' fits it to the model)"
NO_COEFFICIENTS = "none: results have ranks and scores ('vse calibrate' fits it to the model)"
NO_RELEVANCE = "none ('vse calibrate' fits it to the model)"
INPUTS = {"images": "images", "texts": "texts", "videos": "video files", "features": "precomputed features"}


def render_model(report: ModelReport, console: Console) -> None:
    """Draw the model, its towers, its scores and its curves as tables."""
    bars = BARS if console.encoding.lower().startswith("utf") else ASCII_BARS
    for table in (_summary(report), _towers(report), _scores(report), _curves(report, bars)):
        if table.row_count:
            console.print(table)
    if not report.curves:
        console.print(f"Pooling curves: {NOT_RECORDED} ({CURVES_FILE} is absent; vse.models.write_card writes it)")
    if report.plot is not None:
        console.print(f"Pooling curves drawn in {report.plot}", markup=False, soft_wrap=True)


def _summary(report: ModelReport) -> Table:
    about = report.about
    table = _table(None, "", "")
    rows = {
        "model": about.name or Path(report.folder).resolve().name,
        "runtime": report.runtime + (f", {report.precision}" if report.precision else ""),
        "embeddings": _embeddings(report),
        **({"system": _system(report)} if report.system else {}),
        "takes": ", ".join(name for ability, name in INPUTS.items() if getattr(report.capabilities, ability)),
        "evidence": _evidence(report),
        "files": f"{sum(report.file_sizes.values()) / 1e6:,.1f} MB ({', '.join(report.file_sizes)})",
        "fingerprint": report.fingerprint,
        "data": about.data,
        "source": about.source,
        "recipe": ", ".join(f"{key} = {value}" for key, value in about.recipe.items()),
        "scores": None if not about.scores else "below",
        "confidence": _confidence(report),
        "relevance": f"fitted on {report.relevance}" if report.relevance else NO_RELEVANCE,
        **({"notes": "; ".join(about.notes)} if about.notes else {}),
    }
    for key, value in rows.items():
        table.add_row(key, _plain(value))
    return table


def _evidence(report: ModelReport) -> str:
    """Frames need no ability of the model: a moment is the mean of its frames."""
    if report.capabilities.evidence:
        return "cells of images, frames of videos"
    return "frames of videos; none for images" if report.capabilities.images else "none"


def _confidence(report: ModelReport) -> str:
    if report.confidence:
        return f"fitted on {report.confidence}"
    return NO_COEFFICIENTS if report.foreign else UNCALIBRATED


def _system(report: ModelReport) -> str:
    if not report.training_parameters:
        return str(report.system)
    return f"{report.system}, with {report.training_parameters:,} parameters that only training needs"


def _embeddings(report: ModelReport) -> str | None:
    if any(tower.kind == "hgr" for tower in report.towers):
        return f"{report.embed_size} dimensions on each of three levels; the score of a pair is their mean"
    if any(tower.kind == "cross" for tower in report.towers):
        return "none: the score of a pair is the logit of a match"
    if report.towers and report.towers[0].pooling == UNPOOLED:
        return f"{report.embed_size} dimensions of each element; pairs have scores, images and texts no single vector"
    return f"{report.embed_size} dimensions" if report.embed_size else None


def _towers(report: ModelReport) -> Table:
    table = _table("Towers", "", *(tower.tower for tower in report.towers))
    inputs = {"image": describe_preprocessing(report.preprocessing), "text": describe_tokenizer(report.tokenizer)}
    names = ("encoder", "network", "input", "features", "parameters", "pooling")
    columns = [
        (tower.kind, tower.network, inputs[tower.tower], tower.feature_size, tower.parameters, tower.pooling)
        for tower in report.towers
    ]
    for name, *cells in zip(names, *columns, strict=True) if columns else ():
        table.add_row(name, *(_plain(f"{cell:,}" if isinstance(cell, int) else cell) for cell in cells))
    return table


def _scores(report: ModelReport) -> Table:
    table = _table("Scores", "data", "split", "protocol", "figures")
    for score in report.about.scores:
        figures = ", ".join(f"{name} {value:.5g}" for name, value in score.values.items())
        table.add_row(*map(_plain, (score.data, score.split, score.protocol, figures)))
    return table


def _curves(report: ModelReport, bars: str) -> Table:
    table = _table("Pooling curves, largest value first", "tower", "pooling", "set of", "resembles", "weights")
    for curve in report.curves:
        shown = curve.sparkline(bars=bars) + (" (mean over dimensions)" if curve.per_dimension else "")
        label, weights = (curve.nearest.label, shown) if curve.nearest else ("-", curve.note or "-")
        cells = (curve.tower, curve.pooling, str(curve.size or "-"), label, weights)
        table.add_row(*map(_plain, cells))
    return table


def _table(title: str | None, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _plain(text: str | None) -> Text:
    """Text without markup and control characters: a downloaded model must not send codes to the terminal."""
    text = text or NOT_RECORDED
    return Text("".join(character if character.isprintable() else " " for character in text))


def conversion_lines(converted: Converted) -> list[str]:
    """Return what the model is, what it lacks, and how to inspect it."""
    dimensions = f"{converted.embed_size} dimensions"
    lines = [f"{converted.image} × {converted.text}, {dimensions}: saved in {converted.folder}"]
    if not converted.reads_text:
        option = "--vocab FILE" if converted.text == "bigru" else "--tokenizer DIR"
        lines.append(f"It has no vocabulary and takes only token ids: convert again with {option} to read text.")
    return [*lines, f"'vse inspect {converted.folder}' shows its details."]


def render_export(report: ExportReport, console: Console) -> None:
    """Draw how well the export agrees with torch, and the recall before and after."""
    table = Table("tower", "file", "largest difference", "mean cosine", "twins lost", box=None, pad_edge=False)
    for tower, value in report.agreement.items():
        size = f"{report.bytes[tower] / 1e6:.1f} MB"
        table.add_row(
            tower, size, f"{value.max_difference:.1e}", f"{value.mean_cosine:.6f}", f"{value.twins_lost:.1f} %"
        )
    console.print(f"{report.precision} export in {report.folder}, compared with torch:", markup=False, soft_wrap=True)
    console.print(table)
    for name, lost in report.recall_lost().items():
        before, after = (report.recalls[side][name] for side in ("torch", "export"))
        console.print(f"{name}: {before:.1f} → {after:.1f} ({-lost:+.1f})")


def pull_lines(report: PullReport) -> list[str]:
    """Return where the model is, how well it agrees with torch, and how to use it."""
    size = f"{report.bytes / 1e6:.1f} MB, {report.precision}"
    done = "pulled" if report.fetched else "is there already"
    lines = [f"{report.source} {done}: {report.folder} ({size})"]
    if report.agreement:
        differences = ", ".join(f"{tower} {value:.1e}" for tower, value in report.agreement.items())
        lines.append(f"largest difference to torch: {differences}")
    return [*lines, f"'vse index FOLDER --model {report.source}' uses it."]


def pushed_lines(pushed: Pushed) -> list[str]:
    """Return where the model is and how to load it."""
    return [f"{pushed.model} uploaded to {pushed.address}", f"'vse.load(\"{pushed.repository}\")' loads it."]


def render_list(models: ModelList, console: Console) -> None:
    """Draw the models on this machine and the recommended ones with their sources, and how to get one of these."""
    sources = list(dict.fromkeys(model.source for model in models.recommended if model.source))
    pulled = {model.name for model in models.pulled if not model.problem}
    console.print(_installed("Bundled", models.bundled))
    if models.pulled:
        console.print(_installed(f"Pulled, in {models.home}", models.pulled))
    for model in (*models.bundled, *models.pulled):
        if model.problem:
            console.print(f"{model.name}: {model.problem}", markup=False, soft_wrap=True)
    console.print(_recommended(models.recommended, sources, pulled))
    console.print("R@1: share of zero-shot queries, texts for images / images for texts, whose match comes first.")
    for number, source in enumerate(sources, 1):
        console.print(f"[{number}] {source}", markup=False, soft_wrap=True)
    console.print("'vse pull NAME', then 'vse index FOLDER --model NAME' uses one.")


def _installed(title: str, models: tuple[Installed, ...]) -> Table:
    table = _names_first(title, "name", "size", "precision", "languages", "licence", "recorded R@1")
    for model in models:
        cells = (
            model.name,
            f"{model.bytes / 1e6:,.0f} MB",
            "damaged" if model.problem else model.precision,
            ", ".join(model.languages),
            model.licence,
            _recorded(model),
        )
        table.add_row(*map(_plain, cells))
    return table


def _recorded(model: Installed) -> str | None:
    """Return the first recorded recalls at rank 1, on test data where there are any."""
    for score in sorted(model.scores, key=lambda score: score.get("split") != "test"):
        values = score.get("values")
        pair = [values.get(f"{side}_r1") for side in ("t2i", "i2t")] if isinstance(values, dict) else []
        if pair and all(isinstance(value, int | float) for value in pair):
            return f"{pair[0]:.1f} / {pair[1]:.1f} {score.get('data')} {score.get('split')}"
    return None


def _recommended(models: tuple[Recommended, ...], sources: list[str], pulled: set[str]) -> Table:
    table = _names_first("Recommended", "name", "for", "size", "languages", "licence", "published R@1")
    for model in models:
        name = f"{model.name} (pulled)" if model.name in pulled else model.name
        recalls = "none" if model.source is None else f"{_first_recalls(model)} [{sources.index(model.source) + 1}]"
        cells = (name, model.need, f"{model.megabytes:,} MB", model.languages, model.licence, recalls)
        table.add_row(*map(_plain, cells))
    return table


def _first_recalls(model: Recommended) -> str:
    """Return R@1 in both directions on the first dataset."""
    data = next(iter(model.figures)).partition(" t2i")[0]
    return f"{model.figures[f'{data} t2i R@1']:.1f} / {model.figures[f'{data} i2t R@1']:.1f} {data}"


def _names_first(title: str, name: str, *columns: str) -> Table:
    """Return a table whose first column is never broken: names are copied from it."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column(name, no_wrap=True)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def doctor_lines(report: DoctorReport) -> list[str]:
    """Return a section for each part of the report, and the verdict."""
    width = max(map(len, report.versions))
    lines = [f"{name:<{width}}  {version}" for name, version in report.versions.items()]
    complete = [extra for extra, missing in report.extras.items() if not missing]
    lines.append(f"extras: {', '.join(complete) or 'none'}")
    lines += [f"  [{extra}] lacks {', '.join(missing)}" for extra, missing in report.extras.items() if missing]
    lines.append(f"devices: {', '.join(report.devices)}")
    lines += [f"model {name}: {folder}" for name, folder in report.models.items()] or ["models: none"]
    lines += [f"plugin {name} ({group}): {distribution}" for group, name, distribution in report.plugins]
    for check in report.checks:
        lines.append(f"{'FAILED' if check.problem else 'ok'}  {check.name}: {check.problem or check.detail}")
    if report.checks:
        lines.append("everything works" if report.ok else "the self-test failed")
    return lines
