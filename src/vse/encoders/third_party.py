"""Import transformers and timm safely: no pickles, no remote code, no failure because of a broken torchvision."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from vse.errors import InputError, first_line, require

NOT_ARCHITECTURE = {"transformers_version", "_name_or_path", "architectures", "dtype"}
_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declared: list[Any] = []  # declarations end when their torch.library.Library is garbage-collected


@cache
def repair_torchvision() -> bool:
    """Make ``import torchvision`` work if its operators are missing; return whether anything was declared.

    Call it before the first import of timm or transformers.
    """
    if find_spec("torchvision") is None:
        return False
    try:
        import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    else:
        return False
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(name + _SIGNATURE)
    _declared.append(library)
    # Drop the partial modules of the failed import, or they would be reused.
    for module in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[module]
    import_module("torchvision")
    return True


def import_transformers(purpose: str) -> Any:
    """Import transformers, after repairing a torchvision that would break it."""
    repair_torchvision()
    return require("transformers", "train", purpose)


@contextmanager
def quiet_loading(transformers: Any) -> Iterator[None]:
    """Suppress progress bars and load reports; errors are still raised."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def load_pretrained(transformers: Any, source: str, **options: Any) -> Any:
    """Call ``AutoModel.from_pretrained`` strictly: missing weights, which would stay random, are an error.

    Only safetensors are read, and no code from the model repository is run.
    """
    safetensors = require("safetensors", "train", f"loading {source!r}")
    try:
        with quiet_loading(transformers):
            # Mismatched sizes are reported instead of raised: the report has the names of the tensors.
            model, report = transformers.AutoModel.from_pretrained(
                source,
                output_loading_info=True,
                use_safetensors=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                **options,
            )
    except safetensors.SafetensorError as error:
        reason = first_line(error)
        raise InputError(
            f"{source!r}: its weights are no complete safetensors file ({reason}); fetch it again"
        ) from None
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(f"no pretrained model could be loaded from {source!r}: {first_line(error)}") from None
    absent = [*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])]
    if absent:
        names = ", ".join(sorted(map(str, absent))[:3])
        raise InputError(
            f"{source!r}: {len(absent)} tensors of the model are not in its file or of another shape ({names}, …)"
        )
    return model


def describe_config(config: Any) -> dict[str, Any]:
    """Return the settings and type of a configuration, sufficient to rebuild the network."""
    described = {"model_type": config.model_type, **config.to_diff_dict()}
    return {key: value for key, value in described.items() if key not in NOT_ARCHITECTURE}
