"""What a model is measured on: every item of a split against every text, which pairs are right, and its scores.

Images are ranked against every caption. Captions of videos repeat ("a man is singing" describes dozens of them), so
videos are ranked against the distinct sentences of the split, as in HGR, and a sentence is right for every video that
has it. All else is the same for images, videos and models of either kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vse.data.dataset import IMAGES, ItemKind
from vse.errors import InputError
from vse.evaluation.bootstrap import FoldRanks
from vse.evaluation.embeddings import Embeddings, model_traits, split_hash
from vse.evaluation.metrics import RetrievalMetrics
from vse.evaluation.positives import Positives, distinct_sentences, text_positives
from vse.evaluation.ranks import Ties, ranks_both_ways
from vse.evaluation.rerank import RerankedScores
from vse.evaluation.scores import DotScores, MatrixScores, MeanScores, Scores
from vse.models.protocols import PairScorer
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.data.dataset import CaptionedImages
    from vse.hgr.graphs import SentenceGraphs

BATCH_SIZE = 64


@dataclass(frozen=True, eq=False)
class RetrievalTest:
    """One split as queries and candidates of both directions.

    Attributes:
        kind: what the items are.
        texts: the captions, or the distinct sentences; empty for embeddings that were saved without captions.
        positives: the right texts of each item.
        about: dataset, split and counts, for the card of a result.
    """

    kind: ItemKind
    texts: tuple[str, ...]
    positives: Positives
    about: dict[str, Any]

    @classmethod
    def of(cls, data: CaptionedImages, kind: ItemKind | None = None) -> RetrievalTest:
        """Return the test of a split.

        Args:
            data: images or videos with captions.
            kind: what the items are, if the dataset does not know.

        Raises:
            InputError: the split has no captions.
        """
        if not data.captions:
            raise InputError(f"{data.name}, split {data.split!r}: no captions, so there is nothing to search with")
        chosen = kind or data.kind
        if chosen.shared_captions:
            return _distinct_test(data, chosen)
        owners = np.asarray(data.caption_to_image)
        source = {"data": data.name, "split": data.split, "split_hash": split_hash(data)}
        return _caption_test(source, data.captions, owners, len(data.images))

    @classmethod
    def of_embeddings(cls, embedded: Embeddings) -> RetrievalTest:
        """Return the test that saved embeddings of images answer."""
        header = embedded.header
        source = {"data": header.data, "split": header.split, "split_hash": header.split_hash}
        return _caption_test(source, embedded.captions, embedded.text_to_image, len(embedded.images))

    @property
    def items(self) -> int:
        """The number of items."""
        return self.positives.queries

    def rank(
        self,
        scores: Scores | RerankedScores,
        gallery: NDArray[np.int64] | None = None,
        *,
        ties: Ties = "pessimistic",
        progress: ProgressReporter | None = None,
    ) -> FoldRanks:
        """Rank the texts for each item and the items for each text.

        Args:
            scores: ``(items, texts)``, or those of a first stage with a re-ranker.
            gallery: the items of a fold, with the texts that belong to them; None takes all.
            ties: whether a wrong candidate with the score of the best right one comes before or after it.
            progress: shows the work.
        """
        positives = self.positives
        if gallery is not None and len(gallery) < self.items:
            texts, positives = _part(self.positives, gallery)
            scores = scores.select(gallery, texts)
        if isinstance(scores, RerankedScores):
            rows, columns = scores.ranks_both_ways(positives, ties=ties, progress=progress)
        else:
            rows, columns = ranks_both_ways(scores, positives, ties=ties, progress=progress)
        return _fold(rows, columns, positives)

    def fold(
        self, items: NDArray[np.int64], texts: NDArray[np.int64], gallery: NDArray[np.int64] | None = None
    ) -> FoldRanks:
        """Return known ranks of the items and texts of a gallery as :meth:`rank` does."""
        whole = gallery is None or len(gallery) == self.items
        return _fold(items, texts, self.positives if whole else _part(self.positives, np.asarray(gallery))[1])

    def is_same(self, other: RetrievalTest) -> bool:
        """Return whether scores on both tests may be averaged or compared."""
        first, second = self.positives, other.positives
        return (
            self.about["split_hash"] == other.about["split_hash"]
            and np.array_equal(first.starts, second.starts)
            and np.array_equal(first.columns, second.columns)
        )


@dataclass(frozen=True, eq=False)
class ScoredModel:
    """A model's scores on a test.

    Attributes:
        name: as results show it.
        fingerprint: of the model.
        traits: its properties in the words of the published tables.
        test: what it was given.
        scores: ``(items, texts)``.
        note: where its role graphs come from, if it reads any.
        reranker: the name, fingerprint and depth of the model that re-ranks, if any.
        embeddings: of images and texts, for tasks that need more than scores between the two.
    """

    name: str
    fingerprint: str
    traits: dict[str, str]
    test: RetrievalTest
    scores: Scores | RerankedScores
    note: str = ""
    embeddings: Embeddings | None = field(default=None, repr=False)
    reranker: dict[str, Any] | None = None

    @classmethod
    def of_embeddings(cls, embedded: Embeddings) -> ScoredModel:
        """Return the dot products of a model's embeddings."""
        header = embedded.header
        return cls(
            header.model,
            header.fingerprint,
            header.traits,
            RetrievalTest.of_embeddings(embedded),
            DotScores(embedded.images, embedded.texts),
            embeddings=embedded,
        )

    @classmethod
    def of_model(
        cls,
        model: Any,
        data: CaptionedImages,
        test: RetrievalTest,
        *,
        name: str,
        graphs: SentenceGraphs | None = None,
        progress: ProgressReporter | None = None,
    ) -> ScoredModel:
        """Score a split with a model; see :func:`model_scores`."""
        scores = model_scores(model, data, test, graphs=graphs, progress=progress)
        note = "" if graphs is None else graphs.note
        return cls(name, model.fingerprint(), model_traits(model), test, scores, note)

    def card(self) -> dict[str, Any]:
        """Return what the card of a result records of the model."""
        note = {"role_graphs": self.note} if self.note else {}
        again = {} if self.reranker is None else {"reranker": self.reranker}
        return {"name": self.name, "fingerprint": self.fingerprint, **self.traits, **note, **again}


