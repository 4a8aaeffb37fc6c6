"""The call of an experiment that trains, and the plan of what it trains and claims."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vse.errors import InputError, unknown_choice
from vse.evaluation.protocols import AUTO
from vse.progress import ProgressReporter


@dataclass(frozen=True)
class Call:
    """The options of ``vse experiment``; None leaves a choice to the experiment.

    Attributes:
        out: where results are written.
        report: shows the work.
        quick: run a small version.
        seeds: of the runs.
        jobs: processes to run at once.
        data: the dataset.
        features: its stored features, or the frames of its videos.
        recipe: trained in place of the experiment's recipe; for experiments that compare whole models, the prefix of
            their recipes' names.
        runs: training runs, which several experiments may share.
        changes: KEY=VALUE for all recipes.
        protocol: by which the test split is ranked; ``auto`` takes the usual ones of the dataset.
        image_ks: of K-max poolings of images that are searched; None leaves the choice to the search.
        text_ks: the same for words.
        split: ranked instead of the test split of the data.
        rows: labels of the rows to train; empty for all of them.
    """

    out: Path
    report: ProgressReporter
    quick: bool = False
    seeds: tuple[int, ...] | None = None
    jobs: int | None = None
    data: Path | None = None
    features: Path | None = None
    recipe: str | None = None
    runs: Path | None = None
    changes: tuple[str, ...] = ()
    protocol: str = AUTO
    image_ks: tuple[int, ...] | None = None
    text_ks: tuple[int, ...] | None = None
    split: str | None = None
    rows: tuple[str, ...] = ()

    @property
    def runs_folder(self) -> Path:
        """The folder of training runs; experiments with the same folder share them."""
        return self.runs or self.out / "runs"

    def chosen_seeds(self, usual: tuple[int, ...]) -> tuple[int, ...]:
        """Return the given seeds, or the ``usual`` ones; a quick version uses the first of them."""
        if self.seeds is not None:
            return self.seeds
        return usual[:1] if self.quick else usual

    def expect_all_rows(self, name: str) -> None:
        """Raise InputError if rows were chosen for an experiment that has none to leave out."""
        if self.rows:
            raise InputError(f"--row: the rows of {name!r} belong together: leave it out")

    def needed_data(self, example: str) -> Path:
        """Return the folder of the dataset; raise InputError if none was given."""
        if self.data is None:
            raise InputError(f"no data: name the folder of a dataset with --data DIR, such as {example}")
        return self.data


@dataclass(frozen=True)
class Variant:
    """One row of a table: a recipe with some values changed, trained with several seeds.

    Rows of a ``panel`` are grouped.
    """

    label: str
    recipe: str
    changes: tuple[str, ...] = ()
    panel: str = ""

    @property
    def key(self) -> str:
        """The name of its run folders; equal recipes share runs."""
        name = Path(self.recipe).stem
        if not self.changes:
            return name
        digest = hashlib.sha256(json.dumps(sorted(self.changes)).encode()).hexdigest()[:8]
        return f"{name}-{digest}"


@dataclass(frozen=True)
class Claim:
    """The paper finds the row ``better`` above the row ``worse`` in rsum; both are labels.

    With ``among``, the worse row is the one of these labels with the highest mean rsum on dev, and ``worse`` names it
    once the rows are trained.
    """

    better: str
    worse: str
    among: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.better} above {self.worse}"

    @property
    def remark(self) -> str:
        """How the worse row was selected; empty if the plan names it."""
        return f"best of {', '.join(self.among)} on dev" if self.among else ""


@dataclass(frozen=True)
class Grid:
    """``changes`` apply to all rows. Claims name the labels of rows."""

    name: str
    title: str
    variants: tuple[Variant, ...]
    claims: tuple[Claim, ...] = ()
    changes: tuple[str, ...] = ()

    def restricted_to(self, labels: tuple[str, ...]) -> Grid:
        """Return the grid with these rows alone and the claims about them.

        Raises:
            InputError: A label is unknown.
        """
        known = [variant.label for variant in self.variants]
        for label in labels:
            if label not in known:
                raise InputError(unknown_choice("row", label, known))
        chosen = tuple(variant for variant in self.variants if variant.label in labels)
        kept = (replace(claim, among=tuple(each for each in claim.among if each in labels)) for claim in self.claims)
        claims = tuple(claim for claim in kept if claim.better in labels and (claim.among or claim.worse in labels))
        return replace(self, variants=chosen, claims=claims)

    def decided(self, dev: Mapping[str, float]) -> Grid:
        """Return the grid with the rows that claims leave to dev, whose rsum ``dev`` gives by label."""
        claims = (
            replace(claim, worse=max(claim.among, key=lambda label: dev[label])) if claim.among else claim
            for claim in self.claims
        )
        return replace(self, claims=tuple(claims))
