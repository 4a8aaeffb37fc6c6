"""Convert checkpoints of the released code to models, and models to ONNX."""

from typing import TYPE_CHECKING

from vse._util.lazy import lazy_names

if TYPE_CHECKING:
    from vse.convert.official import load_official
    from vse.convert.onnx_export import ExportReport, export_onnx

__all__ = [
    "ExportReport",
    "export_onnx",
    "load_official",
]

__getattr__ = lazy_names(
    __name__,
    {
        "official": ("load_official",),
        "onnx_export": ("ExportReport", "export_onnx"),
    },
)
