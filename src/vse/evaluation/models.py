"""Score models, by name or in memory, on a dataset on disk: what ``vse.evaluate`` and ``vse eval`` measure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vse.data import FeatureStore, attach, open_data
from vse.data.layouts.hgr import annotation_folder
from vse.data.open import holds_videos
from vse.errors import InputError
from vse.evaluation.embeddings import Embeddings, embed_split, split_hash
from vse.evaluation.protocols import AUTO
from vse.evaluation.report import EvaluationReport, run_evaluation
from vse.evaluation.rerank import PairCache, RerankedScores, check_depth, score_pairs_of
from vse.evaluation.retrieval_test import RetrievalTest, ScoredModel
from vse.models.protocols import NO_RERANKER, PairScorer
from vse.models.sources import load, load_reranker
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.data import CaptionedImages

StrPath = str | os.PathLike[str]
DEPTH = 50
"""Candidates that are re-ranked by default."""


def evaluate(
    models: Any,
    data: StrPath,
    split: str = "test",
    *,
    protocol: str = AUTO,
    images: StrPath | None = None,
    features: StrPath | None = None,
    rerank: Any = None,
    depth: int = DEPTH,
    rerank_features: StrPath | None = None,
    ensemble: bool = False,
    compare: bool = False,
    against_paper: bool = False,
    samples: int = 1000,
    seed: int = 0,
    device: str | None = None,
    threads: int | None = None,
    progress: ProgressReporter | None = None,
) -> EvaluationReport:
    """Measure image–text or video–text retrieval of models on a dataset.

    Args:
        models: One model or several: folders, hub ids, bundled names or loaded models.
        data: The dataset.
        split: The split to rank.
        protocol: A protocol by name, or ``auto`` for the usual ones of the dataset.
        images: The folder of the image files, if it is elsewhere.
        features: A store of ``vse features`` that replaces the image files, or the frame features of videos.
        rerank: A model that scores pairs, by name or loaded: it orders the first ``depth`` candidates of each query.
        depth: Candidates that are re-ranked.
        rerank_features: The feature store of the re-ranker, if it is not ``features``.
        ensemble: Average the scores of all models.
        compare: Add paired differences to the first model.
        against_paper: Look up the closest published rows.
        samples: Bootstrap draws for the intervals.
        seed: The seed of the draws.
        device: Where a model that is loaded here runs, as for :func:`vse.load`; the CPU by default.
        threads: Threads on the CPU of a model that is loaded here; all cores by default.
        progress: Receives progress and notes.

    Returns:
        Recall, ranks and rsum with intervals; ``.results[0].metrics.rsum`` is the sum of the six recalls.

    Raises:
        InputError: The dataset, the split or a model cannot be read, they do not fit each other, or the device is
            missing.

    Example:
        >>> import vse
        >>> report = vse.evaluate("photo", "data/flickr8k")  # doctest: +SKIP
        >>> report.results[0].metrics.rsum  # doctest: +SKIP
        306.1
    """
    single = isinstance(models, (str, os.PathLike, PairScorer)) or not isinstance(models, Iterable)
    given = [models] if single else models
    members = score_models(
        given,
        data,
        split,
        images=images,
        features=features,
        rerank=rerank,
        depth=depth,
        rerank_features=rerank_features,
        device=device,
        threads=threads,
        progress=progress or SilentProgress(),
    )
    return run_evaluation(
        members,
        protocol=protocol,
        ensemble=ensemble,
        comparing=compare,
        against_paper=against_paper,
        samples=samples,
        seed=seed,
        progress=progress,
    )


def score_models(
    models: Iterable[Any],
    data: StrPath,
    split: str,
    *,
    images: StrPath | None = None,
    features: StrPath | None = None,
    save: Path | None = None,
    rerank: Any = None,
    depth: int = DEPTH,
    rerank_features: StrPath | None = None,
    device: str | None = None,
    threads: int | None = None,
    progress: ProgressReporter,
) -> Iterator[ScoredModel]:
    """Yield the scores of one model after the other, so that a caller may release each before the next.

    Args:
        models: Folders, hub ids, bundled names or loaded models.
        data: The dataset.
        split: The split to rank.
        images: The folder of the image files, if it is elsewhere.
        features: A feature store, or the frame features of videos.
        save: Also save the embeddings of images and captions here, one folder per model.
        rerank: A model that scores pairs and orders the first ``depth`` candidates of each query.
        depth: Candidates that are re-ranked.
        rerank_features: The feature store of the re-ranker, if it is not ``features``.
        device: Where a model that is loaded here runs, as for :func:`vse.load`; the CPU by default.
        threads: Threads on the CPU of a model that is loaded here; all cores by default.
        progress: Receives progress and notes.
    """
    again = None
    if rerank is not None:
        again = _Reranking.open(
            rerank,
            check_depth(depth),
            data,
            split,
            images=images,
            features=rerank_features or features,
            device=device,
            threads=threads,
            progress=progress,
        )
    if holds_videos(data):
        yield from _score_videos(models, data, split, features, device, threads, progress)
        return
    models = list(models)
    for model, name in zip(models, model_names(models), strict=True):
        loaded, opened = _open_images(model, name, data, split, images, features, device, threads, progress)
        if isinstance(loaded, PairScorer):
            if save is not None:
                raise InputError(f"--save-embeddings: {name}: {loaded.no_vectors}")
            test = RetrievalTest.of(opened)
            scored = ScoredModel.of_model(loaded, opened, test, name=name, progress=progress)
            yield scored if again is None else again.of(scored)
            continue
        embedded = embed_split(loaded, opened, name=name, progress=progress)
        if save is not None:
            header = embedded.header
            embedded.save(save / f"{header.model}-{header.data}-{header.split}-{header.fingerprint}")
        scored = ScoredModel.of_embeddings(embedded)
        yield scored if again is None else again.of(scored)


@dataclass(frozen=True, eq=False)
class _Reranking:
    """A re-ranker with its view of the split; its scores of pairs are shared by all first stages."""

    name: str
    fingerprint: str
    depth: int
    pairs: PairCache
    split: str

    @classmethod
    def open(
        cls,
        model: Any,
        depth: int,
        data: StrPath,
        split: str,
        *,
        images: StrPath | None,
        features: StrPath | None,
        device: str | None,
        threads: int | None,
        progress: ProgressReporter,
    ) -> _Reranking:
        if holds_videos(data):
            raise InputError("re-ranking is for images and captions: leave out the re-ranker for a dataset of videos")
        named = isinstance(model, (str, os.PathLike))
        loaded = load_reranker(os.fspath(model), device=device, threads=threads) if named else model
        if not isinstance(loaded, PairScorer):
            raise InputError(f"{model_names([model])[0]}: {NO_RERANKER}")
        opened = open_for_pairs(loaded, data, split, images=images, features=features)
        pairs = score_pairs_of(loaded, opened.images, opened.captions, progress=progress)
        return cls(model_names([model])[0], loaded.fingerprint(), depth, pairs, split_hash(opened))

    def of(self, scored: ScoredModel) -> ScoredModel:
        """Return a first stage with its first candidates re-ranked."""
        if scored.test.about["split_hash"] != self.split:
            raise InputError(f"{self.name} and {scored.name} see different captions: use the same images for both")
        about = {"name": self.name, "fingerprint": self.fingerprint, "depth": self.depth}
        if isinstance(scored.scores, RerankedScores):
            raise InputError(f"{scored.name} is re-ranked already")
        return replace(
            scored,
            name=f"{scored.name} → {self.name}@{self.depth}",
            scores=RerankedScores(scored.scores, self.pairs, self.depth),
            embeddings=None,
            reranker=about,
        )


def open_for_pairs(
    model: PairScorer, data: StrPath, split: str, *, images: StrPath | None = None, features: StrPath | None = None
) -> CaptionedImages:
    """Open a split of images as a model of pairs reads it: image files, a feature store, or the dataset's features."""
    if model.capabilities.images:
        return open_data(data, split, images=images, use="files")
    boxes, tags = bool(getattr(model, "reads_boxes", False)), getattr(model, "tags", ())
    if features is None:
        opened = open_data(data, split, use="features", images=images)
    else:
        files, store = open_data(data, split, images=images, use="files"), FeatureStore.open(features)
        opened = attach(files, store, boxes=boxes, tags=tags)
    wanted, found = getattr(model, "feature_size", None), opened.images.feature_size
    if wanted is not None and found != wanted:
        raise InputError(
            f"{opened.name}, split {split!r}: features of {found} values, and the model takes {wanted}: name those "
            "that it was trained on"
        )
    return opened


