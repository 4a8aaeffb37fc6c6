"""``vse eval`` on a data set of videos."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from vse.cli.console import progress_on_stderr
from vse.errors import InputError, UsageError

if TYPE_CHECKING:
    from vse.data import CaptionedImages
    from vse.evaluation.ranks import Ties
    from vse.evaluation.video import VideoTest
    from vse.evaluation.video_report import ScoredModel, VideoReport
    from vse.hgr.sentence_graphs import SentenceGraphs
    from vse.progress import ProgressReporter


def holds_videos(path: Path) -> bool:
    """Whether the data set has one of the layouts of videos."""
    from vse.data.layouts import LAYOUTS, find_layout

    return LAYOUTS[find_layout(path)].videos


def refuse_for_videos(given: Mapping[str, object], data: Path) -> None:
    """Options that mean nothing for videos, by name, with what they were given."""
    for option, value in given.items():
        if value:
            raise UsageError(f"{option} is for images, and {str(data)!r} holds videos: leave it out")


def evaluate_video_models(
    names: Sequence[str],
    path: Path,
    split: str,
    *,
    features: Path | None,
    ensemble: bool,
    comparing: bool,
    against_paper: bool,
    ties: Ties,
    samples: int,
    seed: int,
) -> VideoReport:
    """Every model on the distinct sentences of the split; see :mod:`vse.evaluation.video`."""
    from vse.data import open_data
    from vse.data.video_hgr import annotation_folder
    from vse.evaluation.video import VideoTest
    from vse.evaluation.video_report import evaluate_on_videos
    from vse.hgr.sentence_graphs import SentenceGraphs

    data = open_data(path, split, use="features", features=features)
    test = VideoTest.of(data)
    with progress_on_stderr() as progress:
        progress.note(f"{data.name} {data.split}: {len(data.images)} videos, {len(test.sentences)} distinct sentences")
        graphs = cache(lambda limit: SentenceGraphs.of(test.sentences, annotation_folder(path), limit=limit))
        return evaluate_on_videos(
            (_scored(name, data, test, graphs, progress) for name in names),
            test,
            ensemble=ensemble,
            comparing=comparing,
            against_paper=against_paper,
            ties=ties,
            samples=samples,
            seed=seed,
            progress=progress,
        )


def _scored(
    name: str,
    data: CaptionedImages,
    test: VideoTest,
    graphs_of: Callable[[int], SentenceGraphs],
    progress: ProgressReporter,
) -> ScoredModel:
    """``graphs_of`` has the role graphs of the test's sentences, for a number of words that a model reads."""
    import vse
    from vse.evaluation.embeddings import model_traits
    from vse.evaluation.video_models import video_scores
    from vse.evaluation.video_report import ScoredModel

    model = vse.load(name)
    if model.preprocessing is not None:
        raise InputError(
            f"{name} reads pictures, and {data.name} holds frame features of videos: use a model of frames"
        )
    graphs, note = None, ""
    if hasattr(model, "score_pairs") and model.tokenizer is not None:
        graphs = graphs_of(model.tokenizer.max_length)
        note = graphs.note
        progress.note(f"{name}: {note}")
    scores = video_scores(model, data, test, graphs=graphs, progress=progress)
    folder = Path(name).resolve().name if Path(name).exists() else name.replace("/", "-")
    called = getattr(getattr(model.config, "about", None), "name", None) or folder
    return ScoredModel(called, model.fingerprint(), model_traits(model), scores, note)
