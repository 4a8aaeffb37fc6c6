"""Train a recipe into a folder, or resume the run that is there."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from vse._util.atomic import write_json
from vse._util.locks import FolderLock
from vse._util.strict import read_json
from vse._version import __version__
from vse.data import CaptionedImages, VideoFrames
from vse.data.frames import open_packed, write_packed
from vse.errors import InputError, first_line, require
from vse.models.card import write_card
from vse.models.devices import slow_bf16
from vse.models.storage import load_model
from vse.progress import ProgressReporter, SilentProgress
from vse.training.data import build_tokenizer, open_splits, training_pairs
from vse.training.distributed import Ranks, process_group, ranks_of_environment
from vse.training.log import read_metrics
from vse.training.mining import mine
from vse.training.model import build_model
from vse.training.recipe import Recipe, flat
from vse.training.result import TrainingResult
from vse.training.run_folder import CURVES, RESULT, RUN, RunFolder, is_leftover
from vse.training.trainer import Trainer


def pack_videos(data: CaptionedImages, folder: RunFolder, ranks: Ranks, report: ProgressReporter) -> CaptionedImages:
    """Return ``data`` with its frames packed in the folder of the run by the first process; images stay unchanged."""
    videos = data.images
    if not isinstance(videos, VideoFrames):
        return data
    if ranks.first and open_packed(videos, folder.frames) is None:
        report.note(f"packing {int(videos.sizes.sum())} frames of {len(videos)} videos into one file")
        folder.write_frames(partial(write_packed, videos))
    ranks.share(None)  # the others open them after they are written
    packed = open_packed(videos, folder.frames)
    if packed is None:
        raise InputError(
            f"{folder.frames}: the packed frames are not those of {videos.source.place}: start the run again"
        )
    return replace(data, images=packed)


DIFFERENCES = 4  # named in a message about another recipe


def train(
    recipe: Recipe,
    folder: str | Path,
    *,
    name: str | None = None,
    progress: ProgressReporter | None = None,
) -> TrainingResult:
    """Train ``recipe`` into ``folder``, or resume the run that is there.

    A folder belongs to one recipe and one dataset. A finished run is not trained again. An interrupted run (Ctrl-C,
    SIGTERM) saves a checkpoint first.

    Args:
        recipe: what to train.
        folder: of the run; created if needed.
        name: recorded in the model; the name of the folder if None.
        progress: shows steps and messages.

    Returns:
        The best model by rsum on dev, and what training took.

    Raises:
        InputError: the data is unusable, or the folder holds a run of another recipe or dataset, which is unchanged.
    """
    require("safetensors", "train", "training")
    path = Path(folder)
    device = choose_device(recipe.run.device)
    if recipe.run.precision == "fp16" and device.type == "cpu":
        raise InputError("run.precision 'fp16' needs a GPU: take 'bf16' or 'fp32' on a CPU")
    with process_group(device) as ranks:
        report = progress if progress is not None and ranks.first else SilentProgress()
        if recipe.run.precision == "bf16" and (note := slow_bf16(device)) is not None:
            report.note(note)
        _make_folder(path, ranks)
        lock = FolderLock(path) if ranks.first else None
        try:
            return _train(recipe, RunFolder(path), name or path.resolve().name, device, ranks, report)
        finally:
            if lock is not None:
                lock.release()


def _train(
    recipe: Recipe, folder: RunFolder, name: str, device: torch.device, ranks: Ranks, report: ProgressReporter
) -> TrainingResult:
    if recipe.run.threads is not None:
        torch.set_num_threads(recipe.run.threads)
    splits = open_splits(recipe)
    tokenizer = build_tokenizer(recipe, splits.train.captions, report)
    _claim(folder, recipe, splits.identity(tokenizer), ranks)
    if (folder.path / RESULT).is_file():
        report.note(f"{folder.path}: this run is finished")
        return TrainingResult.read(folder.path)
    data, dev = splits.train, splits.dev
    report.note(
        f"{data.name}: {len(data.images)} {data.kind.plural} with {len(data.captions)} captions to train on, "
        f"{len(dev.images)} with {len(dev.captions)} to choose by"
    )
    for each in (splits.train, splits.dev):
        dropped = getattr(each, "dropped", ())
        if dropped:
            report.note(f"{each.split}: {len(dropped)} videos without frames are left out, {dropped[0]} is the first")
    if splits.graphs is not None:
        report.note(splits.graphs.note)
    model = build_model(recipe, tokenizer, splits, name).to(device)
    first_stage, negatives = mine(recipe, splits.train, splits.dev, folder.path, ranks, report)
    packed = pack_videos(splits.train, folder, ranks, report)
    pairs = training_pairs(recipe, model, packed, splits.graphs, negatives)
    with _asked_to_stop() as stopping:
        trainer = Trainer(
            recipe,
            model,
            pairs,
            splits.dev,
            folder,
            ranks,
            report,
            stored_features=splits.store is not None,
            stopping=stopping.is_set,
            graphs=splits.graphs,
            first_stage=first_stage,
        )
        if ranks.first:
            folder.clear_leftovers()
        if trainer.restore():
            report.note(f"resuming at step {trainer.position.step} of {trainer.total_steps}")
        if ranks.share(trainer.position.step) != trainer.position.step:
            raise InputError(f"rank {ranks.rank} does not see the checkpoint in {folder.path}: use a disk all share")
        trainer.run()
    result = TrainingResult.of(trainer, name)
    if ranks.first:
        write_card(result.model, load_model(result.model))
        result.draw(folder.path / CURVES, read_metrics(folder.path))
        write_json(folder.path / RESULT, result.to_json())
        folder.remove_frames()
    return result


def _claim(folder: RunFolder, recipe: Recipe, data: dict[str, Any], ranks: Ranks) -> None:
    """Record what the folder is for, or check that it is for this; keys that the record lacks are not compared."""
    wanted: dict[str, Any] = {"recipe": recipe.identity(), "data": data}
    record = folder.path / RUN
    if record.is_file():
        known = read_json(record)
        for part, fix in (("recipe", "another recipe"), ("data", "other data")):
            before, now = flat(known.get(part, {})), flat(wanted[part])
            changed = [key for key in sorted(before) if before[key] != now.get(key)]
            if changed:
                differences = ", ".join(
                    f"{key} {before.get(key)!r} (now {now.get(key)!r})" for key in changed[:DIFFERENCES]
                )
                more = f" and {len(changed) - DIFFERENCES} more" if len(changed) > DIFFERENCES else ""
                raise InputError(
                    f"{folder.path} holds a run of {fix}: {differences}{more}; resume it with the same, or choose "
                    "another folder with --into"
                )
    elif ranks.first:
        used = {"vse_version": __version__, "torch_version": torch.__version__, "run": recipe.run.model_dump()}
        write_json(record, {"about": recipe.about, **wanted, **used})
    ranks.share(None)  # the others wait until the folder is claimed


def _make_folder(path: Path, ranks: Ranks) -> None:
    if path.is_file():
        raise InputError(f"{path}: a file, expected a folder for the run")
    if not ranks.first:
        return
    if path.is_dir() and not (path / RUN).is_file() and any(not is_leftover(each.name) for each in path.iterdir()):
        raise InputError(f"{path}: holds other things and no training run; choose an empty folder with --into")
    path.mkdir(parents=True, exist_ok=True)


def choose_device(name: str) -> torch.device:
    """Return the device of a name; ``auto`` is this process's GPU, or the CPU."""
    ranks = ranks_of_environment()
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        name = f"cuda:{ranks.local}"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"run.device {name!r}: {first_line(error)}") from None
    return device


@contextmanager
def _asked_to_stop() -> Iterator[threading.Event]:
    """Let SIGINT and SIGTERM end the run after the current step, with a checkpoint; a second one ends it at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: Any) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    for number in before:
        signal.signal(number, stop)
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
