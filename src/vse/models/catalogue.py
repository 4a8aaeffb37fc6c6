"""List models: bundled with the package, pulled to this machine, and recommended among the public ones.

Figures are zero-shot recalls as others published them, each with its source; an unknown figure is left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from vse._util.schema import read_json
from vse.errors import InputError
from vse.models.foreign import recognise_folder
from vse.models.onnx import IMAGE_FILE, TEXT_FILE
from vse.models.sources import list_installed, shipped_folder

Need = Literal["tiny", "fast", "balanced", "best", "multilingual"]
HOME_VARIABLE = "VSE_HOME"
PULLED_FILE = "pulled.json"
OPEN_CLIP = "mlfoundations/open_clip, docs/openclip_retrieval_results.csv"
BIG_VISION = "google-research/big_vision, README_siglip2.md"


@dataclass(frozen=True, kw_only=True)
class Recommended:
    """A public model with two towers.

    ``name`` is what ``--model`` takes. ``parameters`` are in millions and include both towers; ``megabytes`` are the
    weights to download. ``figures`` are percentages of zero-shot retrieval, published in ``source``.
    """

    name: str
    need: Need
    parameters: float
    megabytes: int
    embed_size: int
    languages: str
    licence: str
    figures: Mapping[str, float] = field(default_factory=dict)
    source: str | None = None
    notes: str = ""


def _english(coco: tuple[float, float], flickr: tuple[float, float] | None = None) -> dict[str, float]:
    """Return R@1 on COCO 5K and Flickr30K, texts to images and images to texts."""
    figures = {"coco 5k t2i R@1": coco[0], "coco 5k i2t R@1": coco[1]}
    return figures | ({} if flickr is None else {"flickr30k t2i R@1": flickr[0], "flickr30k i2t R@1": flickr[1]})


RECOMMENDED = (
    Recommended(
        name="wkcn/TinyCLIP-ViT-8M-16-Text-3M-YFCC15M",
        need="tiny",
        parameters=23.4,
        megabytes=94,
        embed_size=512,
        languages="en",
        licence="mit",
        notes="no published recall; 41.1 % on ImageNet (microsoft/Cream, TinyCLIP/README.md)",
    ),
    Recommended(
        name="Xenova/mobileclip_s0",
        need="tiny",
        parameters=53.8,
        megabytes=215,
        embed_size=512,
        languages="en",
        licence="apple-amlr",
        figures=_english((40.4, 58.7), (67.7, 85.9)),
        source="apple/ml-mobileclip, results/mobileclip_s0.jsonl",
        notes="ONNX, needs no torch; the licence (apple/ml-mobileclip, LICENSE_MODELS) allows research only",
    ),
    Recommended(
        name="Xenova/clip-vit-base-patch32",
        need="fast",
        parameters=151.3,
        megabytes=606,
        embed_size=512,
        languages="en",
        licence="mit",
        figures=_english((30.4, 50.1), (58.8, 78.9)),
        source=f"{OPEN_CLIP} (ViT-B-32, openai)",
        notes="ONNX, needs no torch; the weights of openai/clip-vit-base-patch32, licence of openai/CLIP",
    ),
    Recommended(
        name="openai/clip-vit-base-patch32",
        need="fast",
        parameters=151.3,
        megabytes=605,
        embed_size=512,
        languages="en",
        licence="mit",
        figures=_english((30.4, 50.1), (58.8, 78.9)),
        source=f"{OPEN_CLIP} (ViT-B-32, openai)",
        notes="the licence is that of openai/CLIP; the model card names none",
    ),
    Recommended(
        name="laion/CLIP-ViT-B-32-laion2B-s34B-b79K",
        need="fast",
        parameters=151.3,
        megabytes=605,
        embed_size=512,
        languages="en",
        licence="mit",
        figures=_english((39.3, 56.3), (66.8, 84.1)),
        source=f"{OPEN_CLIP} (ViT-B-32, laion2b_s34b_b79k)",
        notes="as fast as OpenAI's, and better",
    ),
    Recommended(
        name="google/siglip-base-patch16-224",
        need="balanced",
        parameters=203.2,
        megabytes=813,
        embed_size=768,
        languages="en",
        licence="apache-2.0",
        figures=_english((47.8, 65.7), (74.7, 89.1)),
        source=f"{OPEN_CLIP} (ViT-B-16-SigLIP, webli)",
    ),
    Recommended(
        name="laion/CLIP-ViT-L-14-DataComp.XL-s13B-b90K",
        need="best",
        parameters=427.6,
        megabytes=1710,
        embed_size=768,
        languages="en",
        licence="mit",
        figures=_english((45.7, 63.3), (73.4, 89.0)),
        source=f"{OPEN_CLIP} (ViT-L-14, datacomp_xl_s13b_b90k)",
    ),
    Recommended(
        name="google/siglip-so400m-patch14-384",
        need="best",
        parameters=878.0,
        megabytes=3510,
        embed_size=1152,
        languages="en",
        licence="apache-2.0",
        figures=_english((54.2, 72.4), (83.0, 94.3)),
        source=f"{OPEN_CLIP} (ViT-SO400M-14-SigLIP-384, webli)",
    ),
    Recommended(
        name="google/siglip2-so400m-patch14-384",
        need="best",
        parameters=1136.0,
        megabytes=4544,
        embed_size=1152,
        languages="many",
        licence="apache-2.0",
        figures=_english((55.8, 71.7)),
        source=BIG_VISION,
    ),
    Recommended(
        name="google/siglip2-base-patch16-224",
        need="multilingual",
        parameters=375.2,
        megabytes=1501,
        embed_size=768,
        languages="many",
        licence="apache-2.0",
        figures=_english((52.1, 68.9)),
        source=BIG_VISION,
        notes="figures on English captions",
    ),
    Recommended(
        name="BAAI/AltCLIP",
        need="multilingual",
        parameters=864.0,
        megabytes=3457,
        embed_size=768,
        languages="en, zh",
        licence="creativeml-openrail-m",
        figures={
            "flickr30k t2i R@1": 72.5,
            "flickr30k i2t R@1": 86.0,
            "flickr30k-cn t2i R@1": 69.8,
            "flickr30k-cn i2t R@1": 84.8,
        },
        source="FlagAI-Open/FlagAI, examples/AltCLIP/README.md",
        notes="earlier texts of the same authors give 66.3 and 63.7 from texts to images",
    ),
    Recommended(
        name="OFA-Sys/chinese-clip-vit-base-patch16",
        need="multilingual",
        parameters=188.3,
        megabytes=753,
        embed_size=512,
        languages="zh",
        licence="mit",
        figures={
            "flickr30k-cn t2i R@1": 62.7,
            "flickr30k-cn i2t R@1": 74.6,
            "coco-cn t2i R@1": 62.2,
            "coco-cn i2t R@1": 57.0,
        },
        source="OFA-Sys/Chinese-CLIP, Results.md",
        notes="Chinese only; the licence is that of OFA-Sys/Chinese-CLIP, the model card names none",
    ),
)
"""Public models that are widely used, from the smallest to the best, then the multilingual ones."""


@dataclass(frozen=True, kw_only=True)
class Installed:
    """A model on this machine; ``problem`` says why a damaged one cannot be used."""

    name: str
    folder: str
    bytes: int
    precision: str | None = None
    embed_size: int | None = None
    languages: tuple[str, ...] = ()
    licence: str | None = None
    scores: tuple[dict[str, Any], ...] = ()
    revision: str | None = None
    asked: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class ModelList:
    """The models of ``vse models``; ``home`` is where pulled ones are kept."""

    home: str
    bundled: tuple[Installed, ...]
    pulled: tuple[Installed, ...]
    recommended: tuple[Recommended, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the lists under their names, every model with all of its fields."""
        pulled = {model.name for model in self.pulled if model.problem is None}
        return {
            "home": self.home,
            "bundled": [asdict(model) for model in self.bundled],
            "pulled": [asdict(model) for model in self.pulled],
            "recommended": [asdict(model) | {"pulled": model.name in pulled} for model in self.recommended],
        }


