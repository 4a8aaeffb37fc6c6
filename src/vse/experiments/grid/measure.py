"""How a trained model ranks the test split; kept beside it, so that no model is evaluated twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse.data import CaptionedImages
from vse.data.video_frames import VideoFrames
from vse.evaluation.bootstrap import SAMPLES, FoldRanks, resample
from vse.evaluation.embeddings import split_hash
from vse.evaluation.metrics import RetrievalMetrics
from vse.evaluation.positives import Positives
from vse.experiments.grid.runs import TrainedSeed
from vse.files import write_json
from vse.plain import read_json
from vse.progress import ProgressReporter
from vse.storage import load_model
from vse.training.build import graphs_of, open_split
from vse.training.dev import SplitRanks, rank_split, right_texts

TEST = "test.json"
"""In the folder of a run."""


@dataclass(frozen=True, eq=False)
class MeasuredSeed:
    """The figures of one model on the test split, and the same for draws of its images, ``(samples, figures)``."""

    trained: TrainedSeed
    metrics: RetrievalMetrics
    draws: NDArray[np.float64]


def measure_grid(
    trained: Sequence[TrainedSeed], split: str, report: ProgressReporter, *, samples: int = SAMPLES
) -> tuple[list[MeasuredSeed], dict[str, Any]]:
    """Every model on ``split``, and what the split is."""
    data = open_split(trained[0].recipe, split)
    right = right_texts(data)
    report.start(len(trained), f"measuring on {data.name} {data.split}")
    found = []
    for each in trained:
        found.append(measured(each, _ranks(each, data, right), samples=samples))
        report.advance(1)
    report.finish()
    return found, {
        "data": data.name,
        "split": data.split,
        "split_hash": split_hash(data),
        "images": len(data.images),
        "videos": isinstance(data.images, VideoFrames),
        "captions": len(data.captions),
        "texts": right.candidates,
        "ties": "pessimistic",
        "samples": samples,
    }


def measured(trained: TrainedSeed, ranks: SplitRanks, *, samples: int = SAMPLES) -> MeasuredSeed:
    """The figures of ranks; the draws are the same for all models of a split."""
    fold = FoldRanks(ranks.images, ranks.texts, ranks.right.T)
    return MeasuredSeed(trained, ranks.metrics, resample([fold], samples=samples))


def _ranks(trained: TrainedSeed, data: CaptionedImages, right: Positives) -> SplitRanks:
    """From what is kept, if it is of these weights and this split."""
    path = trained.result.folder / TEST
    what = {"model": read_json(trained.result.model / "config.json")["fingerprint"], "split": split_hash(data)}
    if path.is_file():
        kept = read_json(path)
        if all(kept.get(name) == value for name, value in what.items()):
            return SplitRanks(np.array(kept["images"]), np.array(kept["texts"]), right)
    model = load_model(trained.result.model)
    ranks = rank_split(model, data, graphs_of(trained.recipe, data.captions))
    write_json(path, {**what, "images": ranks.images.tolist(), "texts": ranks.texts.tolist()})
    return ranks
