"""Measure how well the built-in role parser finds verbs and noun heads on manually labelled captions.

    python benchmarks/role_parser.py

The labels are in ``tests/data/role_labels.json`` and name captions by id; the captions themselves are read from the
folders ``msvd`` and ``msrvtt`` in ``--data``, by default that of the tests, and parsed as in training: those of MSR-VTT
as plain sentences. Precision is the share of found heads that are labelled, recall the share of labelled heads that are
found. The rules were written with MSVD's sample in view; the captions of MSR-VTT were labelled after the rules were
written, and some rules were corrected afterwards on the captions that were wrong. The figures are therefore optimistic
for both.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import zipfile
from pathlib import Path

from vse.data.roles import parse_roles
from vse.inputs.text import plain_sentence

REPOSITORY = Path(__file__).resolve().parents[1]
LABELS = REPOSITORY / "tests" / "data" / "role_labels.json"
DATA = Path(os.environ.get("VSE_DATA") or REPOSITORY.parent / "shared" / "data")
KINDS = ("verbs", "nouns")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder with msvd and msrvtt")
    data = parser.parse_args().data
    labels = json.loads(LABELS.read_text(encoding="utf-8"))
    print(f"{'sample':8} {'kind':6} {'labelled':>8} {'found':>6} {'right':>6} {'precision':>9} {'recall':>7}")
    for name, captions in (("msvd", msvd(data, labels["msvd"])), ("msrvtt", msrvtt(data, labels["msrvtt"]))):
        began = time.perf_counter()
        parses = [parse_roles(caption) for caption in captions]
        seconds = time.perf_counter() - began
        for kind in KINDS:
            pairs = [
                (set(getattr(parse, kind)), set(label[kind])) for parse, label in zip(parses, labels[name], strict=True)
            ]
            found, labelled = (sum(len(pair[side]) for pair in pairs) for side in (0, 1))
            right = sum(len(ours & theirs) for ours, theirs in pairs)
            figures = f"{right / found:9.3f} {right / labelled:7.3f}"
            print(f"{name:8} {kind:6} {labelled:8} {found:6} {right:6} {figures}")
        print(f"{name:8} {1e6 * seconds / len(captions):.0f} µs a caption")


def msvd(data: Path, labels: list[dict]) -> list[str]:
    """Return the labelled captions, by video and number."""
    captions = json.loads((data / "msvd" / "annotation" / "RET" / "ref_captions.json").read_text(encoding="utf-8"))
    return [captions[label["video"]][label["caption"]] for label in labels]


def msrvtt(data: Path, labels: list[dict]) -> list[str]:
    """Return the labelled captions, by sentence number; as plain sentences they have the same words."""
    with zipfile.ZipFile(data / "msrvtt" / "test_videodatainfo.json.zip") as archive:
        content = json.loads(archive.read("test_videodatainfo.json"))
    captions = {sentence["sen_id"]: plain_sentence(sentence["caption"]) for sentence in content["sentences"]}
    return [captions[label["sen_id"]] for label in labels]


if __name__ == "__main__":
    main()
