"""The Generalized Pooling Operator: a rank pooling with learned coefficients."""

from __future__ import annotations

import functools
import math
from typing import Literal, cast

import torch
from torch import Tensor, nn

from vse.errors import InputError
from vse.pooling.base import RankPooling
from vse.pooling.bigru import PositionGRU
from vse.pooling.kernels.runtime import compiled
from vse.pooling.rank_poolings import share_weights
from vse.pooling.sets import (
    check_width,
    interpolate_knots,
    one_of,
    positive_int,
    positive_number,
    prefix_mask,
    sizes_of,
)
from vse.pooling.sorted_sum import sort_elements

try:
    import numpy as np
except ImportError:  # torch does not require it
    NUMPY = False
else:
    NUMPY = True


class PositionTransformer(nn.Module):
    """A Transformer encoder over the valid positions; it infers the size of the set through attention."""

    def __init__(self, d_in: int, d_hidden: int, *, layers: int = 1, heads: int = 4) -> None:
        super().__init__()
        if d_hidden % heads:
            raise InputError(f"d_hidden must be a multiple of {heads} for decoder='transformer', got {d_hidden}")
        self.input = nn.Identity() if d_in == d_hidden else nn.Linear(d_in, d_hidden)
        layer = nn.TransformerEncoderLayer(
            d_hidden, heads, dim_feedforward=4 * d_hidden, dropout=0.0, batch_first=True, norm_first=False
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, inputs: Tensor, sizes: Tensor) -> Tensor:
        dtype = cast(Tensor, self.encoder.layers[0].linear1.weight).dtype
        valid = prefix_mask(sizes, inputs.shape[-2])
        if not compiled() and not valid.numel():
            return inputs.new_zeros(*valid.shape, self.encoder.layers[0].linear2.out_features)
        sequence = self.input(inputs.to(dtype)).expand(sizes.shape[0], -1, -1)
        states: Tensor = self.encoder(sequence, src_key_padding_mask=~valid)
        return states.masked_fill(~valid.unsqueeze(-1), 0)


class PositionMLP(nn.Module):
    """One hidden layer per position, independent of the size of the set."""

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(d_in, d_hidden)

    def forward(self, inputs: Tensor, sizes: Tensor) -> Tensor:
        states = torch.relu(self.hidden(inputs.to(self.hidden.weight.dtype)))
        return states.expand(sizes.shape[0], -1, -1)


CACHED = 32
"""Number of cached encodings; each tower needs one per batch."""


