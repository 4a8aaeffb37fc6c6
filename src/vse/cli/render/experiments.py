"""Results of the experiments as tables, with the sentences that belong to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from vse.experiments.bench_report import BenchResult
    from vse.experiments.grid.report import GridResult
    from vse.experiments.k_max_search import SearchResult
    from vse.experiments.speed_report import SpeedResult
    from vse.experiments.synthetic_report import SyntheticResult
    from vse.experiments.whole_models import CoefficientsResult

TOO_LITTLE_TRAINING = "This was the quick version: too little training for meaningful figures."
TOO_FEW_STEPS = "This was the quick version: too few steps for meaningful figures."


def render_grid(result: GridResult, console: Console) -> None:
    """Draw the table and the claims under each protocol, and where the files are."""
    for each in (result, *result.further):
        _render_ranking(each, console)
    if result.quick:
        console.print(TOO_LITTLE_TRAINING)
    console.print(f"Tables, figures and runs are in {result.folder}", soft_wrap=True)


def _render_ranking(result: GridResult, console: Console) -> None:
    """Draw the table, the claims, and what was ranked by which protocol."""
    from rich.table import Table
    from rich.text import Text

    from vse.experiments.grid.report import ROW_HEADS, UNFINISHED, contrast_cells

    test = result.test
    table = Table(
        title=Text(f"{result.grid.title}, {test['data']} {test['split']}, {test['protocol']}"), title_justify="left"
    )
    for head in (*ROW_HEADS, *result.heads):
        table.add_column(head, justify="left" if head in ROW_HEADS[:2] else "right", no_wrap=True)
    for panel, rows in result.panels():
        if panel:
            table.add_row(Text(panel, style="bold"))
        for row in rows:
            table.add_row(*map(Text, result.cells(row)))
        table.add_section()
    console.print(table)
    if not all(row.finished for row in result.rows):
        console.print(f"{UNFINISHED} unfinished: rsum on dev was still rising at the end of a run")
    for each in result.contrasts:
        claim, value, interval, _, verdict = contrast_cells(each)
        console.print(f"{claim}: {value} (95 %: {interval}), {verdict}", markup=False, highlight=False)
    unit = "videos" if test["videos"] else "images"
    drawn = f"{unit} and seeds" if any(len(row.seeds) > 1 for row in result.rows) else unit
    console.print(result.describe_test(), style="dim", markup=False, highlight=False)
    folds = f"{test['folds']} folds of " if test["folds"] > 1 else ""
    ranked = f"{folds}{test['images']} {unit}, {test['texts']} texts"
    console.print(f"{ranked}; intervals over {test['samples']} bootstrap samples of {drawn}", style="dim")


def render_bench(result: BenchResult, console: Console) -> None:
    """Draw quality and costs of every system, what they mean, and where the files are."""
    from rich.table import Table
    from rich.text import Text

    from vse.experiments.bench_report import HEADS

    test = result.test
    title = f"All systems, {test['data']} {test['split']}, {test['protocol']}, augmentation: {result.augmentation}"
    table = Table(title=Text(title), title_justify="left")
    for place, head in enumerate(HEADS):
        table.add_column(head, justify="right" if place else "left", no_wrap=True)
    for row in result.rows:
        table.add_row(*map(Text, row.cells()))
    console.print(table)
    for note in result.notes():
        console.print(note, style="dim", markup=False, highlight=False)
    if result.quick:
        console.print(TOO_LITTLE_TRAINING)
    console.print(f"Table, figures, plot and runs are in {result.folder}", soft_wrap=True)


def render_k_max_search(result: SearchResult, console: Console) -> None:
    """Draw rsum for every pair of K, the best pair, and GPO."""
    from rich.table import Table

    from vse.experiments.k_max_search import k_name

    table = Table(title="Rsum on dev: poolings of images (rows) and of words", title_justify="left")
    for head in ("", *map(k_name, result.text_ks)):
        table.add_column(head, justify="right")
    for k, values in zip(result.image_ks, result.dev, strict=True):
        table.add_row(k_name(k), *(f"{value:.1f}" for value in values))
    console.print(table)
    console.print(result.summary(), soft_wrap=True)
    if result.quick:
        console.print(TOO_LITTLE_TRAINING)
    console.print(f"Table and plot are in {result.folder}", soft_wrap=True)


def render_speed(result: SpeedResult, console: Console) -> None:
    """Draw the table, the ratios, and where the files are."""
    from rich.table import Table

    header, *rows = result.rows()
    table = Table(title="One text query against indexed images", title_justify="left")
    for name in header:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for text in result.sentences():
        console.print(text, soft_wrap=True)
    if result.warning is not None:
        console.print(f"{result.warning}.", soft_wrap=True)
    console.print(f"Table, figures and plot are in {result.folder}", soft_wrap=True)


def render_synthetic(result: SyntheticResult, console: Console) -> None:
    """Draw a table for each range of set sizes, with the published figures in brackets."""
    from rich.table import Table

    from vse.experiments.synthetic_report import TOLERANCE
    from vse.experiments.synthetic_task import DESIGNS, MAIN_DESIGN, PATTERNS, SIZE_RANGES

    for sizes, span in SIZE_RANGES.items():
        kind = "seen" if sizes == "seen" else f"unseen, {sizes}"
        title = f"Coefficient RMSE, sizes {span.start} to {span.stop - 1} ({kind}): ours, (paper)"
        table = Table(title=title, title_justify="left")
        table.add_column("design", no_wrap=True)
        for pattern in PATTERNS:
            table.add_column(pattern, justify="right", no_wrap=True)
        for design in DESIGNS:
            cells = (
                f"{result.figure('ours', design, pattern, sizes)} ({result.figure('paper', design, pattern, sizes)})"
                for pattern in PATTERNS
            )
            table.add_row(design, *cells, style="bold" if design == MAIN_DESIGN else None)
        console.print(table)
    good, of = result.within_tolerance()
    console.print(f"{MAIN_DESIGN}: {good} of {of} entries at most {TOLERANCE} above the paper's figure")
    if result.quick:
        console.print(TOO_FEW_STEPS)
    console.print(f"Table, figures and curves are in {result.folder}", soft_wrap=True)


def coefficients_lines(result: CoefficientsResult) -> list[str]:
    """Return which pooling each learned curve resembles, and where they are drawn."""
    lines = []
    for curve in result.curves:
        nearest = "no curve" if curve.nearest is None else curve.nearest.label
        lines.append(f"{curve.tower}, {curve.size} elements: {nearest}")
    return [*lines, f"The plot is {result.folder / 'coefficients.png'}"]
