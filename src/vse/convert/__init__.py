"""Convert checkpoints of the released code to models, and models to ONNX."""

from typing import TYPE_CHECKING

from vse._util.lazy import lazy_names

if TYPE_CHECKING:
    from vse.convert.official import load_official
    from vse.convert.onnx_export import ExportReport, export_onnx
    from vse.convert.pull import PullReport, pull_model

__all__ = [
    "ExportReport",
    "PullReport",
    "export_onnx",
    "load_official",
    "pull_model",
]

__getattr__ = lazy_names(
    __name__,
    {
        "official": ("load_official",),
        "onnx_export": ("ExportReport", "export_onnx"),
        "pull": ("PullReport", "pull_model"),
    },
)
