"""``vse experiment``: reproduce a table or figure of the paper, or list them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vse.cli.console import print_json, progress_on_stderr, show
from vse.cli.options import JsonOption, output_folder, parse_numbers, parse_seeds
from vse.errors import UsageError, unknown_choice


def experiment(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The experiment to run.", show_default=False)
    ] = None,
    list_names: Annotated[bool, typer.Option("--list", help="List the experiments and exit.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Run a small version: the figures mean nothing.")] = False,
    as_json: JsonOption = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where results are written [default: runs/NAME].")
    ] = None,
    seeds: Annotated[str | None, typer.Option(metavar="N,N,…", help='Random seeds, such as "0,1,2".')] = None,
    jobs: Annotated[int | None, typer.Option(metavar="N", min=1, help="Parallel processes.")] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The dataset, for experiments that need one.")
    ] = None,
    features: Annotated[
        Path | None, typer.Option(metavar="PLACE", help="Stored image or frame features of the dataset.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(metavar="NAME", help="The recipe to vary, or the common prefix of several.")
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of training runs, which experiments may share [default: below --out]."
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a value of all recipes; may be repeated."),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="How the test split is ranked [default: the paper's for the dataset]."),
    ] = None,
    split: Annotated[
        str | None, typer.Option(metavar="NAME", help="Rank this split [default: the test split of the data].")
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option("--row", metavar="LABEL", help="Train and compare this row only; may be repeated."),
    ] = None,
    image_ks: Annotated[
        str | None,
        typer.Option("--image-ks", metavar="K,K,…", help="K-max poolings of images to search, beside Max and Avg."),
    ] = None,
    text_ks: Annotated[
        str | None,
        typer.Option("--text-ks", metavar="K,K,…", help="K-max poolings of words to search, beside Max and Avg."),
    ] = None,
) -> None:
    """Reproduce a table or figure of the paper."""
    from vse.experiments import EXPERIMENTS

    if list_names:
        if name is not None:
            raise UsageError(f"--list takes no NAME, got {name!r}: leave out one of the two")
        summaries = {known: entry.summary for known, entry in EXPERIMENTS.items()}
        _list(summaries, as_json=as_json)
        return
    if name is None:
        raise UsageError(
            f"no experiment given: expected one of {', '.join(map(repr, EXPERIMENTS))} (see them with --list)"
        )
    if name not in EXPERIMENTS:
        raise UsageError(unknown_choice("experiment", name, EXPERIMENTS))
    given = {"--data": data, "--features": features, "--recipe": recipe, "--runs": runs, "--set": changes}
    given |= {"--protocol": protocol, "--image-ks": image_ks, "--text-ks": text_ks, "--split": split, "--row": rows}
    trains = EXPERIMENTS[name].trains
    if not trains:
        for option in (option for option, value in given.items() if value):
            raise UsageError(f"{option}: the experiment {name!r} takes no dataset: leave it out")
    folder = output_folder(out or Path("runs") / name)
    chosen_seeds = None if seeds is None else parse_seeds(seeds)
    ks = tuple(
        None if text is None else parse_numbers(option, text, least=1)
        for option, text in (("--image-ks", image_ks), ("--text-ks", text_ks))
    )

    from importlib import import_module

    module, _, function = EXPERIMENTS[name].target.partition(":")
    run = getattr(import_module(module), function)
    with progress_on_stderr() as report:
        if trains:
            from vse.evaluation.protocols import AUTO, PROTOCOLS
            from vse.experiments.plan import Call

            if protocol is not None and protocol not in {AUTO, *PROTOCOLS}:
                raise UsageError(f"--protocol: {unknown_choice('protocol', protocol, (AUTO, *PROTOCOLS))}")
            called = Call(
                out=folder,
                report=report,
                quick=quick,
                seeds=chosen_seeds,
                jobs=jobs,
                data=data,
                features=features,
                recipe=recipe,
                runs=runs,
                changes=tuple(changes or ()),
                protocol=protocol or AUTO,
                image_ks=ks[0],
                text_ks=ks[1],
                split=split,
                rows=tuple(rows or ()),
            )
            result = run(called)
        else:
            result = run(quick=quick, out=folder, seeds=chosen_seeds, jobs=jobs, report=report)
    show(result, as_json=as_json)


def _list(summaries: dict[str, str], *, as_json: bool) -> None:
    if as_json:
        print_json({"experiments": [{"name": name, "summary": text} for name, text in summaries.items()]})
        return
    width = max(map(len, summaries), default=0)
    for name, text in summaries.items():
        print(f"{name:<{width}}  {text}")
