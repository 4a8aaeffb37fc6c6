"""Encode captions of Flickr8k, MSVD, MSR-VTT and COCO with a sentence encoder: real 384-d embeddings to search.

    python benchmarks/search_parts/caption_vectors.py [--data DATA] [--into runs/caption-vectors] [--threads 1]

encodes every distinct caption with all-MiniLM-L6-v2 in float32 (mean over the tokens, unit length). Captions of equal
length are batched together, so that nothing is padded. After an interruption the same command resumes. Writes
``captions.json`` (a list) and ``vectors.npy`` (float32, a row for each caption, in the order of the data).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(os.environ.get("VSE_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
INTO = Path("runs/caption-vectors")
DIMENSIONS, LONGEST, BATCH = 384, 256, 128
BATCHES_KEPT = 32
"""So many batches are written at a time; an interruption loses no more."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--into", type=Path, default=INTO)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    captions, vectors = caption_vectors(options.data, options.into, options.threads)
    print(f"{len(captions):,} distinct captions, {vectors.nbytes / 1e6:.0f} MB in {options.into}")


def caption_vectors(data: Path = DATA, into: Path = INTO, threads: int = 1) -> tuple[list[str], np.ndarray]:
    """Return the captions and their memory-mapped embeddings; encode those that are missing."""
    into.mkdir(parents=True, exist_ok=True)
    captions, vectors = into / "captions.json", into / "vectors.npy"
    if not captions.exists():
        _replace(captions, read_captions(data))
    texts: list[str] = json.loads(captions.read_bytes())
    if not vectors.exists():
        _encode(texts, vectors, threads)
    return texts, np.load(vectors, mmap_mode="r")


def read_captions(data: Path) -> list[str]:
    """Return every distinct caption of the four datasets, in their order."""
    lines = (data / "flickr8k" / "Flickr8k.token.txt").read_text("utf-8").splitlines()
    found = [line.split("\t", 1)[1] for line in lines]
    videos = json.loads((data / "msvd" / "annotation" / "RET" / "ref_captions.json").read_bytes())
    found += [caption for of_video in videos.values() for caption in of_video]
    for archive in ("train_val_annotation.zip", "test_videodatainfo.json.zip"):
        with zipfile.ZipFile(data / "msrvtt" / archive) as opened:
            (name,) = (name for name in opened.namelist() if name.endswith(".json"))
            found += [sentence["caption"] for sentence in json.loads(opened.read(name))["sentences"]]
    with gzip.open(data / "coco" / "karpathy_test_captions.json.gz") as opened:
        found += [caption for picture in json.load(opened) for caption in picture["captions"]]
    return list(dict.fromkeys(caption.strip() for caption in found))


def _encode(texts: list[str], path: Path, threads: int) -> None:
    from tokenizers import Tokenizer

    from vse.inputs.pretrained import packaged_folder

    folder = packaged_folder("all-minilm-l6-v2")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    tokens = [encoded.ids for encoded in tokenizer.encode_batch_fast(texts)]
    encode = _encoder(folder, threads)
    partial, marker = path.with_name("partial.npy"), path.with_name("partial.json")
    done = json.loads(marker.read_bytes()) if marker.exists() and partial.exists() else 0
    shape = len(texts), DIMENSIONS
    vectors = np.lib.format.open_memmap(partial, "r+" if done else "w+", None if done else np.float32, shape)
    started, first = time.perf_counter(), done
    for number, rows in enumerate(_batches(tokens, done)):
        vectors[rows] = encode(np.array([tokens[row] for row in rows]))
        done += len(rows)
        if number % BATCHES_KEPT == BATCHES_KEPT - 1 or done == len(texts):
            vectors.flush()
            _replace(marker, done)
            rate = (done - first) / (time.perf_counter() - started)
            left = (len(texts) - done) / rate / 60
            print(f"{done:,} of {len(texts):,} captions, {rate:.0f}/s, {left:.0f} min left", file=sys.stderr)
    partial.replace(path)
    marker.unlink()


def _encoder(folder: Path, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    import torch

    from vse.encoders.third_party import import_transformers, load_pretrained

    torch.set_num_threads(threads)
    model = load_pretrained(import_transformers("encoding captions"), str(folder), attn_implementation="sdpa").eval()

    def encode(tokens: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            means = model(torch.from_numpy(tokens)).last_hidden_state.mean(1)
            return torch.nn.functional.normalize(means, dim=1).numpy()

    return encode


def _batches(tokens: list[list[int]], done: int) -> Iterator[np.ndarray]:
    """Yield rows of equal length, the shortest first, without the first ``done``."""
    lengths = np.array([len(each) for each in tokens])
    order = np.argsort(lengths, kind="stable")[done:]
    for same in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        yield from (same[start : start + BATCH] for start in range(0, len(same), BATCH))


def _replace(path: Path, value: Any) -> None:
    beside = path.with_name(path.name + "-new")
    beside.write_text(json.dumps(value), "utf-8")
    beside.replace(path)


if __name__ == "__main__":
    main()