def model_scores(
    model: Any,
    data: CaptionedImages,
    test: RetrievalTest,
    *,
    graphs: SentenceGraphs | None = None,
    progress: ProgressReporter | None = None,
) -> Scores:
    """Return the scores ``(items, texts)`` of a model: of embeddings where it has them, else of pairs.

    Args:
        model: encodes items and texts, or is a :class:`PairScorer`.
        data: the split.
        test: the test of the split.
        graphs: role graphs of the texts, for a model that reads them; without them it parses the texts by rules.
        progress: shows the work.
    """
    report = progress or SilentProgress()
    if isinstance(model, PairScorer):
        read: dict[str, Any] = {"graphs": graphs} if model.reads_graphs else {}
        return MatrixScores(model.score_pairs(data.images, test.texts, progress=report, unknown="allow", **read))
    encode = getattr(model, test.kind.encoder)
    items = encode(data.images, batch_size=BATCH_SIZE, progress=report, on_bad="raise")
    texts = model.encode_texts(test.texts, progress=report, unknown="allow")
    return DotScores(items, texts, (test.kind.plural, "texts"))


def mean_scores(members: Sequence[ScoredModel]) -> Scores | RerankedScores:
    """Return the scores of one model, or the mean of several: an ensemble.

    The members of a re-ranked ensemble have the same re-ranker, which re-ranks what their mean finds.

    Raises:
        InputError: there are no members, or they were given different tests.
    """
    if not members:
        raise InputError("nothing to evaluate: give at least one model")
    first, *others = members
    for other in others:
        require_same_test(first.name, first.test, other)
    if not others:
        return first.scores
    plain = [each.scores.first if isinstance(each.scores, RerankedScores) else each.scores for each in members]
    mean = MeanScores(plain)
    return replace(first.scores, first=mean) if isinstance(first.scores, RerankedScores) else mean


def require_same_test(name: str, test: RetrievalTest, other: ScoredModel) -> None:
    """Raise InputError if ``other`` was not given the test that the model ``name`` was given."""
    if not test.is_same(other.test):
        tests = (f"{each['data']} {each['split']}" for each in (test.about, other.test.about))
        raise InputError(
            f"{name} and {other.name} were not given the same test: {' and '.join(tests)} differ in captions"
        )


def evaluate_split(
    model: Any,
    data: CaptionedImages,
    *,
    graphs: SentenceGraphs | None = None,
    progress: ProgressReporter | None = None,
) -> RetrievalMetrics:
    """Return recall and ranks of a model on a whole split, in both directions.

    Args:
        model: see :func:`model_scores`.
        data: the split.
        graphs: role graphs of its captions, for a model that reads them.
        progress: shows the work.
    """
    test = RetrievalTest.of(data)
    return test.rank(model_scores(model, data, test, graphs=graphs, progress=progress)).metrics


def _caption_test(
    source: dict[str, Any], captions: tuple[str, ...], owners: NDArray[np.int64], images: int
) -> RetrievalTest:
    """Every caption is a text, right for the image that it describes."""
    counts = np.bincount(owners, minlength=images)
    about = {
        **source,
        "images": images,
        "texts": len(owners),
        "captions_per_image": _spread(counts),
        "remarks": [],
    }
    return RetrievalTest(IMAGES, captions, text_positives(owners, images).T, about)


def _distinct_test(data: CaptionedImages, kind: ItemKind) -> RetrievalTest:
    """Every distinct sentence is a text, right for each item that it describes."""
    sentences, owners = distinct_sentences(data.captions, data.caption_to_image, len(data.images))
    positives = owners.T
    about = {
        "data": data.name,
        "split": data.split,
        "split_hash": split_hash(data),
        kind.plural: len(data.images),
        "captions": len(data.captions),
        "sentences": len(sentences),
        "shared_sentences": int((owners.counts > 1).sum()),
        f"sentences_per_{kind.noun}": _spread(positives.counts),
        "dropped": list(getattr(data, "dropped", ())),
        "remarks": list(getattr(data, "remarks", ())),
        "candidates": f"distinct sentences; one that several {kind.plural} share is right for each",
    }
    return RetrievalTest(kind, sentences, positives, about)


def _fold(items: NDArray[np.int64], texts: NDArray[np.int64], positives: Positives) -> FoldRanks:
    owners = positives.T
    return FoldRanks(items, texts, owners.columns if (owners.counts == 1).all() else owners)


def _spread(counts: NDArray[np.int64]) -> dict[str, Any]:
    return {"min": int(counts.min()), "mean": float(counts.mean()), "max": int(counts.max())}


def _part(positives: Positives, gallery: NDArray[np.int64]) -> tuple[NDArray[np.int64], Positives]:
    """The texts of the items in ``gallery``, ascending, and the right pairs, renumbered."""
    place = np.full(positives.queries, -1, dtype=np.int64)
    place[gallery] = np.arange(len(gallery))
    items = place[positives.rows]
    texts, columns = np.unique(positives.columns[items >= 0], return_inverse=True)
    return texts, Positives.from_pairs(items[items >= 0], columns, (len(gallery), len(texts)))
