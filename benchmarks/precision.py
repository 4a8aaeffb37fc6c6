"""Export one model in every precision and measure what the smaller ones save, gain and lose.

    python benchmarks/precision.py MODEL                                    # 1,000 images, 5,000 captions
    python benchmarks/precision.py MODEL --images 100 --rounds 1            # a smoke test
    python benchmarks/precision.py MODEL --keep runs/exports --json runs/precision.json

MODEL is an image model as training saves it; the exports are those of ``vse export``. Images of the train split
calibrate int8, and the test split is ranked and timed. For each precision:

- megabytes of the towers, weights included;
- recall on the test split;
- images per second of ``index_folder``, which ``vse index`` calls: files into a new collection, to the last commit;
- a query of one sentence, warm, and the first one: from the call of ``vse.load`` to the embedding, with all libraries
  imported and the files in the page cache.

The precisions take turns in every round, after one warm-up round. Prints a Markdown table of medians; ratios to fp32
are medians over rounds, with the smallest and largest beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

import vse
from vse.errors import InputError, VSEError
from vse.models.onnx import Precision

if TYPE_CHECKING:
    from vse.data import CaptionedImages

DATA = Path(os.environ.get("VSE_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data") / "flickr8k"
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
BASE = PRECISIONS[0]
QUERIES = 50  # warm ones in a round
SIZES = {"MB, both towers": "megabytes", "MB, image tower": "image_megabytes", "MB, text tower": "text_megabytes"}
RECALLS = {
    "rsum": "rsum",
    **{f"{way} R@{k}": f"{key}_r{k}" for way, key in (("i→t", "i2t"), ("t→i", "t2i")) for k in (1, 5, 10)},
}
TIMES = {"indexing, images/s": "images_per_second", "query, ms": "query_ms", "first query, ms": "first_query_ms"}
Figures = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", metavar="MODEL", help="a model folder that torch runs, or a hub id")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="captioned images [default: Flickr8k]")
    parser.add_argument("--images", type=int, metavar="N", help="this many of the test split [default: all]")
    parser.add_argument("--rounds", type=int, default=5, help="[default: 5]")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the exports here [default: they are deleted]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the results as JSON")
    options = parser.parse_args()
    for name in ("images", "rounds"):
        if (given := getattr(options, name)) is not None and given < 1:
            parser.error(f"--{name}: {given}, expected 1 or more")
    try:
        with tempfile.TemporaryDirectory(prefix="vse-precision-") as temporary:
            results = measure(options, Path(temporary))
    except VSEError as error:
        parser.error(str(error))
    print(*lines(results), sep="\n")
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    return 0


def measure(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Return all figures by precision, and the ratios of the rounds."""
    from vse.data import open_data

    test = first_images(open_data(options.data, "test", use="files", check_files=True), options.images)
    folders = {precision: (options.keep or place) / precision for precision in PRECISIONS}
    figures = make_exports(options.model, options.data, folders)
    models = {precision: vse.load(folder) for precision, folder in folders.items()}
    for precision, model in models.items():
        say(f"{precision}: recall")
        figures[precision] |= recall(model, test)
    photos = copied(test, place / "photos")
    rounds: list[dict[Precision, Figures]] = []
    for number in range(options.rounds + 1):
        say(f"round {number} of {options.rounds}")
        rounds.append({each: times(models[each], folders[each], photos, test.captions) for each in PRECISIONS})
    del rounds[0]  # the warm-up round
    for precision in PRECISIONS:
        for key in TIMES.values():
            figures[precision][key] = statistics.median(each[precision][key] for each in rounds)
    return {
        "machine": machine(),
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "model": models[BASE].fingerprint(),
        "data": f"{test.name} {test.split}",
        "images": len(test.images),
        "captions": len(test.captions),
        "rounds": options.rounds,
        "figures": figures,
        "ratios": {precision: ratios(precision, figures, rounds) for precision in PRECISIONS[1:]},
    }


def first_images(data: CaptionedImages, count: int | None) -> CaptionedImages:
    """Return the first images of a split with their captions."""
    from vse.data import CaptionedImages, ImageFiles

    count = min(count or len(data.images), len(data.images))
    kept = np.flatnonzero(data.caption_to_image < count)
    images = ImageFiles(tuple(data.images[i] for i in range(count)), tuple(data.images.ids[:count]))
    captions = tuple(data.captions[j] for j in kept)
    return CaptionedImages(data.name, data.split, data.layout, images, captions, data.caption_to_image[kept])


