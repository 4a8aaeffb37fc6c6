"""The report of ``vse data check``: figures for each split, errors and warnings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning"]
EXAMPLES = 20
"""How many examples of a kind are kept; the others are only counted."""


@dataclass(frozen=True)
class Finding:
    """``count`` problems of one kind: the first :data:`EXAMPLES` locations, and how many ``more`` there are."""

    severity: Severity
    kind: str
    count: int
    examples: tuple[str, ...]
    more: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "count": self.count, "examples": list(self.examples), "more": self.more}


@dataclass
class _Gathered:
    severity: Severity
    count: int = 0
    examples: list[str] = field(default_factory=list)
    more: int = 0


class Findings:
    """Collects problems. One in a shared file is found again with every split, and counted once."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Gathered] = {}
        self._seen: set[tuple[str, str]] = set()

    def error(self, kind: str, place: str, count: int = 1) -> None:
        """Add something that must be fixed before the dataset can be used; ``place`` may have several problems."""
        self._add("error", kind, place, count)

    def warning(self, kind: str, place: str, count: int = 1) -> None:
        """Add something the user should know but may have intended."""
        self._add("warning", kind, place, count)

    def _add(self, severity: Severity, kind: str, place: str, count: int) -> None:
        if (kind, place) in self._seen:
            return
        self._seen.add((kind, place))
        gathered = self._kinds.setdefault(kind, _Gathered(severity))
        gathered.count += count
        if len(gathered.examples) < EXAMPLES:
            gathered.examples.append(place)
        else:
            gathered.more += 1

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        """Return the findings of a severity in the order in which their kinds first appeared."""
        return tuple(
            Finding(severity, kind, gathered.count, tuple(gathered.examples), gathered.more)
            for kind, gathered in self._kinds.items()
            if gathered.severity == severity
        )


@dataclass(frozen=True)
class FeatureSummary:
    """Features of a split; ``rows_per_image`` is how often each image is repeated in the file."""

    shape: tuple[int, ...]
    dtype: str
    rows_per_image: float
    not_finite: int
    zero_regions: int

    def __str__(self) -> str:
        text = f"{' × '.join(map(str, self.shape))} {self.dtype}"
        return text if self.rows_per_image == 1 else f"{text}, each image {self.rows_per_image:.3g}×"


@dataclass(frozen=True)
class FrameSummary(FeatureSummary):
    """Frames of videos: ``frames`` is the minimum, mean and maximum per video, before the frame limit."""

    frames: tuple[int, float, int]

    def __str__(self) -> str:
        least, mean, most = self.frames
        each = str(least) if least == most else f"{least} to {most}, mean {mean:.1f}"
        return f"{self.shape[0]} × {each} frames × {self.shape[-1]} {self.dtype}"


@dataclass(frozen=True)
class FileSummary:
    """The number of image files that do not exist, and of those that are empty or not readable."""

    missing: int
    unreadable: int

    def __str__(self) -> str:
        if not self.missing and not self.unreadable:
            return "all files exist"
        return f"{self.missing} missing, {self.unreadable} empty or unreadable"


@dataclass(frozen=True)
class SplitReport:
    """The figures of one split; ``captions_per_image`` is minimum, mean, maximum."""

    split: str
    images: int
    captions: int
    captions_per_image: tuple[int, float, int]
    mean_words: float | None
    features: FeatureSummary | None
    files: FileSummary | None

    def to_json(self) -> dict[str, Any]:
        least, mean, most = self.captions_per_image
        return {**asdict(self), "captions_per_image": {"min": least, "mean": mean, "max": most}}

    def cells(self) -> tuple[str, ...]:
        """Return the split as a row of the table."""
        least, mean, most = self.captions_per_image
        each = str(least) if least == most else f"{least} to {most}, mean {mean:.2f}"
        words = "" if self.mean_words is None else f"{self.mean_words:.1f}"
        return self.split, str(self.images), str(self.captions), each, words, str(self.features or self.files or "")


@dataclass(frozen=True)
class DataReport:
    """The result of a check. ``ok`` means no errors; warnings are for the user to judge.

    ``shown`` is what the captions describe, as a heading for the table; in JSON both are ``images``.
    """

    path: str
    layout: str
    splits: tuple[SplitReport, ...]
    errors: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    shown: Literal["images", "videos"] = "images"

    @property
    def ok(self) -> bool:
        return not self.errors

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "layout": self.layout,
            "ok": self.ok,
            "splits": [split.to_json() for split in self.splits],
            "errors": [finding.to_json() for finding in self.errors],
            "warnings": [finding.to_json() for finding in self.warnings],
        }
