"""Where models run: names of devices for torch and for ONNX Runtime, and how many threads a call may use.

A name is ``auto``, ``cpu``, a device of torch (``cuda``, ``cuda:1``, ``mps``) or an execution provider of ONNX Runtime
(``cuda``, ``tensorrt``, ``openvino``, ``coreml``, ``dml``). torch is imported only where a torch model asks for it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vse.errors import InputError, require, unknown_choice

if TYPE_CHECKING:
    import torch

AUTO, CPU = "auto", "cpu"
CPU_PROVIDER = "CPUExecutionProvider"
SILENT = 4  # ONNX Runtime's level for fatal errors alone
QUIET = 3  # and for errors


class DeviceError(InputError):
    """A device is unknown or missing here, whatever the model."""


class _Provider(NamedTuple):
    provider: str
    package: str
    needs: str
    numbered: bool = False


PROVIDERS = {
    "cuda": _Provider("CUDAExecutionProvider", "onnxruntime-gpu", "an NVIDIA GPU, CUDA and cuDNN", numbered=True),
    "tensorrt": _Provider("TensorrtExecutionProvider", "onnxruntime-gpu", "an NVIDIA GPU and TensorRT", numbered=True),
    "openvino": _Provider("OpenVINOExecutionProvider", "onnxruntime-openvino", "the OpenVINO libraries"),
    "coreml": _Provider("CoreMLExecutionProvider", "onnxruntime on macOS", "macOS"),
    "dml": _Provider("DmlExecutionProvider", "onnxruntime-directml", "Windows with DirectX 12", numbered=True),
}
TORCH_DEVICES = (AUTO, CPU, "cuda", "mps")
ONNX_DEVICES = (AUTO, CPU, *PROVIDERS)
DEVICES = (*TORCH_DEVICES, *(name for name in PROVIDERS if name not in TORCH_DEVICES))
AUTOMATIC = ("cuda", "coreml", "dml")
"""What ``auto`` tries for an export; TensorRT and OpenVINO compile for long or compute in another precision."""

# One Relu, as the smallest graph: whether a provider loads is only known once it has a session.
_PROBE = bytes.fromhex(
    "08083a330a0c0a0178120179220452656c751201675a0f0a0178120a0a08080112040a020801"
    "620f0a0179120a0a08080112040a0208014202100d"
)


@dataclass(frozen=True)
class OnnxDevice:
    """An execution provider of ONNX Runtime that loads here."""

    name: str = CPU
    provider: str = CPU_PROVIDER
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_cpu(self) -> bool:
        """Whether sessions run on ONNX Runtime's own CPU kernels."""
        return self.provider == CPU_PROVIDER

    def session(self, model: str | bytes, options: Any) -> Any:
        """Create a session; the CPU provider runs the operators that this one lacks.

        Raises:
            DeviceError: ONNX Runtime left the provider out, which it does without an error when a library is missing.
        """
        import onnxruntime

        fallback = [] if self.is_cpu else [CPU_PROVIDER]
        providers = [(self.provider, dict(self.options)), *fallback]
        session = onnxruntime.InferenceSession(model, sess_options=options, providers=providers, enable_fallback=0)
        if self.provider not in session.get_providers():
            raise _not_loaded(self.name)
        return session


def check_device(name: str) -> str:
    """Return ``name`` if a device may be called so; whether this machine has it is not checked.

    Raises:
        DeviceError: The name is unknown.
    """
    _parse(name)
    return name


def check_threads(threads: int | None) -> int | None:
    """Return ``threads`` if it is None or a whole number from 1 up, else raise :class:`InputError`."""
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise InputError(f"threads must be a whole number from 1 up, got {threads!r}")
    return threads


def onnx_device(name: str | None, threads: int | None = None) -> OnnxDevice:
    """Return the provider that runs an exported model.

    Args:
        name: A name of :data:`ONNX_DEVICES`, with a number for one of several GPUs (``cuda:1``); None is the CPU.
            ``auto`` is the first of :data:`AUTOMATIC` that loads, else the CPU.
        threads: Limits the threads of a provider that has its own.

    Raises:
        DeviceError: The name is unknown, or this ONNX Runtime lacks the provider, or cannot load it.
    """
    kind, number = _parse(name or CPU)
    if kind == CPU:
        return OnnxDevice()
    if kind not in ONNX_DEVICES:
        raise DeviceError(
            f"device {name!r}: a device of torch, and exports run in ONNX Runtime: use one of {', '.join(ONNX_DEVICES)}"
        )
    if kind != AUTO:
        return _loaded(kind, number, threads)
    import onnxruntime

    for candidate in AUTOMATIC:
        if PROVIDERS[candidate].provider in onnxruntime.get_available_providers():
            try:
                return _loaded(candidate, None, threads)
            except DeviceError:  # the package is there, its GPU or its libraries are not
                continue
    return OnnxDevice()


