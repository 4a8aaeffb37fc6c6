"""The figures that the paper prints, row by row, for comparison with ours.

Each retrieval table of the paper is one JSON file in ``published_tables``; a row is one method with one set of feature
extractors under one protocol. Figures are percentages as printed, and what is not printed is absent: nothing is
computed. The synthetic experiment has its own table, since its figures are not recalls.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

from vse.errors import InputError, unknown_choice
from vse.models.pair_options import system_label

# The most complete tables come first: results that later tables repeat, often with fewer figures, are found here.
TABLES = (
    "main",
    "extended",
    "coco_5k",
    "vl_bert",
    "cxc",
    "video",
    "aggregators",
    "poolings",
    "size_augmentation",
    "sequence_model",
    "per_dimension",
    "data_dependent",
)
METHOD = "VSE∞"
USUAL_SETTINGS: Mapping[str, str | bool] = {
    "size_augmentation": "visual+text",
    "sequence_model": "bigru",
    "per_dimension": False,
    "data_dependent": False,
    "vision_language_pretraining": False,
}
"""The settings that a row does not name."""
# By which a row is chosen; where two rows differ in equally many points, the earlier point weighs more.
COMPARED = ("method", "image_pooling", "text_pooling", *USUAL_SETTINGS, "text", "image", "ensemble", "backbone")


@dataclass(frozen=True)
class PublishedRow:
    """One result of the paper; a part of the configuration that the paper leaves open is None.

    Attributes:
        table: the name of its table, see :func:`list_tables`.
        label: the label of that table in the paper's source.
        method: ``VSE∞``, ``VSE++`` or another's name.
        run: ``own`` if the paper's authors ran it, ``cited`` if the figures are those of an earlier publication.
        data: ``coco``, ``f30k``, ``msrvtt`` or ``vatex``.
        protocol: ``coco-1k-5fold``, ``coco-5k``, ``flickr30k-1k``, ``cxc-retrieval``, ``msrvtt`` or ``vatex``.
        ensemble: the scores of two models are averaged: starred in the paper, or region + grid.
        values: ``i2t_r1`` … ``t2i_r10`` and ``rsum``, with ``t2t_*`` and ``i2i_*`` for CxC; of a video, i2t is
            video to text.
        year: of the publication, where the paper prints it.
        image: ``region``, ``grid``, ``region+grid`` or ``frames``.
        backbone: ``BUTD``, ``WSL``, ``ResNet-152`` or ``I3D``.
        text: ``bigru`` or ``bert``.
        image_pooling, text_pooling: names as in :func:`vse.pooling.create_pooling`.
        settings: what an ablation varies; a key that is absent is as in :data:`USUAL_SETTINGS`.
        note: what else to know before comparing.
    """

    table: str
    label: str
    method: str
    run: Literal["own", "cited"]
    data: str
    protocol: str
    ensemble: bool
    values: Mapping[str, float] = field(hash=False)
    year: int | None = None
    image: str | None = None
    backbone: str | None = None
    text: str | None = None
    image_pooling: str | None = None
    text_pooling: str | None = None
    settings: Mapping[str, str | bool] = field(default_factory=dict, hash=False)
    note: str = ""


@dataclass(frozen=True)
class ClosestRow:
    """A row, and where it differs from what was asked for: the point → (asked for, published or None)."""

    row: PublishedRow
    differences: Mapping[str, tuple[object, object]] = field(hash=False)


def list_tables() -> list[str]:
    """Return the names of the tables."""
    return list(TABLES)


def load_table(name: str) -> tuple[PublishedRow, ...]:
    """Return the rows of one table in printed order; a line with two test sets gives two rows."""
    table = _read(name)
    return tuple(PublishedRow(table=name, label=table["label"], **row) for row in table["rows"])


def table_caption(name: str) -> str:
    """Return what a table compares, in a sentence."""
    return str(_read(name)["caption"])


def list_protocols() -> list[str]:
    """Return the protocols under which the paper reports figures."""
    return _distinct(row.protocol for row in _all_rows())


def find_rows(
    *,
    method: str | None = None,
    image: str | None = None,
    backbone: str | None = None,
    text: str | None = None,
    data: str | None = None,
    protocol: str | None = None,
    ensemble: bool | None = None,
) -> list[PublishedRow]:
    """Return the rows of all tables with the given properties, without duplicates; None matches any value.

    Raises:
        InputError: no row has one of the values; a combination that no row has gives an empty list.
    """
    wanted = {
        "method": method,
        "image": image,
        "backbone": backbone,
        "text": text,
        "data": data,
        "protocol": protocol,
    }
    rows = _all_rows()
    for name, value in wanted.items():
        if value is not None:
            _check(name, value, (getattr(row, name) for row in rows))
    found: list[PublishedRow] = []
    for row in rows:
        fits = not _differences(row, {**wanted, "ensemble": ensemble})
        if fits and not any(_repeats(row, earlier) for earlier in found):
            found.append(row)
    return found


def closest_row(
    *,
    protocol: str,
    method: str | None = None,
    image: str | None = None,
    backbone: str | None = None,
    text: str | None = None,
    image_pooling: str | None = None,
    text_pooling: str | None = None,
    ensemble: bool | None = None,
    settings: Mapping[str, str | bool] | None = None,
) -> ClosestRow:
    """Return the row under ``protocol`` that differs least from a configuration, and the differences.

    The protocol must be one of the paper's. Other values may be unknown to the paper (such as another backbone) and are
    then listed as differences, as is what the paper does not state. Among rows with equally many differences, those
    with the same poolings come first, then the same encoders, then VSE∞, then the paper's own runs, then the row with
    more figures. None matches any value; ``settings`` of None are the usual ones.

    Raises:
        InputError: the paper has no such protocol or setting.
    """
    rows = _all_rows()
    _check("protocol", protocol, (row.protocol for row in rows))
    for name in settings or {}:
        if name not in USUAL_SETTINGS:
            raise InputError(unknown_choice("published setting", name, USUAL_SETTINGS))
    wanted: dict[str, object] = {
        "method": method,
        "image_pooling": image_pooling,
        "text_pooling": text_pooling,
        "text": text,
        "image": image,
        "ensemble": ensemble,
        "backbone": backbone,
        **USUAL_SETTINGS,
        **(settings or {}),
    }

    def distance(row: PublishedRow) -> tuple[object, ...]:
        differences = _differences(row, wanted)
        points = tuple(name in differences for name in COMPARED)
        return len(differences), points, row.method != METHOD, row.run != "own", -len(row.values)

    best = min((row for row in rows if row.protocol == protocol), key=distance)
    return ClosestRow(best, _differences(best, wanted))


def _read(name: str) -> dict[str, Any]:
    if name not in TABLES:
        raise InputError(unknown_choice("published table", name, TABLES))
    file = files("vse.evaluation") / "published_tables" / f"{name}.json"
    table: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return table


def _all_rows() -> list[PublishedRow]:
    return [row for name in TABLES for row in load_table(name)]


def _distinct(values: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(value for value in values if value is not None))


def _check(what: str, value: str, published: Iterable[str | None]) -> None:
    choices = _distinct(published)
    if _plain(value) not in map(_plain, choices):
        raise InputError(unknown_choice(f"published {what}", value, choices))


def _plain(value: object) -> object:
    """Ignore case: ``BUTD`` is ``butd``."""
    return value.casefold() if isinstance(value, str) else value


def _point(row: PublishedRow, name: str) -> object:
    """Return a field of ``row``, or a setting, by default the usual one."""
    return row.settings.get(name, USUAL_SETTINGS[name]) if name in USUAL_SETTINGS else getattr(row, name)


def _differences(row: PublishedRow, wanted: Mapping[str, object]) -> dict[str, tuple[object, object]]:
    """Return the points where ``row`` differs from ``wanted``; None matches any value."""
    return {
        name: (value, _point(row, name))
        for name, value in wanted.items()
        if value is not None and _plain(value) != _plain(_point(row, name))
    }


def _repeats(row: PublishedRow, earlier: PublishedRow) -> bool:
    """Return whether ``row`` repeats ``earlier``: the same configuration and no other figures."""
    points = (*COMPARED, "run", "year", "data", "protocol")
    same = all(_point(row, name) == _point(earlier, name) for name in points)
    return same and row.values.items() <= earlier.values.items()


def published_traits(raw: Mapping[str, Any]) -> dict[str, str]:
    """Return the traits of a configuration in the words of published tables: region or grid, BiGRU or BERT, poolings.

    Args:
        raw: The content of ``config.json``.
    """
    if raw.get("kind") == "hgr":
        return _hgr_traits(raw)
    if raw.get("kind") == "cross":
        return {"image": "region", "text": "bert", "method": f"cross-encoder ({raw['architecture']['model_type']})"}
    image, text = raw["image"], raw["text"]
    traits = {
        "image": image["kind"],
        "text": {"transformer": "bert", "words": "bigru"}.get(text["kind"], text["kind"]),
    }
    if raw.get("kind") == "pairs":
        traits |= {"method": raw["system"].upper(), "system": system_label(raw["system"], raw["options"])}
    else:
        traits["image_pooling"], traits["text_pooling"] = (_pooling_name(side["pooling"]) for side in (image, text))
    if image["kind"] == "dual":
        traits["backbone"] = str(image["architecture"].get("model_type", image["library"]))
    if image.get("backbone") is not None:
        traits["backbone"] = _backbone_name(image["backbone"], raw.get("about", {}).get("recipe", {}))
    return traits


def _hgr_traits(raw: Mapping[str, Any]) -> dict[str, str]:
    """HGR has attention and HGR∞ GPO on both sides; the tables name no poolings of theirs."""
    poolings = [_pooling_name(raw[name]) for name in ("video_pooling", "sentence_pooling")]
    named = {("attention", "attention"): "HGR", ("gpo", "gpo"): "HGR∞"}.get((poolings[0], poolings[1]))
    described = {"video_pooling": poolings[0], "sentence_pooling": poolings[1]}
    return {"image": "frames", "text": "bigru", "method": named or "HGR", **({} if named else described)}


def _pooling_name(pooling: dict[str, Any]) -> str:
    """A pooling with options differs from the one of the paper's rows."""
    return f"{pooling['name']} {pooling['options']}" if pooling["options"] else str(pooling["name"])


def _backbone_name(backbone: dict[str, Any], recipe: dict[str, Any]) -> str:
    """The name in the tables, where it is known; weights of equal shape differ by their source."""
    if backbone["options"].get("detector"):
        return "BUTD"
    if "wsl" in str(recipe.get("backbone_source", "")):
        return "WSL"
    depths = {23: "ResNet-101", 36: "ResNet-152"}
    blocks = backbone["options"].get("blocks") or [0, 0, 0, 0]
    return depths.get(blocks[2], str(backbone["name"]))
