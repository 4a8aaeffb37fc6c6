"""Compare the paper's schedule of negatives with its alternatives on Flickr8k, at equal budget.

    vse features DATA --backbone efficientnet-lite0 --into FEATURES
    python benchmarks/schedules.py --data DATA --features FEATURES --into runs/schedules

trains the recipe ``flickr8k-vse-infinity`` once for each schedule: same data, same order, same steps, same networks.
The loss differs and, in the paper's row, the learning-rate warm-up that belongs to its schedule. Models are selected by
dev rsum; the test split is not read. After an interruption the same command resumes. Writes a table,
``schedules.json`` and ``schedules.png``.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

PAPER = ["loss.objective=triplet", "loss.negatives=hardest", "loss.warmup_epochs=1", "guard.action=warn"]
SCHEDULES: dict[str, list[str]] = {
    "all, then hardest (paper)": [*PAPER, "schedule.warmup_from=1", "schedule.warmup_epochs=1"],
    "all, then semi-hard": ["loss.objective=triplet", "loss.negatives=semi-hard", "loss.warmup_epochs=1"],
    "annealed 0.1 → 0.01": ["loss.objective=annealed", "loss.temperature=0.1", "loss.final_temperature=0.01"],
    "contrastive 0.05": ["loss.objective=contrastive", "loss.temperature=0.05"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--into", type=Path, default=Path("runs/schedules"))
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int, default=2, help="runs at once, one thread each")
    parser.add_argument("--figure", type=Path, help="where the figure is written [default: INTO/schedules.png]")
    parser.add_argument("--only", nargs="+", choices=[_slug(name) for name in SCHEDULES], help="a subset")
    options = parser.parse_args()
    wanted = {name: given for name, given in SCHEDULES.items() if not options.only or _slug(name) in options.only}
    places = [f"data.path={str(options.data)!r}", f"data.features={str(options.features)!r}"]
    tasks = []
    for seed in options.seeds:
        for name, changes in wanted.items():
            common = [f"schedule.epochs={options.epochs}", "schedule.decay_epochs=3", f"seed={seed}", "run.threads=1"]
            tasks.append((name, seed, places + common + changes, options.into / f"{_slug(name)}-seed{seed}"))
    results: dict[tuple[str, int], dict[str, Any]] = {}
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(_train, changes, folder): (name, seed) for name, seed, changes, folder in tasks}
        for future in as_completed(waiting):
            results[waiting[future]] = future.result()
            name, seed = waiting[future]
            print(f"{name}, seed {seed}: best dev rsum {results[waiting[future]]['best']['rsum']:.1f}", file=sys.stderr)
    _report(wanted, options, results)
    return 0


def _train(changes: list[str], folder: Path) -> dict[str, Any]:
    from vse.training import read_recipe, train

    recipe = read_recipe("flickr8k-vse-infinity", changes)
    return train(recipe, folder, name=folder.name).to_json()


def _report(wanted: dict[str, list[str]], options: argparse.Namespace, results: dict[tuple[str, int], Any]) -> None:
    from vse._util.atomic import write_json
    from vse.training.curves_plot import plot_training
    from vse.training.log import read_metrics

    first = options.seeds[0]
    lines = {name: read_metrics(options.into / f"{_slug(name)}-seed{first}") for name in wanted}
    print("| schedule | dev rsum after each epoch | best | lowest spread in an epoch |")
    print("|---|---|---|---|")
    for name, metrics in lines.items():
        epochs = [line for line in metrics if line["kind"] == "epoch"]
        shown = " ".join(f"{line['dev']['rsum']:.0f}" for line in epochs)
        best = [results[name, seed]["best"]["rsum"] for seed in options.seeds]
        told = " / ".join(f"{value:.1f}" for value in best)
        print(f"| {name} | {shown} | {told} | {min(line['spread'] for line in epochs):.3f} |")
    title = f"Flickr8k, {options.epochs} epochs, one network and one budget, {len(lines)} schedules (seed {first})"
    figure = plot_training(lines, title=title)
    target = options.figure or options.into / "schedules.png"
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=130)
    write_json(
        options.into / "schedules.json",
        {f"{name}, seed {seed}": result for (name, seed), result in sorted(results.items())},
    )
    print(json.dumps({"figure": str(target)}), file=sys.stderr)


def _slug(name: str) -> str:
    return name.split(" (", maxsplit=1)[0].replace(" → ", "-to-").replace(", ", "-").replace(" ", "-")


if __name__ == "__main__":
    sys.exit(main())