def embed_model(
    model: Any,
    data: StrPath,
    split: str,
    *,
    name: str | None = None,
    images: StrPath | None = None,
    features: StrPath | None = None,
    device: str | None = None,
    threads: int | None = None,
    progress: ProgressReporter,
) -> Embeddings:
    """Return the embeddings of a split of images, from features or from image files as the model needs them."""
    name = name or model_names([model])[0]
    loaded, opened = _open_images(model, name, data, split, images, features, device, threads, progress)
    if isinstance(loaded, PairScorer):
        raise InputError(f"{name}: {loaded.no_vectors}")
    return embed_split(loaded, opened, name=name, progress=progress)


def _open_images(
    model: Any,
    name: str,
    data: StrPath,
    split: str,
    images: StrPath | None,
    features: StrPath | None,
    device: str | None,
    threads: int | None,
    progress: ProgressReporter,
) -> tuple[Any, CaptionedImages]:
    """Load a model, and open a split of images as features or as image files, as the model needs them."""
    named = isinstance(model, (str, os.PathLike))
    loaded: Any = load(os.fspath(model), device=device, threads=threads) if named else model
    if isinstance(loaded, PairScorer) and loaded.reads_graphs:
        raise InputError(f"{name}: {loaded.no_vectors}")
    opened: CaptionedImages
    if not loaded.capabilities.images:
        opened = open_data(data, split, use="features" if features is None else "files", images=images)
        boxes, tags = bool(getattr(loaded, "reads_boxes", False)), getattr(loaded, "tags", ())
        opened = opened if features is None else attach(opened, FeatureStore.open(features), boxes=boxes, tags=tags)
    else:
        opened = open_data(data, split, images=images, use="files")
        if features is not None:
            store = FeatureStore.open(features)
            _check_store(store, loaded, name)
            opened = attach(opened, store)
    progress.note(
        f"{name}: {len(opened.images)} images, {len(opened.captions)} captions of {opened.name} {opened.split}"
    )
    return loaded, opened