def models_home() -> Path:
    """Return the folder of pulled models: ``$VSE_HOME/models``, by default ``~/.cache/vse/models``."""
    home = os.environ.get(HOME_VARIABLE)
    return (Path(home).expanduser() if home else Path.home() / ".cache" / "vse") / "models"


def list_models() -> ModelList:
    """List what is bundled, pulled and recommended; a damaged model is listed with the reason."""
    shipped = ((name, shipped_folder(name)) for name in list_installed())
    bundled = tuple(_installed(folder, name) for name, folder in shipped if folder is not None)
    home = models_home()
    pulled = tuple(_pulled(folder) for folder in _pulled_folders(home))
    return ModelList(str(home), bundled, pulled, RECOMMENDED)


def _pulled_folders(home: Path) -> list[Path]:
    """Return the folders of models in ``home``, or one level below it; hidden ones are being written."""
    if not home.is_dir():
        return []
    found = []
    for folder in _visible(home):
        inner = _visible(folder)
        if inner and not any((folder / name).exists() for name in (PULLED_FILE, "config.json")):
            found += inner
        else:
            found.append(folder)
    return found


def _visible(folder: Path) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    except OSError:
        return []


def _pulled(folder: Path) -> Installed:
    try:
        record = read_json(folder / PULLED_FILE)
    except InputError as error:
        return Installed(name=folder.name, folder=str(folder), bytes=_size(folder), problem=str(error))
    return _installed(folder, _text(record, "source") or folder.name, record)


