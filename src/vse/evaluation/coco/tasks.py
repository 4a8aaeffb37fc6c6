"""CxC and ECCV Caption as ``vse eval`` shows them: figures of one model or ensemble, with what they mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vse.errors import InputError
from vse.evaluation.bootstrap import LEVEL
from vse.evaluation.coco.cxc import CxcMetrics, CxcRatings, CxcScores, cxc_metrics_of_scores, read_cxc
from vse.evaluation.coco.eccv import EccvMetrics, EccvPositives, eccv_metrics_of_scores, read_eccv
from vse.evaluation.coco.ids import CocoIds, read_coco_ids
from vse.evaluation.embeddings import Embeddings
from vse.evaluation.evaluate import CAPTION_UNIT
from vse.evaluation.published import ClosestRow
from vse.evaluation.ranks import Ties
from vse.evaluation.report import Shown, closest_published, published_json
from vse.evaluation.scores import DotScores, MeanScores, Scores
from vse.progress import ProgressReporter

CAPTIONS_EACH = 5  # of the published splits; Karpathy's file has six or seven for a few images


@dataclass(frozen=True)
class CxcReport:
    """The four retrieval tasks and the three correlations of Crisscrossed Captions."""

    name: str
    metrics: CxcMetrics
    card: dict[str, Any]
    published: ClosestRow | None = None

    def to_json(self) -> dict[str, Any]:
        """Figures, the definition of the correlations, the card."""
        found = {} if self.published is None else {"published": published_json(self.published)}
        return {"name": self.name, **self.metrics.to_json(), **found, "card": self.card}


@dataclass(frozen=True)
class EccvReport:
    """mAP@R, R-Precision and R@1 on ECCV Caption."""

    name: str
    metrics: EccvMetrics
    card: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Figures, their definition, the card."""
        return {"name": self.name, **self.metrics.to_json(), "card": self.card}


@dataclass(frozen=True)
class CocoTasks:
    """The files of CxC and ECCV Caption, read, with the ids that they speak of."""

    ids: CocoIds
    source: str
    cxc: CxcRatings | None = None
    eccv: EccvPositives | None = None

    @classmethod
    def read(cls, ids: Path, cxc: Path | None, eccv: Path | None) -> CocoTasks:
        """Read everything before anything is computed."""
        return cls(
            read_coco_ids(ids),
            str(ids),
            None if cxc is None else read_cxc(cxc),
            None if eccv is None else read_eccv(eccv),
        )

    def matching(self, embedded: Embeddings) -> CocoIds:
        """Return the ids for this split; where they have more captions an image than it, the first five of each."""
        fewer = len(embedded.images) == self.ids.shape[0] and len(embedded.texts) < self.ids.shape[1]
        return self.ids.first_captions(CAPTIONS_EACH) if fewer else self.ids

    def check(self, embedded: Embeddings) -> None:
        """Refuse a split whose captions are not those of the ids, in their order."""
        if not embedded.captions:
            raise InputError(
                f"{embedded.header.model}: saved without captions, so ids cannot be checked: save them again"
            )
        header = embedded.header
        split: Any = _Split(
            header.data, header.split, range(len(embedded.images)), embedded.captions, embedded.text_to_image
        )
        try:
            self.matching(embedded).check_captions(split)
        except InputError as error:
            raise InputError(f"{self.source}: {error}") from None

    def evaluate(
        self,
        members: Sequence[Embeddings],
        *,
        ties: Ties,
        samples: int,
        seed: int,
        against_paper: bool = False,
        progress: ProgressReporter | None = None,
    ) -> Iterator[tuple[str, Shown]]:
        """Return the reports of one model, or of several as the mean of their scores."""
        ids = self.matching(members[0])
        name = " + ".join(each.header.model for each in members)
        card = _card(members, ties, samples, seed)
        between = _mean([DotScores(each.images, each.texts) for each in members])
        if self.cxc is not None:
            scores = CxcScores(
                between,
                _mean([DotScores(each.images, each.images) for each in members]),
                _mean([DotScores(each.texts, each.texts) for each in members]),
            )
            metrics = cxc_metrics_of_scores(
                scores, ids, self.cxc, ties=ties, samples=samples, seed=seed, progress=progress
            )
            row = closest_published("cxc-retrieval", card["models"]) if against_paper else None
            yield "cxc", CxcReport(name, metrics, card, row)
        if self.eccv is not None:
            found = eccv_metrics_of_scores(between, ids, self.eccv, samples=samples, seed=seed, progress=progress)
            yield "eccv", EccvReport(name, found, card)


class _Split(NamedTuple):
    """What checking captions looks at."""

    name: str
    split: str
    images: range
    captions: tuple[str, ...]
    caption_to_image: NDArray[np.int64]


def _mean(members: Sequence[DotScores]) -> Scores:
    return members[0] if len(members) == 1 else MeanScores(members)


def _card(members: Sequence[Embeddings], ties: Ties, samples: int, seed: int) -> dict[str, Any]:
    header = members[0].header
    return {
        "data": header.data,
        "split": header.split,
        "split_hash": header.split_hash,
        "images": len(members[0].images),
        "texts": len(members[0].texts),
        "ties": ties,
        "bootstrap": {"level": LEVEL, "samples": samples, "seed": seed, "unit": CAPTION_UNIT},
        "correlation_samples": samples,
        "correlation_seed": seed,
        "models": [
            {"name": each.model, "fingerprint": each.fingerprint, **each.traits}
            for each in (member.header for member in members)
        ],
        "ensemble": len(members) > 1,
    }