def make_exports(name: str, data: Path, folders: dict[Precision, Path]) -> dict[Precision, Figures]:
    """Write an export of every precision; return megabytes by precision."""
    from vse.convert.onnx_export import CALIBRATION_IMAGES, export_onnx
    from vse.data import open_data
    from vse.models.sources import model_folder
    from vse.models.storage import load_towers

    model = load_towers(model_folder(name))
    if model.preprocessing is None:
        raise InputError(f"{name}: takes features; name a model that encodes images ('vse inspect MODEL' shows which)")
    train = open_data(data, "train", use="files").images
    step = max(len(train) // CALIBRATION_IMAGES, 1)  # spread over the whole split, whatever its order
    pictures = [train[i] for i in range(0, len(train), step)][:CALIBRATION_IMAGES]
    sizes: dict[Precision, Figures] = {}
    for precision, folder in folders.items():
        say(f"{precision}: export")
        towers = export_onnx(model, folder, precision=precision, images=pictures).bytes
        sizes[precision] = {f"{tower}_megabytes": size / 1e6 for tower, size in towers.items()}
        sizes[precision]["megabytes"] = sum(towers.values()) / 1e6
    return sizes


def recall(model: Any, data: CaptionedImages) -> Figures:
    """Return the six recalls in percent and their sum."""
    from vse.evaluation import retrieval_metrics

    images = model.encode_images(data.images, on_bad="raise")
    texts = model.encode_texts(data.captions, unknown="allow")
    found = retrieval_metrics(images, texts, data.caption_to_image).figures()
    return {key: found[key] for key in RECALLS.values()}


def copied(data: CaptionedImages, folder: Path) -> Path:
    """Copy the images into a separate folder, which is then indexed."""
    folder.mkdir()
    for number, path in enumerate(data.images.paths):
        shutil.copy(path, folder / f"{number:06}{path.suffix}")
    return folder


def times(model: Any, folder: Path, photos: Path, sentences: tuple[str, ...]) -> Figures:
    """Time one round of one precision."""
    rate = index(model, photos)
    began = time.perf_counter()
    fresh = vse.load(folder)
    fresh.encode_texts(sentences[:1], unknown="allow")
    first = time.perf_counter() - began
    warm = []
    for sentence in sentences[1 : QUERIES + 1]:
        began = time.perf_counter()
        fresh.encode_texts([sentence], unknown="allow")
        warm.append(time.perf_counter() - began)
    return {
        "images_per_second": rate,
        "query_ms": 1e3 * statistics.median(warm),
        "first_query_ms": 1e3 * first,
    }


def index(model: Any, photos: Path) -> float:
    """Return images per second for indexing a folder into a new collection."""
    from vse.index.pipeline import index_folder
    from vse.index.store import EmbeddedCollection

    about = {"model": model.fingerprint(), "model_source": "benchmark", "dimensions": model.embed_size}
    with tempfile.TemporaryDirectory(prefix="vse-precision-") as temporary:
        began = time.perf_counter()
        with EmbeddedCollection.create(Path(temporary, "index.vse"), **about) as collection:
            report = index_folder(collection, model, photos)
        seconds = time.perf_counter() - began
    for problem in report.problems:
        raise InputError(f"{problem.path}: not indexed ({problem.reason}); name other images with --data")
    return report.new / seconds


def ratios(
    precision: Precision, figures: dict[Precision, Figures], rounds: list[dict[Precision, Figures]]
) -> dict[str, list[float]]:
    """Return ``[ratio]`` to fp32, or ``[smallest, median, largest]`` over rounds for timed figures."""
    own, base = figures[precision], figures[BASE]
    found = {key: [own[key] / base[key]] for key in (*SIZES.values(), *RECALLS.values()) if base[key]}
    for key in TIMES.values():
        each = [one[precision][key] / one[BASE][key] for one in rounds]
        found[key] = [min(each), statistics.median(each), max(each)]
    return found


def lines(results: dict[str, Any]) -> list[str]:
    """Return the settings and a Markdown table with a row for each figure."""
    counts = f"{results['images']:,} images, {results['captions']:,} captions"
    said = [
        f"{results['machine']}, {results['date']}",
        f"model {results['model']}, {results['data']}: {counts}",
        f"medians of {results['rounds']} rounds in turns; in brackets the least and the greatest ratio of a round",
        "",
        "| | " + " | ".join((*PRECISIONS, *(f"{each} / {BASE}" for each in PRECISIONS[1:]))) + " |",
        "|---|" + "---:|" * (2 * len(PRECISIONS) - 1),
    ]
    for name, key in {**SIZES, **RECALLS, **TIMES}.items():
        values = [results["figures"][precision][key] for precision in PRECISIONS]
        digits = 2 if key == "query_ms" else 1
        cells = [f"{value:.{digits}f}" for value in values]
        for precision, value in zip(PRECISIONS[1:], values[1:], strict=True):
            ratio = results["ratios"][precision].get(key)
            cells.append("" if ratio is None else shown(ratio, value - values[0] if key in RECALLS.values() else None))
        said.append(f"| {name} | " + " | ".join(cells) + " |")
    return said


def shown(ratio: list[float], points: float | None) -> str:
    """Format a ratio, with the points of recall or the range of the rounds where there are any."""
    if points is not None:
        return f"{round(points, 1) + 0.0:+.1f}, {ratio[0]:.3f}×"  # no "-0.0"
    if len(ratio) == 1:
        return f"{ratio[0]:.2f}×"
    least, median, greatest = ratio
    return f"{median:.2f}× ({least:.2f}–{greatest:.2f})"


def machine() -> str:
    """Describe the machine that the numbers depend on."""
    import onnxruntime

    names = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    processor = names[0] if names else platform.machine()
    return (
        f"{processor}, {os.cpu_count()} cores, ONNX Runtime {onnxruntime.__version__}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f} at the end"
    )


def _lines(path: str) -> list[str]:
    return Path(path).read_text("utf-8").splitlines() if Path(path).exists() else []


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
