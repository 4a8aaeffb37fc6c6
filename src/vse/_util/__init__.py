"""Internal helpers for every package: atomic writes, locks, worker processes, strict parsing."""
