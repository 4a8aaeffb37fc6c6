"""Models: configuration, the torch model, storage, ONNX, loading, and what describes a model."""
