"""``vse embed``: embed many images into shards, with one worker or many."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import DeviceOption, JsonOption, ThreadsOption
from vse.errors import UsageError


def embed(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A folder, a list of paths (.txt), WebDataset tars or Parquet (also by a pattern), or a URL of these.",
        ),
    ],
    into: Annotated[str, typer.Option(metavar="DEST", help="Folder or URL of the shards; a stopped job is resumed.")],
    model: Annotated[str, typer.Option(metavar="MODEL", help="The model.")] = "photo",
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Compute every N-th shard, from number I; for N machines.")
    ] = None,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Compute on a Ray cluster: auto, or its address.")
    ] = None,
    shard_size: Annotated[int, typer.Option(min=1, metavar="N", help="Images per shard.")] = 10_000,
    format: Annotated[  # noqa: A002 - the option is called so
        Literal["parquet", "clip-retrieval"], typer.Option(help="Files of a shard.")
    ] = "parquet",
    dtype: Annotated[Literal["float32", "float16"], typer.Option(help="Numbers of the embeddings.")] = "float32",
    text: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Also embed the texts of this column, such as caption.")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Compute shards again in which images failed.")
    ] = False,
    batch_size: Annotated[int, typer.Option(min=1, metavar="N", help="Images computed at once.")] = 32,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Embed many images into shards, with one worker or many.

    A shard appears whole or not at all, and is skipped when it is there: the same command resumes, and may run on
    several machines at once.
    """
    from vse.batch import embed as run

    part = (1, 1) if shard is None else _shard(shard)
    if ray is not None and shard is not None:
        raise UsageError("--shard is for machines without Ray, which divides the shards itself: use one of them")
    with progress_on_stderr() as progress:
        try:
            report = run(
                source,
                into,
                model=model,
                shard=part,
                ray=ray,
                shard_size=shard_size,
                format=format,
                dtype=dtype,
                text=text,
                retry_failed=retry_failed,
                device=device,
                threads=threads,
                batch_size=batch_size,
                progress=progress,
            )
        except KeyboardInterrupt:
            progress.note(f"complete shards are in {into}: the same command resumes")
            raise
    show(report, as_json=as_json)


def _shard(value: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", value)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise UsageError(f"--shard {value!r}: expected I/N with 1 ≤ I ≤ N, such as 1/4")
    return int(found[1]), int(found[2])
