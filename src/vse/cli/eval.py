"""``vse eval``: measure retrieval of models or saved embeddings under a protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import DeviceOption, JsonOption, ThreadsOption
from vse.errors import UsageError, unknown_choice

if TYPE_CHECKING:
    from vse.evaluation.retrieval_test import ScoredModel


def reject_for_videos(given: Mapping[str, object], data: Path) -> None:
    """Raise an error for options that are for images only; ``given`` is option → value."""
    for option, value in given.items():
        if value:
            raise UsageError(f"{option} is for images, and {str(data)!r} holds videos: leave it out")


def _members(names: Sequence[str], saved: Sequence[Path], data: Path | None, **options: Any) -> Iterator[ScoredModel]:
    """Yield saved embeddings, then the scores of models."""
    from vse.evaluation.embeddings import Embeddings
    from vse.evaluation.models import score_models
    from vse.evaluation.retrieval_test import ScoredModel

    for folder in saved:
        yield ScoredModel.of_embeddings(Embeddings.load(folder))
    if data is not None:
        yield from score_models(names, data, **options)


def evaluate(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL...", help="Model folders or hub ids.", show_default=False)
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="The dataset.", show_default=False)] = None,
    split: Annotated[str, typer.Option(metavar="NAME", help="The split to evaluate on.")] = "test",
    protocol: Annotated[
        str, typer.Option(metavar="NAME", help="The protocol; auto picks those that fit the dataset.")
    ] = "auto",
    images: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder of the image files, if it is not in the dataset.")
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(
            metavar="PLACE", help="Stored features to use instead of images, or the frame features of videos."
        ),
    ] = None,
    rerank: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Re-rank the best candidates of each query with this model of pairs."),
    ] = None,
    depth: Annotated[
        int | None, typer.Option(metavar="K", help="Candidates that --rerank orders again [default: 50].")
    ] = None,
    rerank_features: Annotated[
        Path | None, typer.Option(metavar="PLACE", help="The stored features of --rerank, if not those of --features.")
    ] = None,
    ensemble: Annotated[bool, typer.Option("--ensemble", help="Average the scores of all models.")] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Test which differences to the first model are significant.")
    ] = False,
    against: Annotated[str | None, typer.Option(metavar="paper", help="Show the published figures, too.")] = None,
    from_embeddings: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="Saved embeddings instead of a model; may be repeated.")
    ] = None,
    save_embeddings: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Save the embeddings, one folder per model.")
    ] = None,
    cxc: Annotated[Path | None, typer.Option(metavar="DIR", help="The CSV files of Crisscrossed Captions.")] = None,
    eccv: Annotated[Path | None, typer.Option(metavar="DIR", help="The JSON files of ECCV Caption.")] = None,
    coco_ids: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Image and caption ids of COCO; needed by --cxc and --eccv."),
    ] = None,
    ties: Annotated[str, typer.Option(metavar="RULE", help="Rank of ties: pessimistic or optimistic.")] = "pessimistic",
    samples: Annotated[int, typer.Option(metavar="N", min=1, help="Bootstrap samples for the intervals.")] = 1000,
    seed: Annotated[int, typer.Option(metavar="N", min=0, max=2**63 - 1, help="The random seed of the bootstrap.")] = 0,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where results are written as JSON.")] = Path(
        "results.json"
    ),
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append the results to this Markdown table.")
    ] = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure retrieval: recall, ranks and rsum with intervals."""
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
        raise UsageError("nothing to evaluate: give a model, or embeddings with --from-embeddings DIR")
    _check_file("--out", out)
    if markdown is not None:
        _check_file("--markdown", markdown)
    if not named and (save_embeddings or features or images or data):
        raise UsageError("--data, --images, --features and --save-embeddings need a model, not saved embeddings")
    if coco_ids is not None and cxc is None and eccv is None:
        raise UsageError("--coco-ids needs --cxc DIR or --eccv DIR")
    if named and data is None:
        raise UsageError("--data DIR is needed to evaluate a model")
    if (cxc is not None or eccv is not None) and coco_ids is None:
        raise UsageError(
            "--cxc and --eccv need --coco-ids FILE: dataset_coco.json, or a list of file, image_id, sentids"
        )
    check_rerank(rerank, {"--depth": depth, "--rerank-features": rerank_features})
    if rerank is not None and (saved or cxc is not None or eccv is not None):
        raise UsageError("--rerank needs models, and only their recall: leave out --from-embeddings, --cxc and --eccv")
    if (ensemble or compare) and len(named) + len(saved) < 2:
        raise UsageError(f"{'--ensemble' if ensemble else '--compare'} needs at least two models")

    from vse.data.open import holds_videos

    if data is not None and holds_videos(data):
        reject_for_videos(
            {
                "--protocol": protocol not in {AUTO, "all"},
                "--images": images,
                "--from-embeddings": saved,
                "--save-embeddings": save_embeddings,
                "--cxc": cxc,
                "--eccv": eccv,
                "--markdown": markdown,
                "--rerank": rerank,
            },
            data,
        )

    from vse._util.atomic import write_json
    from vse.evaluation.models import DEPTH
    from vse.evaluation.report import append_markdown, run_evaluation

    coco = None
    if coco_ids is not None:
        from vse.evaluation.coco.tasks import CocoTasks

        coco = CocoTasks.read(coco_ids, cxc, eccv)
    with progress_on_stderr() as progress:
        members = _members(
            named,
            saved,
            data,
            split=split,
            images=images,
            features=features,
            save=save_embeddings,
            rerank=rerank,
            depth=DEPTH if depth is None else depth,
            rerank_features=rerank_features,
            device=device,
            threads=threads,
            progress=progress,
        )
        report = run_evaluation(
            members,
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


def check_rerank(model: str | None, given: Mapping[str, object]) -> None:
    """Raise an error for options of re-ranking without a re-ranker; ``given`` is option → value."""
    for option, value in given.items():
        if model is None and value is not None:
            raise UsageError(f"{option} is for re-ranking: add --rerank MODEL, or leave it out")


def _check_file(option: str, path: Path) -> None:
    """Raise an error if the file cannot be written, before hours of work."""
    if path.is_dir():
        raise UsageError(f"{option} {str(path)!r}: a folder, expected a file")
    for place in path.parents:
        if place.is_dir():
            return
        if place.exists():
            raise UsageError(f"{option} {str(path)!r}: {str(place)!r} is a file, expected a folder")
