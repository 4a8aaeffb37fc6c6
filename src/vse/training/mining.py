"""Hard negatives for a cross-encoder: the wrong images and captions that a first-stage model ranks highest.

The first stage does not change, so its candidates are found once, when a run begins, and drawn from anew for every
epoch. They are kept in the run's folder, where a resumed run, or another one, finds them::

    RUN/first-stage/stage.json     the model's fingerprint and the captions that the candidates are for
    RUN/first-stage/images.npy     int32 (captions, M): wrong images for each training caption; -1 for none
    RUN/first-stage/texts.npy      int32 (images, M): wrong captions for each training image; -1 for none
    RUN/first-stage/dev-images.npy, dev-texts.npy    embeddings of dev, whose results the cross-encoder re-ranks
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse._util.atomic import write_json
from vse._util.strict import read_json
from vse.data import CaptionedImages, FeatureRows, open_data
from vse.data.npy import map_array
from vse.errors import InputError
from vse.evaluation.embeddings import split_hash
from vse.evaluation.metrics import RetrievalMetrics
from vse.evaluation.positives import Positives, text_positives
from vse.evaluation.rerank import RerankedScores, score_pairs_of, top_candidates
from vse.evaluation.retrieval_test import RetrievalTest
from vse.evaluation.scores import DotScores
from vse.models.sources import load_towers
from vse.progress import ProgressReporter
from vse.training.distributed import Ranks
from vse.training.keyed import Purpose, keyed
from vse.training.recipe import Recipe

FOLDER, HEADER = "first-stage", "stage.json"
ARRAYS = ("images", "texts", "dev-images", "dev-texts")
POOL = 10_000
"""Images among which candidates are looked for; a larger split is cut into pools of equal size."""
Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class HardNegatives:
    """Wrong images for each caption and wrong captions for each image; without them, all wrong ones are drawn from.

    Attributes:
        owners: ``(captions,)``, the image of each caption.
        count: number of images.
        images: ``(captions, M)``, -1 for none.
        texts: ``(images, M)``, -1 for none.
    """

    owners: Numbers
    count: int
    images: NDArray[np.int32] | None = None
    texts: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        if self.count < 2 or len(np.unique(self.owners)) < 2:
            raise InputError("negatives need at least two images with captions")

    def draw(self, seed: int, epoch: int, samples: Numbers, owners: Numbers) -> tuple[Numbers, Numbers]:
        """Return a wrong image and a wrong caption for each sample, by keyed random numbers."""
        images, texts = np.empty_like(samples), np.empty_like(samples)
        for place, (sample, owner) in enumerate(zip(samples.tolist(), owners.tolist(), strict=True)):
            chance = keyed(seed, epoch, Purpose.NEGATIVES, sample)
            images[place] = self._one(chance, self.images, sample, owner, texts=False)
            texts[place] = self._one(chance, self.texts, owner, owner, texts=True)
        return images, texts

    def _one(self, chance: Any, mined: NDArray[np.int32] | None, row: int, owner: int, *, texts: bool) -> int:
        listed = [] if mined is None else mined[row][mined[row] >= 0]
        if len(listed):
            return int(chance.choice(listed))
        while True:
            found = int(chance.integers(len(self.owners) if texts else self.count))
            if (self.owners[found] if texts else found) != owner:
                return found


@dataclass(frozen=True, eq=False)
class FirstStage:
    """The embeddings of dev by the first stage."""

    scores: DotScores

    def evaluate(self, model: Any, dev: CaptionedImages, depth: int) -> RetrievalMetrics:
        """Return the metrics of dev after ``model`` has re-ranked the first ``depth`` results in both directions."""
        test = RetrievalTest.of(dev)
        pairs = score_pairs_of(model, dev.images, test.texts)
        return test.rank(RerankedScores(self.scores, pairs, depth)).metrics


def mine(
    recipe: Recipe, train: CaptionedImages, dev: CaptionedImages, run: Path, ranks: Ranks, report: ProgressReporter
) -> tuple[FirstStage | None, HardNegatives | None]:
    """Return the first stage and the negatives of a run of a cross-encoder; None and None for other models.

    Args:
        recipe: names the first stage.
        train: the training split.
        dev: the split by which the best epoch is chosen.
        run: the folder of the run.
        ranks: the first process mines, the others wait for it.
        report: shows the work.

    Raises:
        InputError: the first stage is no model with embeddings, does not fit the data, or its candidates are of other
            captions.
    """
    if recipe.loss.objective != "matching":
        return None, None
    owners, count = train.caption_to_image, len(train.images)
    if recipe.loss.first_stage is None:
        return None, HardNegatives(owners, count)
    folder, named = run / FOLDER, Path(recipe.loss.first_stage)
    if ranks.first and not (folder / HEADER).is_file():
        if (named / HEADER).is_file():
            folder = named
        else:
            _write(folder, recipe, train, dev, report)
    folder = Path(ranks.share(str(folder)))
    images, texts, dev_images, dev_texts = _read(folder, train, dev)
    return FirstStage(DotScores(dev_images, dev_texts)), HardNegatives(owners, count, images, texts)


def _write(
    folder: Path, recipe: Recipe, train: CaptionedImages, dev: CaptionedImages, report: ProgressReporter
) -> None:
    """Mine, and write everything into a hidden folder that is renamed when it is complete."""
    source = str(recipe.loss.first_stage)
    model = load_towers(source)
    report.note(f"{source}: finding hard negatives among {len(train.images)} images and {len(train.captions)} captions")
    views = [_view(recipe, each, model, source) for each in (train, dev)]
    embedded = [
        (model.encode_images(view, progress=report, on_bad="raise"), model.encode_texts(each.captions, unknown="allow"))
        for view, each in zip(views, (train, dev), strict=True)
    ]
    images, texts = mine_candidates(
        *embedded[0], train.caption_to_image, recipe.loss.candidates, seed=recipe.seed, pool=POOL
    )
    staging = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder.parent))
    try:
        for name, array in zip(ARRAYS, (images, texts, *embedded[1]), strict=True):
            np.save(staging / f"{name}.npy", array, allow_pickle=False)
        header = {"model": model.fingerprint(), "train": split_hash(train), "dev": split_hash(dev)}
        write_json(staging / HEADER, header)
        staging.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _read(folder: Path, train: CaptionedImages, dev: CaptionedImages) -> list[NDArray[Any]]:
    header = read_json(folder / HEADER)
    for name, split in (("train", train), ("dev", dev)):
        if header.get(name) != split_hash(split):
            raise InputError(
                f"{folder} holds candidates for other captions than those of {split.name}, split {split.split!r}: name "
                "the model in loss.first_stage to find new ones"
            )
    arrays: list[NDArray[Any]] = [map_array(folder / f"{name}.npy") for name in ARRAYS]
    if len(arrays[0]) != len(train.captions) or len(arrays[1]) != len(train.images):
        raise InputError(f"{folder} is incomplete: delete it to find candidates again")
    return arrays


def mine_candidates(
    images: NDArray[Any], texts: NDArray[Any], owners: Numbers, depth: int, *, seed: int = 0, pool: int = POOL
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the best wrong images of each text and the best wrong texts of each image.

    Args:
        images: embeddings ``(I, D)``.
        texts: embeddings ``(T, D)``.
        owners: ``(T,)``, the right image of each text.
        depth: M, how many are wanted; fewer are padded with -1.
        seed: of the pools.
        pool: images of a pool at most; pools bound the cost of a large split.
    """
    wrong_images = np.full((len(texts), depth), -1, dtype=np.int32)
    wrong_texts = np.full((len(images), depth), -1, dtype=np.int32)
    pools = np.array_split(keyed(seed, 0, Purpose.NEGATIVES).permutation(len(images)), -(-len(images) // pool))
    for members in map(np.sort, pools):
        inside = np.flatnonzero(np.isin(owners, members))
        scores = DotScores(texts[inside], images[members])
        right = text_positives(np.searchsorted(members, owners[inside]), len(members))
        wrong_images[inside] = _wrong(scores, right, members, depth)
        wrong_texts[members] = _wrong(scores.T, right.T, inside, depth)
    return wrong_images, wrong_texts


def _wrong(scores: DotScores, right: Positives, numbers: Numbers, depth: int) -> NDArray[np.int32]:
    """Return the numbers of the best wrong candidates of each row, ``(rows, depth)``, padded with -1."""
    most = int(right.counts.max(initial=0))
    best = top_candidates(scores, right, depth + most)
    found = np.full((len(best), depth), -1, dtype=np.int32)
    for row, candidates in enumerate(best):
        kept = candidates[~np.isin(candidates, right.of(row))][:depth]
        found[row, : len(kept)] = numbers[kept]
    return found


def _view(recipe: Recipe, data: CaptionedImages, model: Any, source: str) -> Any:
    """Return the images of a split as the first stage reads them: the same features alone, or files."""
    if model.capabilities.images:
        opened = open_data(
            recipe.data.path, data.split, layout=recipe.data.layout, images=recipe.data.images, use="files"
        )
        files = dict(zip(opened.images.ids, range(len(opened.images)), strict=True))
        return [opened.images[files[name]] for name in data.images.ids]
    images = data.images
    if isinstance(images, FeatureRows) and images.dim > images.array.shape[-1]:
        images = replace(images, boxes=None, tags=None)
    if images.feature_size != model.feature_size:
        raise InputError(
            f"loss.first_stage {source}: it takes features of {model.feature_size} values, and the data has "
            f"{images.feature_size}: use one that was trained on these features, or one that reads images"
        )
    return images
