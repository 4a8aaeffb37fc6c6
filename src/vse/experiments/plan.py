"""How an experiment that trains was called."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from vse.errors import InputError
from vse.progress import ProgressReporter


@dataclass(frozen=True)
class Call:
    """``changes`` are KEY=VALUE of all its recipes; None leaves a choice to the experiment.

    ``recipe`` names what is trained in place of the experiment's own recipe; of those that compare whole models it is
    what their recipes' names begin with.
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

    @property
    def runs_folder(self) -> Path:
        """Where training runs are; experiments that are given the same one share them."""
        return self.runs or self.out / "runs"

    def chosen_seeds(self, usual: tuple[int, ...]) -> tuple[int, ...]:
        """Those that were named, or the ``usual`` ones; the first of these for a quick version."""
        if self.seeds is not None:
            return self.seeds
        return usual[:1] if self.quick else usual

    def needed_data(self, example: str) -> Path:
        """Return the folder of the data set; without one there is nothing to train on."""
        if self.data is None:
            raise InputError(f"no data: name the folder of a data set with --data DIR, such as {example}")
        return self.data


@dataclass(frozen=True)
class Variant:
    """One row of a table: a recipe with some values changed, trained with several seeds.

    Rows of a ``panel`` stand together.
    """

    label: str
    recipe: str
    changes: tuple[str, ...] = ()
    panel: str = ""

    @property
    def key(self) -> str:
        """The name of its folder: equal for equal recipes, so that experiments share runs."""
        name = Path(self.recipe).stem
        if not self.changes:
            return name
        digest = hashlib.sha256(json.dumps(sorted(self.changes)).encode()).hexdigest()[:8]
        return f"{name}-{digest}"


@dataclass(frozen=True)
class Claim:
    """The paper finds the row ``better`` above the row ``worse`` in rsum; both are labels."""

    better: str
    worse: str

    @property
    def text(self) -> str:
        return f"{self.better} above {self.worse}"


@dataclass(frozen=True)
class Grid:
    """``changes`` apply to all rows. Claims name the labels of rows."""

    name: str
    title: str
    variants: tuple[Variant, ...]
    claims: tuple[Claim, ...] = ()
    changes: tuple[str, ...] = ()