def _score_videos(
    models: Iterable[Any],
    data: StrPath,
    split: str,
    features: StrPath | None,
    device: str | None,
    threads: int | None,
    progress: ProgressReporter,
) -> Iterator[ScoredModel]:
    """Score videos; models that read role graphs share those of the split."""
    from vse.hgr.graphs import SentenceGraphs

    opened = open_data(data, split, use="features", features=features)
    test = RetrievalTest.of(opened)
    progress.note(f"{opened.name} {opened.split}: {len(opened.images)} videos, {len(test.texts)} distinct sentences")
    graphs_of = cache(lambda limit: SentenceGraphs.of(test.texts, annotation_folder(Path(data)), limit=limit))
    models = list(models)
    for model, name in zip(models, model_names(models), strict=True):
        named = isinstance(model, (str, os.PathLike))
        loaded = load(os.fspath(model), device=device, threads=threads) if named else model
        if loaded.capabilities.images:
            held = f"{opened.name} holds frame features of videos"
            raise InputError(f"{name} reads images, and {held}: use a model that reads frames")
        graphs = None
        if isinstance(loaded, PairScorer) and loaded.reads_graphs and loaded.tokenizer is not None:
            graphs = graphs_of(loaded.tokenizer.max_length)
            progress.note(f"{name}: {graphs.note}")
        yield ScoredModel.of_model(loaded, opened, test, name=name, graphs=graphs, progress=progress)


_OF_A_RUN = re.compile(r"best|last|averaged|model-\d+")  # names that every run folder has


def model_names(models: Sequence[Any]) -> list[str]:
    """Return how results call each model: its folder, its hub id with a dash, or its fingerprint.

    A model of a run is called after the run, and equal names are told apart by the folders above them.

    >>> model_names(["runs/a/best", "runs/b/best", "other/b/best", "owner/model"])
    ['a-best', 'runs-b-best', 'other-b-best', 'owner-model']
    """
    paths = [_path_parts(model) for model in models]
    lengths = [2 if _OF_A_RUN.fullmatch(parts[-1]) else 1 for parts in paths]
    while True:
        names = ["-".join(parts[-length:]) for parts, length in zip(paths, lengths, strict=True)]
        again = [
            any(name == other and paths[i] != paths[j] for j, other in enumerate(names)) and lengths[i] < len(paths[i])
            for i, name in enumerate(names)
        ]
        if not any(again):
            return names
        lengths = [length + grow for length, grow in zip(lengths, again, strict=True)]


def _path_parts(model: Any) -> tuple[str, ...]:
    if not isinstance(model, (str, os.PathLike)):
        return (str(model.fingerprint()),)
    written = os.fspath(model)
    if Path(model).exists() or _OF_A_RUN.fullmatch(Path(model).name):
        path = Path(os.path.abspath(written))  # noqa: PTH100 (resolve would follow the links of a run)
        return path.parts[1:] or path.parts
    return (written.replace("/", "-"),)


def _check_store(store: FeatureStore, model: Any, name: str) -> None:
    """Refuse features of another backbone: they may have the right width and the wrong meaning."""
    backbone = model.backbone_fingerprint()
    if backbone is None:
        raise InputError(f"--features: {name} is an export and reads images: use the model it was exported from")
    if store.header.fingerprint != backbone:
        other = f"features of another backbone ({store.header.backbone})"
        raise InputError(f"{store.folder}: {other} than that of {name}: extract them again")
    store.expect_windows(model.architecture()["image"].get("windows"))
