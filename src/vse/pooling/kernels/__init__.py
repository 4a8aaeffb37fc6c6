"""Compiled CPU kernels of the pooling library; every one has a plain torch twin that defines its result."""
