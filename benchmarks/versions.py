"""Compare the speed of two versions of this package, in turns, in one run.

    python benchmarks/versions.py --before OTHER/src [--rounds 7] [--tasks pooling,search] [--json]

``OTHER/src`` is the source folder of another version, such as a worktree of an earlier commit. Each task runs in
its own process, the two versions alternate, and the result is the median of the ratios after/before with the
interquartile range: 1.00 is equal, above 1 is slower. Tasks use only the command and imports that both versions have.
The second ratio is that of the CPU time of the whole process, start and child processes included: other programs on the
machine change it less.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PREAMBLE = "import time, json, sys\n"
POOLING = """
import torch
from vse.pooling import GPO
torch.manual_seed(0); torch.set_num_threads(1)
pool, x, n = GPO(), torch.randn(128, 36, 1024, requires_grad=True), torch.randint(1, 37, (128,))
def work(): pool(x, lengths=n).sum().backward()
for _ in range(3): work()
start = time.perf_counter()
for _ in range(20): work()
print(time.perf_counter() - start)
"""
EVALUATION = """
import numpy as np
from vse.evaluation import retrieval_metrics
g = np.random.default_rng(0)
unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)
images, texts = unit(g.standard_normal((5000, 256), np.float32)), unit(g.standard_normal((25000, 256), np.float32))
owners = np.repeat(np.arange(5000), 5)
start = time.perf_counter()
retrieval_metrics(images, texts, owners)
print(time.perf_counter() - start)
"""
RECIPE = """
seed = 0
data = {{path = "{data}", min_count = 1}}
[model]
embed_size = 256
[model.image]
kind = "region"
feature_size = 256
hidden_size = 128
head = "linear"
[model.text]
kind = "bigru"
word_size = 128
[schedule]
epochs = 1
batch_size = 128
decay_epochs = 0
[loss]
objective = "contrastive"
[run]
threads = 1
readers = 1
"""
TASKS = ("pooling", "evaluation", "training", "help", "search", "indexing")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, type=Path, help="source folder of the other version")
    parser.add_argument("--after", type=Path, default=Path(__file__).resolve().parents[1] / "src")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--images", type=int, default=160, help="images to index")
    parser.add_argument("--model", default="photo", help="model folder for indexing and searching, the same for both")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        prepare(work, options.images, options.after, options.model)
        rows = []
        for task in options.tasks.split(","):
            pairs = []
            for number in range(options.rounds + 1):  # the first round fills caches and is not counted
                order = [options.before, options.after] if number % 2 else [options.after, options.before]
                found = {source: timed(task, source.resolve(), work, options.model) for source in order}
                pairs.append((found[options.before], found[options.after]))
            wall, cpu = (compared([(before[way], after[way]) for before, after in pairs[1:]]) for way in (0, 1))
            seconds = statistics.median(before for (before, _), _ in pairs[1:])
            rows.append({"task": task, "before_seconds": round(seconds, 4), **wall, "cpu": cpu})
            if not options.json:
                shown = "  ".join(
                    f"{name} {each['ratio']:.3f} ({each['middle_half'][0]:.3f} to {each['middle_half'][1]:.3f})"
                    for name, each in (("ratio", wall), ("CPU time", cpu))
                )
                print(f"{task:<11} {seconds:>9.3f} s  {shown}", flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))
    return 0


def prepare(work: Path, images: int, source: Path, model: str) -> None:
    """Write a dataset to train on, images to index, and a collection to search."""
    from PIL import Image

    generator = np.random.default_rng(0)
    data = work / "pairs"
    data.mkdir()
    words = [f"word{number}" for number in range(400)]
    for split, count in (("train", 768), ("dev", 64), ("test", 64)):
        np.save(data / f"{split}_ims.npy", generator.standard_normal((count, 12, 256), np.float32))
        lines = [" ".join(generator.choice(words, 9)) for _ in range(count * 5)]
        (data / f"{split}_caps.txt").write_text("\n".join(lines) + "\n")
        (data / f"{split}_ids.txt").write_text("".join(f"{split}{number}\n" for number in range(count)))
    (work / "recipe.toml").write_text(RECIPE.format(data=data))
    (work / "images").mkdir()
    for number in range(images):
        pixels = generator.integers(0, 256, (12, 16, 3), np.uint8)
        Image.fromarray(pixels).resize((1024, 768)).save(work / "images" / f"{number}.jpg", quality=90)
    run(source.resolve(), work, "-m", "vse", "index", "images", "--into", "searched", "--model", model)


def run(source: Path, work: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=work, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{source}: {' '.join(arguments)[:200]}\n{done.stderr}")
    return done.stdout


def compared(pairs: list[tuple[float, float]]) -> dict[str, object]:
    """Return median and middle half of the ratios after/before."""
    ratios = sorted(after / before for before, after in pairs)
    middle = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "middle_half": [round(each, 3) for each in middle],
        "rounds": len(ratios),
    }


def timed(task: str, source: Path, work: Path, model: str) -> tuple[float, float]:
    """Return what :func:`measure` does, and the CPU seconds of the process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = measure(task, source, work, model)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure(task: str, source: Path, work: Path, model: str) -> float:
    """Return the seconds that ``task`` takes with the package in ``source``."""
    if task in {"pooling", "evaluation"}:
        return float(run(source, work, "-c", PREAMBLE + (POOLING if task == "pooling" else EVALUATION)))
    if task == "training":
        with tempfile.TemporaryDirectory(dir=work) as folder:
            run(source, work, "-m", "vse", "train", "recipe.toml", "--into", f"{folder}/run")
            lines = Path(folder, "run", "timings.jsonl").read_text("utf-8").splitlines()
            steps = [json.loads(line) for line in lines]
            return statistics.median(sum(value for key, value in step.items() if key != "step") for step in steps)
    if task == "indexing":
        with tempfile.TemporaryDirectory(dir=work) as folder:
            command = ("index", "images", "--into", f"{folder}/new", "--model", model, "--json")
            found = json.loads(run(source, work, "-m", "vse", *command))
            return 1 / found["folders"][0]["images_per_second"]
    arguments = ("--help",) if task == "help" else ("search", "searched", "two dogs in the snow", "--model", model)
    start = time.perf_counter()
    run(source, work, "-m", "vse", *arguments)
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