def _installed(folder: Path, name: str, record: Mapping[str, Any] | None = None) -> Installed:
    """Describe an export from its files; ``record`` is what was written when it was pulled."""
    record = record or {}
    problem, config = None, {}
    try:
        config = read_json(folder / "config.json")
        pair = "runtime" not in config and recognise_folder(folder)
        if pair:
            config = {}
        elif config.get("runtime") != "onnx":
            problem = f"{folder / 'config.json'}: not an export; pull the model again"
        missing = [part for part in (IMAGE_FILE, TEXT_FILE) if not (folder / part).is_file()]
        if missing and problem is None and not pair:
            problem = f"{folder}: {' and '.join(missing)} missing; pull the model again"
    except InputError as error:
        problem = str(error)
    known = next((each for each in RECOMMENDED if each.name == name), None)
    about = _mapping(_mapping(config, "source"), "about")
    languages = about.get("languages")
    recorded = record.get("bytes")
    scores = about.get("scores")
    return Installed(
        name=name,
        folder=str(folder),
        bytes=recorded if isinstance(recorded, int) and not isinstance(recorded, bool) else _size(folder),
        precision=_text(record, "precision") or _text(config, "precision"),
        embed_size=config["embed_size"] if isinstance(config.get("embed_size"), int) else None,
        languages=tuple(map(str, languages)) if isinstance(languages, list) and languages else _languages(known),
        licence=_text(about, "license") or (known.licence if known else None),
        scores=tuple(each for each in scores if isinstance(each, dict)) if isinstance(scores, list) else (),
        revision=_text(record, "revision"),
        asked=_text(record, "asked"),
        problem=problem,
    )


def _languages(known: Recommended | None) -> tuple[str, ...]:
    return () if known is None else tuple(known.languages.split(", "))


def _mapping(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _text(value: Mapping[str, Any], key: str) -> str | None:
    found = value.get(key)
    return found if isinstance(found, str) and found else None


def _size(folder: Path) -> int:
    """Return the bytes of a folder's files; a file that disappears meanwhile counts nothing."""
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except OSError:
            continue
    return total