def sincos_positions(
    count: int,
    width: int = 32,
    *,
    first: int = 0,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return ``(count, width)``: position k gives ``sin(k w_j)`` in dimension 2j and ``cos(k w_j)`` in 2j+1.

    ``w_j = 10000^(-2j / width)``; positions run from ``first`` to ``first + count - 1``. ``width`` must be even.
    """
    if compiled() or (device is not None and torch.device(device).type != "cpu"):
        place = torch.arange(first, first + count, device=device, dtype=dtype).unsqueeze(1)
        exponent = torch.arange(0, width, 2, device=device, dtype=dtype) * (-math.log(10000.0) / width)
        angle = place * exponent.exp()  # (count, width / 2)
        return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)
    # Cache an array, not a tensor: one created in inference mode or as a fake tensor would leak into other modes.
    return torch.tensor(_kept(count, width, first), dtype=dtype, device=device).view(count, width)


@functools.lru_cache(maxsize=CACHED)
def _kept(count: int, width: int, first: int) -> np.ndarray | list[float]:
    if not NUMPY:
        frequencies = [math.exp(j * (-math.log(10000.0) / width)) for j in range(0, width, 2)]
        angles = (k * frequency for k in range(first, first + count) for frequency in frequencies)
        return [value for angle in angles for value in (math.sin(angle), math.cos(angle))]
    place = np.arange(first, first + count)[:, None]
    angle = place * np.exp(np.arange(0, width, 2) * (-math.log(10000.0) / width))
    return np.stack((np.sin(angle), np.cos(angle)), axis=-1).reshape(count, width)


Position = Literal["sincos", "index"]
Decoder = Literal["bigru", "transformer", "mlp", "interpolation"]
Head = Literal["linear", "mlp"]
Start = Literal["random", "average"] | int
START_SHARE = 0.9
"""Of the weight of a GPO with ``start=PERCENT``, on the largest values; the rest is spread over all of them."""
DECODER_MODULES = {"bigru": "gru", "transformer": "transformer", "mlp": "mlp"}
"""Attribute of each decoder; ``gru`` is the name in the released checkpoints."""


class GPO(RankPooling):
    """Weighted sum of the sorted values with learned weights: ``v_d = sum_k theta_k max_k(phi_d)``.

    ``theta = softmax(score / temperature)`` over the valid ranks, ``score_k = w . h_k``, where h are the states of a
    small BiGRU (directions averaged) over the sin/cos encodings of the ranks 0..N-1. Average, max and K-max pooling are
    special cases. 12,704 parameters, named ``gru.*`` and ``linear.weight`` as in the released checkpoints.

    The coefficients depend on the size of a set alone. A batch costs one pass of the GRU per distinct size. Inspect
    them with :meth:`coefficients` and :meth:`table`; :meth:`freeze` returns a module that looks them up in a table.

    Args:
        d_pe: Width of the position encoding (even for sin/cos).
        d_hidden: Width of the decoder.
        temperature: Of the softmax; the released models use 0.1.
        position: ``"sincos"``, or ``"index"`` for a learned embedding of ``max_size`` ranks.
        decoder: ``"bigru"``; ``"transformer"`` (one encoder layer); ``"mlp"`` (each rank independently);
            ``"interpolation"`` (a fixed number of learned scores stretched over the set; no position input).
        head: Maps a state to a score: ``"linear"`` without bias as released, or ``"mlp"`` as described in the paper.
        dim: Feature size D, needed by ``per_dimension`` and ``data_dependent`` only.
        per_dimension: Use separate coefficients for each of the ``dim`` dimensions.
        data_dependent: Also feed the sorted features to the decoder. Coefficients then depend on the values, so
            ``coefficients``, ``table`` and ``freeze`` raise.
        first_position: Number of the first rank, 0 as released or 1 as in the paper.
        max_size: Largest set for ``position="index"``.
        knots: Number of learned scores for ``decoder="interpolation"``.
        start: Initial coefficients: ``"random"`` as released (uneven by chance); ``"average"``, which sets all
            scores to zero so that a new GPO is average pooling; or a percentage from 1 to 100, for a new GPO that gives
            0.9 of its weight to that share of the largest values, at any size, and 0.1 to all of them alike. Its scores
            begin at zero and are added to the logarithm of these weights, for good.
        check_finite: Raise on NaN or inf in the features (otherwise they rank as -inf < numbers < inf < NaN).
        return_coefficients: Return the pair ``(pooled, coefficients)`` from every call, as the authors' module does:
            ``pooled, weights = gpo(features, lengths)``. By default the result is one tensor, and such a line would
            unpack its rows. The poolings of a :class:`~vse.models.VSEModel` need the default.
    """

    start_percent: int | None = None  # of the class: modules that were pickled before it existed lack it

    def __init__(
        self,
        d_pe: int = 32,
        d_hidden: int = 32,
        temperature: float = 0.1,
        *,
        position: Position = "sincos",
        decoder: Decoder = "bigru",
        head: Head = "linear",
        dim: int | None = None,
        per_dimension: bool = False,
        data_dependent: bool = False,
        first_position: int = 0,
        max_size: int = 256,
        knots: int = 20,
        start: Start = "random",
        check_finite: bool = False,
        return_coefficients: bool = False,
    ) -> None:
        super().__init__(check_finite=check_finite, return_coefficients=return_coefficients)
        if isinstance(start, str):
            one_of("start", start, ("random", "average"))
        else:
            self.start_percent = _percent(start)
            if data_dependent:
                raise InputError(
                    f"start={start} sets the coefficients of each set size, and data_dependent=True has none: use "
                    'start="average"'
                )
        if (per_dimension or data_dependent) and dim is None:
            raise InputError("per_dimension and data_dependent need the feature size: GPO(dim=1024, ...)")
        self.temperature = positive_number("temperature", temperature)
        self.position = one_of("position", position, ("sincos", "index"))
        self.decoder = one_of("decoder", decoder, ("bigru", "transformer", "mlp", "interpolation"))
        one_of("head", head, ("linear", "mlp"))
        self.dim = None if dim is None else positive_int("dim", dim)
        self.per_dimension = per_dimension
        self.data_dependent = data_dependent
        self.first_position = positive_int("first_position", first_position, least=0)
        self.d_pe = positive_int("d_pe", d_pe)
        outputs = dim if per_dimension and dim is not None else 1
        if decoder == "interpolation":
            if data_dependent:
                raise InputError("decoder='interpolation' has no input that features could be fed to")
            self.knots = nn.Parameter(torch.zeros(positive_int("knots", knots, least=2), outputs))
            return
        if position == "index":
            self.embedding = nn.Embedding(positive_int("max_size", max_size), d_pe)
        elif d_pe % 2:
            raise InputError(f"d_pe must be even for position='sincos', got {d_pe}")
        d_in = d_pe + (dim if data_dependent and dim is not None else 0)
        positive_int("d_hidden", d_hidden)
        if decoder == "bigru":
            self.gru = PositionGRU(d_in, d_hidden)
        elif decoder == "transformer":
            self.transformer = PositionTransformer(d_in, d_hidden)
        else:
            self.mlp = PositionMLP(d_in, d_hidden)
        if head == "linear":
            self.linear: nn.Module = nn.Linear(d_hidden, outputs, bias=False)
        else:
            self.linear = nn.Sequential(nn.Linear(d_hidden, d_hidden), nn.ReLU(), nn.Linear(d_hidden, outputs))
        if start != "random":
            self.begin_as_average()

    def begin_as_average(self) -> None:
        """Reset all scores to zero, which makes this average pooling, or the share that it starts at."""
        if self.decoder == "interpolation":
            with torch.no_grad():
                self.knots.zero_()
            return
        last = (
            self.linear if isinstance(self.linear, nn.Linear) else cast(nn.Linear, cast(nn.Sequential, self.linear)[-1])
        )
        with torch.no_grad():
            for parameter in last.parameters():
                parameter.zero_()

    def size_coefficients(self, sizes: Tensor, total: int, dtype: torch.dtype | None = None) -> Tensor:
        if self.data_dependent:
            raise InputError(
                "a data-dependent GPO has no coefficients per size, they depend on the features: "
                "call it with return_coefficients=True"
            )
        if self.decoder == "interpolation":
            scores = interpolate_knots(self.knots, sizes, total)  # (U, N, 1 or D)
        else:
            scores = self._scores(self._positions(total, sizes.device), sizes)
        return self._softmax(scores, sizes)

    def pool_with_coefficients(self, features: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.dim is not None:
            check_width(features, self.dim, type(self).__name__)
        if not self.data_dependent:
            return super().pool_with_coefficients(features, mask)
        ordered = sort_elements(features, mask)  # (B, N, D)
        sizes = sizes_of(features, mask)
        positions = self._positions(features.shape[1], features.device)
        inputs = torch.cat((positions.expand(features.shape[0], -1, -1), ordered.to(positions.dtype)), dim=-1)
        weights = self._softmax(self._scores(inputs, sizes), sizes)
        per_rank = weights if self.per_dimension else weights.unsqueeze(-1)
        return (ordered * per_rank).sum(dim=1).to(features.dtype), weights

    def _positions(self, total: int, device: torch.device) -> Tensor:
        """Return the encodings of the ranks, ``(total, d_pe)``."""
        if self.position == "sincos":
            dtype = torch.promote_types(self._parameter_dtype(), torch.float32)
            return sincos_positions(total, self.d_pe, first=self.first_position, device=device, dtype=dtype)
        if total > self.embedding.num_embeddings:
            raise InputError(
                f"a set of {total} elements is larger than max_size={self.embedding.num_embeddings} "
                "of this position='index' GPO; build it with a larger max_size"
            )
        return self.embedding.weight[:total]

    def _scores(self, inputs: Tensor, sizes: Tensor) -> Tensor:
        """Return ``(U, N, 1 or D)`` from position inputs; without autocast, because the softmax is sharp."""
        decoder: nn.Module = getattr(self, DECODER_MODULES[self.decoder])
        if not torch.is_autocast_enabled(inputs.device.type):
            return self._apply_head(decoder(inputs, sizes))  # (U, N, H) to scores
        with torch.autocast(inputs.device.type, enabled=False):
            return self._apply_head(decoder(inputs, sizes))

    def _apply_head(self, states: Tensor) -> Tensor:
        scores: Tensor
        if isinstance(self.linear, nn.Linear):
            scores = states @ self.linear.weight.to(states.dtype).T
        else:
            scores = self.linear(states.to(self._parameter_dtype()))
        return scores

    def _softmax(self, scores: Tensor, sizes: Tensor) -> Tensor:
        dtype = torch.promote_types(scores.dtype, torch.float32)
        scaled = scores.to(dtype) / self.temperature
        if self.start_percent is not None:
            largest = share_weights(sizes, scores.shape[1], self.start_percent, dtype)  # (U, N)
            begin = START_SHARE * largest + (1 - START_SHARE) / sizes.unsqueeze(1).to(dtype)
            scaled = scaled + begin.log().unsqueeze(-1)
        # A single full set needs no mask; check only where reading the size is free.
        readable = sizes.is_cpu and type(sizes) is Tensor and not compiled()
        if not (readable and sizes.shape[0] == 1 and int(sizes) == scores.shape[1]):
            beyond = ~prefix_mask(sizes, scores.shape[1]).unsqueeze(-1)
            scaled = scaled.masked_fill(beyond, float("-inf"))
        weights = scaled.softmax(dim=1)
        return weights if self.per_dimension else weights.squeeze(-1)

    def _parameter_dtype(self) -> torch.dtype:
        if isinstance(self.linear, nn.Linear):
            return self.linear.weight.dtype
        return cast(nn.Linear, cast(nn.Sequential, self.linear)[0]).weight.dtype

    def extra_repr(self) -> str:
        start = "" if self.start_percent is None else f", start={self.start_percent}"
        return f"position={self.position!r}, decoder={self.decoder!r}, temperature={self.temperature}{start}"


def _percent(start: int) -> int:
    if isinstance(start, bool) or not isinstance(start, int) or not 1 <= start <= 100:
        raise InputError(f'start must be "random", "average" or a percentage from 1 to 100, got {start!r}')
    return start
