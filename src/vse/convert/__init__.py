"""Into and out of our format: the authors' checkpoints to ours, ours to ONNX."""

from vse.convert.official import load_official

__all__ = ["load_official"]
