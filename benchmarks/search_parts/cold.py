"""Compare a first search, from process start to the printed result, with the imports that it needs.

Two commands in turns, each a separate process:

- imports: ``python -c "import numpy, onnxruntime, faiss"``;
- search: ``vse search INDEX "two dogs playing in snow"`` over 10,000 items.

The model has the published sizes of a BiGRU text tower: 11,755 words of 300 numbers, 1,024 dimensions. Its weights and
the embeddings of the collection are random, which does not change what has to be read and computed. Files are in the
page cache after the first round, which is not counted.

Options, all optional: ``model`` (an export to use instead), ``items``, ``rounds``, and ``into`` (where model and
collection are created and reused; a temporary folder otherwise).
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import vse

ITEMS, ROUNDS = 10_000, 21
WORDS, WORD_SIZE, EMBED_SIZE = 11_755, 300, 1024
QUERY = "two dogs playing in snow"
IMPORTS = "import numpy, onnxruntime, faiss"
CHUNK = 1000


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Return wall and processor seconds for both commands, and the ratio of the medians."""
    items, rounds = getattr(options, "items", None) or ITEMS, getattr(options, "rounds", None) or ROUNDS
    with tempfile.TemporaryDirectory(prefix="vse-cold-") as temporary:
        place = Path(getattr(options, "into", None) or temporary) / "cold"
        place.mkdir(parents=True, exist_ok=True)
        model = Path(getattr(options, "model", None) or place / "model")
        if not (model / "config.json").exists():
            make_model(model)
        index = place / f"{items}-{vse.load(model).fingerprint()}.vse"
        if not index.exists():
            make_collection(index, model, items)
        commands = {
            "imports": [sys.executable, "-c", IMPORTS],
            "search": [str(Path(sys.executable).with_name("vse")), "search", str(index), QUERY, "--model", str(model)],
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for number in range(rounds + 1):
            for name, command in commands.items():
                seconds = timed(command)
                if number:
                    taken[name].append(seconds)
    wall = {name: statistics.median(each[0] for each in pairs) for name, pairs in taken.items()}
    processor = {name: statistics.median(each[1] for each in pairs) for name, pairs in taken.items()}
    paired = [ours[0] / bare[0] for ours, bare in zip(taken["search"], taken["imports"], strict=True)]
    return {
        "items": items,
        "rounds": rounds,
        "seconds": wall,
        "processor_seconds": processor,
        "ratio": wall["search"] / wall["imports"],
        "processor_ratio": processor["search"] / processor["imports"],
        "ratio_of_rounds": [min(paired), statistics.median(paired), max(paired)],
    }


def lines(result: dict[str, Any]) -> list[str]:
    """Return a Markdown table with a row for each command, and the ratio."""
    rows = [
        f"| {name} | {result['seconds'][key]:.3f} s | {result['processor_seconds'][key]:.3f} s |"
        for key, name in (("imports", f'`python -c "{IMPORTS}"`'), ("search", f'`vse search INDEX "{QUERY}"`'))
    ]
    low, middle, high = result["ratio_of_rounds"]
    return [
        f"| cold start, {result['items']:,} items | wall | processor |",
        "|---|---|---|",
        *rows,
        f"| search / imports | {result['ratio']:.2f}× | {result['processor_ratio']:.2f}× |",
        "",
        f"Medians of {result['rounds']} rounds in turns. Ratios of single rounds: {low:.2f} to {high:.2f}×, "
        f"{middle:.2f}× in the middle.",
    ]


def timed(command: Sequence[str]) -> tuple[float, float]:
    """Return the wall seconds of a process, and its processor seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def environment() -> dict[str, str]:
    """Return the environment of this process, without what makes the interpreter import or write more."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def make_model(folder: Path) -> None:
    """Export a model with a text tower of the published sizes; its image tower, which no text needs, is small."""
    import torch

    from vse.convert.onnx_export import export_onnx
    from vse.inputs.vocabulary import FIRST, Vocabulary
    from vse.models.config import BackboneConfig, BiGRUConfig, GridConfig, ModelConfig
    from vse.models.vse_model import VSEModel

    made = (f"{''.join(chr(97 + number // 26**place % 26) for place in range(4))}s" for number in range(WORDS))
    words = list(dict.fromkeys([*FIRST, *QUERY.split(), *made]))[: WORDS - 1]  # the mask follows
    tokenizer = Vocabulary(words).tokenizer()
    image = GridConfig(
        backbone=BackboneConfig(name="caffe-resnet", options={"blocks": [1, 1, 1, 1], "width": 4}), image_size=64
    )
    text = BiGRUConfig(vocabulary_size=tokenizer.vocab_size, word_size=WORD_SIZE)
    torch.manual_seed(0)
    model = VSEModel.build(ModelConfig(embed_size=EMBED_SIZE, image=image, text=text), tokenizer).eval()
    export_onnx(model, folder)


def make_collection(index: Path, model: Path, items: int) -> None:
    """Create a collection of files that are only names, with random unit vectors."""
    from vse.index.store import EmbeddedCollection
    from vse.index.types import Entry, MediaFile, Moment

    loaded = vse.load(model)
    generator = np.random.default_rng(0)
    about = {"model": loaded.fingerprint(), "model_source": str(model), "dimensions": loaded.embed_size}
    with EmbeddedCollection.create(index, **about) as collection:
        for start in range(0, items, CHUNK):
            vectors = generator.standard_normal((min(CHUNK, items - start), loaded.embed_size)).astype(np.float32)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            files = (
                MediaFile("/photographs", f"{number // 100:03}/{number:06}.jpg", "image", 1, 1, str(number), 640, 480)
                for number in range(start, start + len(vectors))
            )
            collection.add([Entry(file, (Moment(row),)) for file, row in zip(files, vectors, strict=True)])
