"""Compiled CPU kernels for pooling; each has a reference implementation in plain torch."""
