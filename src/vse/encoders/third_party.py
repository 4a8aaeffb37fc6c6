"""Use transformers, timm and open_clip safely: no pickles, no remote code, no request that nobody asked for.

A configuration may come from a stranger. Only known types of networks are built, from the keys that their configuration
class declares, without the hub, and not larger than the weights that they are for.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vse.errors import InputError, VSEError, first_line, require

NOT_ARCHITECTURE = {"transformers_version", "_name_or_path", "architectures", "dtype"}
TEXT_TYPES = (
    *("albert", "bert", "big_bird", "camembert", "convbert", "data2vec-text", "deberta", "deberta-v2", "distilbert"),
    *(
        "electra",
        "ernie",
        "eurobert",
        "fnet",
        "funnel",
        "gemma3_text",
        "gpt2",
        "gpt_neox",
        "ibert",
        "llama",
        "longformer",
    ),
    *("megatron-bert", "mistral", "mobilebert", "modernbert", "mpnet", "nomic_bert", "nystromformer", "opt", "phi3"),
    *("qwen2", "qwen3", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "squeezebert", "xlm"),
    *("xlm-roberta", "xlm-roberta-xl", "xlnet", "xmod", "yoso"),
    "clip_text_model",
)
"""Text encoders that a model may be built of: none of them asks for files beside its own."""
VISION_TYPES = (
    *("beit", "data2vec-vision", "deit", "dinov2", "dinov2_with_registers", "dinov3_vit", "hiera", "ijepa", "vit"),
    *("vit_mae", "vit_msn", "chinese_clip_vision_model", "clip_vision_model", "siglip_vision_model"),
    "siglip2_vision_model",
)
"""Vision transformers that a model may be built of."""
FETCHING = re.compile(r"backbone|use_timm|pretrained|(?<!gradient_)checkpoint|quantization_config|base_model")
"""Keys of a configuration that name other models or files."""
CODE = {"attn_implementation", "experts_implementation", "auto_map", "custom_pipelines"}
"""Keys that published configurations have and that could fetch code: they are ignored."""
COUNTS = re.compile(r"layer(?!_?(norm|drop|scale))|depth|block(?!_size)|stage|group|repeat|expert")
"""Keys of numbers that say how many parts a network has."""
LARGEST_NUMBER = 2**31
SPARE = 50_000_000  # parameters that are built and not kept, such as the layers behind the cut of a backbone
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


_offline_lock = threading.Lock()
_offline: list[Any] = []  # one entry for each context that is open


@contextmanager
def offline() -> Iterator[None]:
    """Let the hub's library send nothing within the context: what is not in its cache does not exist.

    It is a setting of the whole process: a download in another thread fails for as long.
    """
    places = [(require("huggingface_hub.constants", "train", "building a network"), "HF_HUB_OFFLINE")]
    older = sys.modules.get("transformers.utils.hub")
    if older is not None and hasattr(older, "_is_offline_mode"):  # transformers 4 keeps its own copy
        places.append((older, "_is_offline_mode"))
    with _offline_lock:
        _offline.append([(module, name, getattr(module, name)) for module, name in places])
        for module, name in places:
            setattr(module, name, True)
    try:
        yield
    finally:
        with _offline_lock:
            before = _offline.pop()  # the first to enter saw the user's own setting; it is restored last
            for module, name, value in before:
                setattr(module, name, value)


def network_config(
    transformers: Any, architecture: Mapping[str, Any], allowed: Collection[str], what: str, *, parts: int | None = None
) -> Any:
    """Return the configuration object of a network that a saved model or a stranger describes.

    Args:
        transformers: The library.
        architecture: ``{"model_type": "bert", …}``.
        allowed: Types that may be built.
        what: What is built, for messages.
        parts: Number of tensors that the weights have; no count may exceed it.

    Raises:
        InputError: If the type is not allowed, or a key asks for other files or for an absurd size.
    """
    options = dict(architecture)
    model_type = options.pop("model_type", None)
    if not isinstance(model_type, str):
        raise InputError(f"the configuration of {what} has no 'model_type', such as {allowed_example(allowed)!r}")
    if model_type not in allowed or model_type not in transformers.CONFIG_MAPPING:
        raise InputError(f"model type {model_type!r} is not supported for {what}: {_named(model_type, allowed)}")
    check_numbers(options, parts, f"the configuration of {what}")
    declared = transformers.CONFIG_MAPPING[model_type]
    try:
        return transformers.AutoConfig.for_model(model_type, **_declared_keys(declared, options, what))
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001 (its validators raise errors of several libraries)
        raise InputError(f"transformers cannot build this {model_type!r} model: {first_line(error)}") from None


def _named(model_type: str, allowed: Collection[str]) -> str:
    """Return the types that are meant most likely, or the first ones."""
    close = get_close_matches(model_type, allowed, 3) or sorted(allowed)[:6]
    return f"expected {', '.join(close)}" + (" …" if len(allowed) > len(close) else "")


def allowed_example(allowed: Collection[str]) -> str:
    """Return a type for messages."""
    return next((name for name in ("bert", "vit", "clip") if name in allowed), min(allowed))


def _declared_keys(declared: Any, options: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the options that a configuration class declares; those of its parts by the classes of the parts."""
    inner = dict(getattr(declared, "sub_configs", {}))
    inner.update({f"{name}_dict": part for name, part in inner.items()})  # the form of the first CLIP models
    known = {*declared().to_dict(), *getattr(declared, "attribute_map", {}), *inner, "torch_dtype"}
    kept = {}
    for key, value in options.items():
        if key in known and key not in CODE:
            if isinstance(value, Mapping) and key in inner:
                kept[key] = _declared_keys(inner[key], value, what)
            else:
                kept[key] = _without_code(value)
        elif FETCHING.search(key):
            raise InputError(f"the configuration of {what} asks for other files ({key!r}); a model holds its own")
    return kept


