"""Pool sets of features, above all with the Generalized Pooling Operator (GPO).

>>> import torch
>>> from vse.pooling import GPO
>>> pool = GPO()
>>> features, lengths = torch.randn(4, 36, 1024), torch.tensor([36, 10, 20, 1])
>>> pool(features, lengths=lengths).shape
torch.Size([4, 1024])

:mod:`vse.pooling.functional` has the functions on batches of sets that encoders build on.
"""

from vse.errors import require

require("torch", extra="pooling", purpose="vse.pooling")

from vse.pooling.aggregators import (  # noqa: E402
    GraphPool,
    Seq2SeqPool,
)
from vse.pooling.base import Pooling, RankPooling  # noqa: E402
from vse.pooling.frozen import FrozenPooling  # noqa: E402
from vse.pooling.functional import SizeAugmentation, drop_elements  # noqa: E402
from vse.pooling.gpo import GPO  # noqa: E402
from vse.pooling.learned_poolings import (  # noqa: E402
    FSPool,
    GeMPool,
    SelfAttentionPool,
)
from vse.pooling.plot import plot_coefficients  # noqa: E402
from vse.pooling.rank_poolings import (  # noqa: E402
    AvgPool,
    FirstTokenPool,
    KMaxPool,
    LinearDecayPool,
    MaxPool,
    TopPercentPool,
)
from vse.pooling.registry import create_pooling, list_poolings, pooling_builder  # noqa: E402
from vse.pooling.sorted_sum import sorted_weighted_sum  # noqa: E402

__all__ = [
    "GPO",
    "AvgPool",
    "FSPool",
    "FirstTokenPool",
    "FrozenPooling",
    "GeMPool",
    "GraphPool",
    "KMaxPool",
    "LinearDecayPool",
    "MaxPool",
    "Pooling",
    "RankPooling",
    "SelfAttentionPool",
    "Seq2SeqPool",
    "SizeAugmentation",
    "TopPercentPool",
    "create_pooling",
    "drop_elements",
    "list_poolings",
    "plot_coefficients",
    "pooling_builder",
    "sorted_weighted_sum",
]
