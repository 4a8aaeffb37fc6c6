"""The paper's tab:gpo_rnn: BiGRU or Transformer inside GPO."""

from vse.experiments.tables.gpo_variants import run_sequence_model as run

__all__ = ["run"]
