"""The paper's tab:gpo_data_dep: coefficients from ranks alone, or from the features too."""

from vse.experiments.tables.gpo_variants import run_data_dependent as run

__all__ = ["run"]
