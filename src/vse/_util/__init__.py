"""Internals that every package may use: atomic writes, locks, worker processes, strict parsing."""
