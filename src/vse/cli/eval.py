"""``vse eval``: recall under a named protocol, with the card that says what it means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import JsonOption, embed
from vse.errors import InputError, UsageError, unknown_choice

if TYPE_CHECKING:
    from vse.data import CaptionedImages
    from vse.evaluation.ranks import Ties
    from vse.evaluation.video import VideoTest
    from vse.evaluation.video_report import ScoredModel, VideoReport
    from vse.hgr.graphs import SentenceGraphs
    from vse.progress import ProgressReporter


def holds_videos(path: Path) -> bool:
    """Whether the data set has one of the layouts of videos."""
    from vse.data.open import LAYOUTS, find_layout

    return LAYOUTS[find_layout(path)].kind == "video"


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
    from vse.data.layouts.hgr import annotation_folder
    from vse.evaluation.video import VideoTest
    from vse.evaluation.video_report import evaluate_on_videos
    from vse.hgr.graphs import SentenceGraphs

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
    from vse.evaluation.video import video_scores
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


def evaluate(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL...", help="Model folders or hub ids.", show_default=False)
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="The data set.", show_default=False)] = None,
    split: Annotated[str, typer.Option(metavar="NAME", help="The split to evaluate on.")] = "test",
    protocol: Annotated[str, typer.Option(metavar="NAME", help="A protocol by name, or the usual ones.")] = "auto",
    images: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder of the image files, if it is elsewhere.")
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(metavar="PLACE", help="A store of 'vse features' in the place of pictures, or a video's frames."),
    ] = None,
    ensemble: Annotated[bool, typer.Option("--ensemble", help="Average the scores of all models.")] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Say which differences to the first model are real.")
    ] = False,
    against: Annotated[str | None, typer.Option(metavar="paper", help="Print the published rows beside ours.")] = None,
    from_embeddings: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="Saved embeddings in the place of a model; repeat it.")
    ] = None,
    save_embeddings: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the vectors, one folder for each model.")
    ] = None,
    cxc: Annotated[Path | None, typer.Option(metavar="DIR", help="The CSVs of Crisscrossed Captions.")] = None,
    eccv: Annotated[Path | None, typer.Option(metavar="DIR", help="The JSON files of ECCV Caption.")] = None,
    coco_ids: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Names and caption ids of COCO's test images; --cxc and --eccv need it."),
    ] = None,
    ties: Annotated[str, typer.Option(metavar="RULE", help="pessimistic or optimistic.")] = "pessimistic",
    samples: Annotated[int, typer.Option(metavar="N", min=1, help="Draws for the intervals.")] = 1000,
    seed: Annotated[int, typer.Option(metavar="N", min=0, max=2**63 - 1, help="Of the draws.")] = 0,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the results are written as JSON.")] = Path(
        "results.json"
    ),
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Append the rows to this table.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure retrieval: R@1, 5, 10, ranks and rsum both ways, with intervals and the protocol's card."""
    from vse.evaluation.protocols import AUTO, PROTOCOLS
    from vse.evaluation.ranks import TIES

    if protocol != AUTO and protocol not in PROTOCOLS:
        raise UsageError(f"--protocol: {unknown_choice('protocol', protocol, (AUTO, *PROTOCOLS))}")
    if ties not in TIES:
        raise UsageError(f"--ties: {unknown_choice('tie rule', ties, TIES)}")
    if against not in {None, "paper"}:
        raise UsageError(f"--against: {unknown_choice('source', against, ('paper',))}")
    named, saved = models or [], from_embeddings or []
    if not named and not saved:
        raise UsageError("nothing to evaluate: name a model, or embeddings with --from-embeddings DIR")
    _check_file("--out", out)
    if markdown is not None:
        _check_file("--markdown", markdown)
    if not named and (save_embeddings or features or images or data):
        raise UsageError("--data, --images, --features and --save-embeddings need a model; saved embeddings have none")
    if coco_ids is not None and cxc is None and eccv is None:
        raise UsageError("--coco-ids goes with --cxc DIR or --eccv DIR")
    if named and data is None:
        raise UsageError("--data DIR is needed to evaluate a model")
    if (cxc is not None or eccv is not None) and coco_ids is None:
        raise UsageError(
            "--cxc and --eccv need --coco-ids FILE: dataset_coco.json, or a list of file, image_id, sentids"
        )
    if (ensemble or compare) and len(named) + len(saved) < 2:
        raise UsageError(f"{'--ensemble' if ensemble else '--compare'} needs at least two models")

    from vse._util.atomic import write_json

    if data is not None and holds_videos(data):
        refuse_for_videos(
            {
                "--protocol": protocol not in {AUTO, "all"},
                "--images": images,
                "--from-embeddings": saved,
                "--save-embeddings": save_embeddings,
                "--cxc": cxc,
                "--eccv": eccv,
                "--markdown": markdown,
            },
            data,
        )
        videos = evaluate_video_models(
            named,
            data,
            split,
            features=features,
            ensemble=ensemble,
            comparing=compare,
            against_paper=against is not None,
            ties=ties,
            samples=samples,
            seed=seed,
        )
        write_json(out, videos.to_json())
        show(videos, as_json=as_json)
        return

    from vse.evaluation.embeddings import Embeddings
    from vse.evaluation.report import append_markdown, run_evaluation

    coco = None
    if coco_ids is not None:
        from vse.evaluation.coco.tasks import CocoTasks

        coco = CocoTasks.read(coco_ids, cxc, eccv)
    with progress_on_stderr() as progress:
        embedded = [Embeddings.load(folder) for folder in saved]
        for name in named:
            found = embed(name, Path(str(data)), split, images=images, features=features, progress=progress)
            if save_embeddings is not None:
                header = found.header
                found.save(save_embeddings / f"{header.model}-{header.data}-{header.split}-{header.fingerprint}")
            embedded.append(found)
        report = run_evaluation(
            embedded,
            protocol=protocol,
            ensemble=ensemble,
            comparing=compare,
            against_paper=against is not None,
            coco=coco,
            ties=ties,
            samples=samples,
            seed=seed,
            progress=progress,
        )
    write_json(out, report.to_json())
    if markdown is not None:
        append_markdown(markdown, report.results)
    show(report, as_json=as_json)


def _check_file(option: str, path: Path) -> None:
    """A file that can be written, found out before hours of work."""
    if path.is_dir():
        raise UsageError(f"{option} {str(path)!r}: a folder, expected a file")
    for place in path.parents:
        if place.is_dir():
            return
        if place.exists():
            raise UsageError(f"{option} {str(path)!r}: {str(place)!r} is a file, expected a folder")