def torch_device(name: str | None) -> torch.device:
    """Return the device that runs a torch model.

    Args:
        name: A name of :data:`TORCH_DEVICES`, or ``cuda:N``; None is the CPU. ``auto`` is the first of CUDA, MPS and
            the CPU that is there.

    Raises:
        DeviceError: The name is unknown, or torch has no such device here.
    """
    torch = require("torch", "train", "a torch model")
    kind, number = _parse(name or CPU)
    if kind not in TORCH_DEVICES:
        raise DeviceError(
            f"device {name!r}: a provider of ONNX Runtime, and this model runs in torch: use one of "
            f"{', '.join(TORCH_DEVICES)}, or the export that 'vse export' makes of it"
        )
    if kind == AUTO:
        kind = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else CPU
    elif kind == "cuda" and not torch.cuda.is_available():
        raise DeviceError(
            f"device {name!r}: torch {torch.__version__} finds no CUDA GPU; install torch for CUDA and a driver, "
            "or use --device cpu"
        )
    elif kind == "mps" and not torch.backends.mps.is_available():
        raise DeviceError(
            f"device 'mps': torch {torch.__version__} finds no Metal GPU, which Macs with Apple silicon have; "
            "use --device cpu"
        )
    if number is not None and number >= (count := torch.cuda.device_count()):
        raise DeviceError(f"device {name!r}: torch finds {count} CUDA GPUs, numbered from 0; use --device cuda")
    return torch.device(kind) if number is None else torch.device(kind, number)


CPU_INFO = Path("/proc/cpuinfo")
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16", "sme"})
"""What Linux calls the instructions for bfloat16 on x86 and ARM."""


def cpu_computes_bf16() -> bool | None:
    """Return whether the processor has instructions for bfloat16; None if that is unknown."""
    torch = require("torch", "train", "a torch model")
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # private, and absent from other versions
    asked = [bool(check()) for name in names if (check := getattr(torch.cpu, name, None)) is not None]
    if any(asked):
        return True
    try:
        lines = CPU_INFO.read_text(errors="replace").splitlines()
    except OSError:
        return None
    flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), None)
    return None if flags is None else bool(BF16_FLAGS & set(flags.partition(":")[2].split()))


def slow_bf16(device: torch.device) -> str | None:
    """Return a note for users of bf16 on a processor that has to emulate it; None if there is nothing to say."""
    if device.type != CPU or cpu_computes_bf16() is not False:
        return None
    return "bf16: this processor has no instructions for it (such as AVX512-BF16 or AMX) and is faster with fp32"


def set_torch_threads(threads: int | None) -> None:
    """Limit the threads of torch in this process; None leaves them as they are."""
    if check_threads(threads) is not None:
        require("torch", "train", "a torch model").set_num_threads(threads)


def _parse(name: str) -> tuple[str, int | None]:
    """Return the kind and the number of a device."""
    kind, colon, number = str(name).partition(":")
    if kind not in DEVICES:
        raise DeviceError(unknown_choice("device", name, DEVICES))
    if not colon:
        return kind, None
    numbered = [each for each, provider in PROVIDERS.items() if provider.numbered]
    if kind not in numbered or re.fullmatch(r"[0-9]{1,3}", number) is None:
        raise DeviceError(f"device {name!r}: expected a number after one of {', '.join(numbered)}, as in 'cuda:1'")
    return kind, int(number)


def _loaded(kind: str, number: int | None, threads: int | None) -> OnnxDevice:
    """Return a provider after checking that it loads."""
    import onnxruntime

    name = kind if number is None else f"{kind}:{number}"
    wanted = PROVIDERS[kind]
    available = onnxruntime.get_available_providers()
    if wanted.provider not in available:
        raise DeviceError(
            f"device {name!r}: this ONNX Runtime has no {wanted.provider} (it has {', '.join(available)}); install "
            f"{wanted.package}, or use --device cpu"
        )
    options = {} if number is None else {"device_id": str(number)}
    if kind == "openvino" and threads is not None:
        options["num_of_threads"] = str(threads)
    if kind in {"cuda", "tensorrt"} and hasattr(onnxruntime, "preload_dlls"):
        with redirect_stdout(io.StringIO()):  # it prints what it does not find
            onnxruntime.preload_dlls()  # CUDA and cuDNN where pip installs them
    device = OnnxDevice(name, wanted.provider, options)
    onnxruntime.set_default_logger_severity(SILENT)  # the reasons fill several lines; ours is one
    try:
        device.session(_PROBE, onnxruntime.SessionOptions())
    except DeviceError:
        raise
    except Exception as error:  # its errors have no common base
        raise _not_loaded(name) from error
    finally:
        onnxruntime.set_default_logger_severity(QUIET)
    return device


def _not_loaded(name: str) -> DeviceError:
    wanted = PROVIDERS[name.partition(":")[0]]
    return DeviceError(
        f"device {name!r}: ONNX Runtime cannot load its {wanted.provider}, which needs {wanted.needs}; install what "
        "is missing, or use --device cpu"
    )
