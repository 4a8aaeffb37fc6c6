"""Reports about datasets and stored features."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from vse.batch import EmbedReport
    from vse.cli.data import VocabularyReport
    from vse.data.report import DataReport
    from vse.data.scenes.dataset import WrittenScenes
    from vse.models.extract import FeaturesReport

FLOAT16_LIMIT = 65504
"""The largest finite value of float16."""


def render_data_report(report: DataReport, console: Console) -> None:
    """Draw a table of the splits, then list the findings."""
    from rich.table import Table
    from rich.text import Text

    def say(text: str) -> None:
        console.print(Text(_escaped(text)), soft_wrap=True)  # Text: brackets in file names are not markup

    say(f"{report.path}: layout {report.layout}")
    if report.splits:
        table = Table()
        for heading in ("split", report.shown, "captions", "captions each", "words"):
            table.add_column(heading, justify="left" if heading == "split" else "right", no_wrap=True)
        table.add_column("features" if any(split.features for split in report.splits) else "files")
        for split in report.splits:
            table.add_row(*(Text(_escaped(cell)) for cell in split.cells()))
        console.print(table)
    for finding in (*report.errors, *report.warnings):
        say(f"{finding.severity}: {finding.kind}" + (f": {finding.count}" if finding.count > 1 else ""))
        for example in finding.examples:
            say(f"  {example}")
        if finding.more:
            say(f"  … and {finding.more} more")
    if not report.errors:
        say("no errors" if report.warnings else "no errors, no warnings")


def _escaped(text: str) -> str:
    """``text`` with escapes for line ends and other control characters, which file names may contain."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def embed_lines(report: EmbedReport) -> list[str]:
    """Return what a job embedded, how fast, and what is left."""
    lines = [
        f"{report.into}: {report.embedded:,} images embedded in {report.computed:,} shards, "
        f"{report.skipped:,} shards were there",
        f"{report.images_per_second:,.1f} images/s, {report.seconds:,.1f} s, "
        f"{report.workers} worker{'s' if report.workers > 1 else ''}, model {report.model}",
    ]
    if report.failed:
        lines.append(f"{report.failed:,} images failed: failures/*.parquet lists them with the reason")
    if report.damaged:
        lines.append(
            f"{report.damaged:,} packed files are damaged: failures/*.parquet lists them; repair and run again"
        )
    if report.remaining:
        lines.append(f"{report.remaining:,} of {report.shards:,} shards are missing: the same command resumes")
    else:
        lines.append(f"all {report.shards:,} shards of {report.items:,} images are complete")
    return lines


def scenes_lines(written: WrittenScenes) -> list[str]:
    """Return how many scenes there are, how many are new, and where they are listed."""
    from vse.data.scenes.captions import CAPTIONS

    counts = ", ".join(f"{split} {number}" for split, number in written.counts.items())
    return [
        f"{sum(written.counts.values())} scenes with {CAPTIONS} captions each: {counts}",
        f"{written.drawn} generated now, {written.kept} already existed",
        f"Images and captions are listed in {written.annotations}",
    ]


def vocabulary_lines(report: VocabularyReport) -> list[str]:
    """Return how many words there are, and the file that holds them."""
    words = f"{report.words} words that occur at least {report.min_count} times"
    return [f"{words} in {report.captions} training captions, in {report.file}"]


def features_lines(report: FeaturesReport) -> list[str]:
    """Return counts, problems, and the folder of the features."""
    rate = f" ({report.computed / report.seconds:.1f} {report.kind}s/s)" if report.computed else ""
    counted = f"{report.backbone}: {report.count} {report.kind}s"
    kept = f"{report.kept} already existed"
    if report.grid is not None:
        rows, columns = report.grid
        parts = f"{rows} × {columns} cells"
        if report.regions is not None:
            parts = f"{report.regions} regions ({report.boxes}) over {parts}"
        lines = [
            f"{counted}, {parts} of {report.channels} channels each",
            f"{report.computed} computed now{rate}, {kept}",
        ]
    else:
        lines = [
            f"{counted}, up to {report.frames_each} frames of {report.channels} channels",
            f"{report.computed} videos with {report.frames} frames computed now{rate}, {kept}",
        ]
    if report.clipped:
        lines.append(f"{report.clipped} values beyond ±{FLOAT16_LIMIT}, the range of float16, were clipped")
    lines += [f"{name} is partly used: {note}" for name, note in report.notes.items()]
    lines += [f"no features for {name}: {reason}" for name, reason in report.problems.items()]
    lines.append(f"The features are in {report.folder}")
    return [line if line.isprintable() else ascii(line) for line in lines]
