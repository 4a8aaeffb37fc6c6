"""The paper's tab:gpo_per_dim: coefficients shared by all dimensions, or each its own."""

from vse.experiments.tables.gpo_variants import run_per_dimension as run

__all__ = ["run"]