def _without_code(value: Any) -> Any:
    """Return a value without keys that could fetch code."""
    if not isinstance(value, Mapping):
        return value
    return {key: _without_code(each) for key, each in value.items() if str(key).lstrip("_") not in CODE}


def check_numbers(described: Any, parts: int | None, where: str, key: str = "") -> None:
    """Refuse numbers that no network has; a count of layers or blocks is at most the number of tensors, ``parts``."""
    if isinstance(described, Mapping):
        for name, value in described.items():
            check_numbers(value, parts, where, str(name))
    elif isinstance(described, list | tuple):
        if parts is not None and COUNTS.search(key) and len(described) > max(parts, 1):
            raise InputError(f"{where}: {key!r} has {len(described)} entries, and the weights {parts} tensors")
        for value in described:
            check_numbers(value, parts, where, key)
    elif isinstance(described, int | float) and not isinstance(described, bool):
        if not abs(described) <= LARGEST_NUMBER:
            raise InputError(f"{where}: {key!r} is {described}, expected at most {LARGEST_NUMBER}")
        if parts is not None and COUNTS.search(key) and described > max(parts, 1):
            raise InputError(f"{where}: {key!r} is {described}, and the weights have {parts} tensors")


def check_size(build: Callable[[], Any], shapes: Iterable[tuple[int, ...]], where: str) -> None:
    """Refuse a network that is much larger than its weights, before memory is taken for it.

    It is built on torch's ``meta`` device, where a tensor is a shape, and given up when it has too many parts.

    Args:
        build: Builds the network.
        shapes: Shapes of the tensors of its weights.
        where: Named in the message.

    Raises:
        InputError: If it is too large, or ``build`` raises anything.
    """
    import torch
    from torch.nn.modules import module as registry

    numels = [_product(shape) for shape in shapes]
    most, most_parts = 2 * sum(numels) + SPARE, 50 * len(numels) + 10_000
    here, seen = threading.get_ident(), [0, 0]

    def count(_module: Any, _name: str, value: Any) -> None:
        if threading.get_ident() != here:
            return
        seen[0] += 1
        seen[1] += value.numel() if isinstance(value, torch.Tensor) else 0
        if seen[0] > most_parts or seen[1] > most:
            size = f"{seen[1]:,} parameters" if seen[1] > most else f"{seen[0]:,} parts"
            raise InputError(
                f"{where}: the configuration describes a network of more than {size}, and the weights have "
                f"{len(numels):,} tensors with {sum(numels):,} numbers: they belong to different models"
            )

    hooks = [
        registry.register_module_module_registration_hook(count),
        registry.register_module_parameter_registration_hook(count),
        registry.register_module_buffer_registration_hook(count),
    ]
    try:
        try:
            with torch.device("meta"):
                build()
        except (RuntimeError, NotImplementedError):
            build()  # a network that looks at values while it is built: the hooks stop it as it grows
    except VSEError:
        raise
    except Exception as error:  # noqa: BLE001 - libraries check what a stranger wrote with errors of any type
        raise InputError(f"{where}: no network can be built ({type(error).__name__}: {first_line(error)})") from None
    finally:
        for hook in hooks:
            hook.remove()


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def stored_shapes(paths: Iterable[Path]) -> list[tuple[int, ...]]:
    """Return the shapes of all tensors in safetensors files; only their headers are read."""
    safetensors = require("safetensors", "train", "loading a model")
    shapes = []
    for path in paths:
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                shapes += [tuple(file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118
        except (safetensors.SafetensorError, OSError) as error:
            raise InputError(f"{path}: not a complete safetensors file ({first_line(error)}); fetch it again") from None
    return shapes


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


def published_config(transformers: Any, source: str, allowed: Collection[str], what: str) -> Any:
    """Return the configuration of a pretrained model that the user named, a folder or a hub id."""
    try:
        with quiet_loading(transformers):
            described, _ = transformers.PretrainedConfig.get_config_dict(source)
    except (OSError, ValueError) as error:
        raise InputError(f"no pretrained encoder could be loaded from {source!r}: {first_line(error)}") from None
    try:
        return network_config(transformers, described, allowed, what)
    except InputError as error:
        raise InputError(f"no pretrained encoder could be loaded from {source!r}: {error}") from None


def load_pretrained(transformers: Any, source: str, *, factory: Any = None, **options: Any) -> Any:
    """Call ``from_pretrained`` of AutoModel, or of ``factory``: missing weights, which would stay random, are an error.

    Only safetensors are read, and no code from the model repository is run.
    """
    safetensors = require("safetensors", "train", f"loading {source!r}")
    try:
        with quiet_loading(transformers):
            # Mismatched sizes are reported instead of raised: the report has the names of the tensors.
            model, report = (factory or transformers.AutoModel).from_pretrained(
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
