"""Not in the paper: coefficients that begin at random, as released, or as the average."""

from vse.experiments.tables.gpo_variants import run_start as run

__all__ = ["run"]
