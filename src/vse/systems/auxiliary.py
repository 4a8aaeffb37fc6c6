"""What systems compute in training beside the scores: generated captions, concepts, imagined images.

An :class:`Auxiliary` encodes both sides of a batch once and adds tensors to them whose row i belongs to pair i, so that
they are split into micro batches and gathered from processes as embeddings are. Its own parameters are trained and are
part of checkpoints and saved models; inference does not load them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, normalize, softplus

from vse.encoders.functional import unit_norm
from vse.errors import InputError
from vse.models.system_config import DecoderConfig, GXNConfig, SCOConfig, VSRNConfig
from vse.pooling.functional import compact, prefix_mask
from vse.systems.concepts import Concepts
from vse.systems.readouts import concept_labels
from vse.systems.text import run_packed

Side = tuple[Tensor, ...]
Inputs = Mapping[str, Tensor | None]
Reduction = Literal["sum", "mean"]
PAD = 0  # the id of <pad>


class CaptionDecoder(nn.Module):
    """Generate a caption from a set of vectors: a GRU reads the set, and a GRU with attention over it writes.

    ``forward`` returns ``-Σ_t log p(w_t | w_<t, set)`` of each caption, ``(B, 1)``, with the true words as inputs. With
    ``score_padding`` the sum goes on to one ``<pad>`` after the last token.
    """

    def __init__(
        self, features: int, vocabulary_size: int, config: DecoderConfig, *, score_padding: bool = False
    ) -> None:
        super().__init__()
        self.score_padding = score_padding
        hidden = config.hidden_size
        self.reduce = nn.Linear(features, hidden)
        nn.init.xavier_normal_(self.reduce.weight)
        self.reader = nn.GRU(hidden, hidden, batch_first=True)
        self.embed = nn.Embedding(vocabulary_size, config.word_size)
        self.key, self.query = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden, bias=False)
        self.energy = nn.Linear(hidden, 1, bias=False)
        self.writer = nn.GRUCell(config.word_size + hidden, hidden)
        self.out = nn.Linear(hidden, vocabulary_size)
        nn.init.xavier_normal_(self.out.weight)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, elements: Tensor, mask: Tensor | None, tokens: Tensor, lengths: Tensor) -> Tensor:
        if self.score_padding:
            beyond = torch.arange(tokens.shape[1] + 1, device=tokens.device) >= lengths.unsqueeze(1)
            tokens = torch.cat((tokens, tokens[:, :1]), 1).masked_fill(beyond, PAD)
            lengths = lengths + 1
        order = lengths.argsort(descending=True, stable=True)  # the captions that go on are always the first rows
        elements, sizes = compact(elements, mask)
        elements, sizes, tokens = elements[order], sizes[order], tokens[order]
        inside = prefix_mask(sizes, elements.shape[1])
        states = run_packed(self.reader, self.dropout(self.reduce(elements)), sizes)  # (B, N, H)
        state = states.gather(1, (sizes - 1).view(-1, 1, 1).expand(-1, 1, states.shape[2])).squeeze(1)
        keys, words = self.key(states), self.embed(tokens)
        later = torch.arange(1, tokens.shape[1], device=tokens.device).unsqueeze(1)
        going = [count for count in (lengths > later).sum(1).tolist() if count]  # captions with a word to come
        if not going:
            return elements.new_zeros(len(tokens), 1)
        written = []
        for step, count in enumerate(going):
            if count < len(state):
                state, keys, states, inside = (each[:count] for each in (state, keys, states, inside))
            energy = self.energy((keys + self.query(state).unsqueeze(1)).tanh()).squeeze(2)  # (count, N)
            weights = energy.masked_fill(~inside, -torch.inf).softmax(1)
            context = (weights.unsqueeze(1) @ states).squeeze(1)
            state = self.writer(self.dropout(torch.cat((words[:count, step], context), 1)), state)
            written.append(state)
        following = torch.cat([tokens[:count, step + 1] for step, count in enumerate(going)])
        owners = torch.cat([order[:count] for count in going])
        costs = cross_entropy(self.out(torch.cat(written)), following, reduction="none")
        return costs.new_zeros(len(tokens)).index_add(0, owners, costs).unsqueeze(1)


class Auxiliary(nn.Module):
    """The training forward of a system.

    Attributes:
        weights: the losses by name and their default weights; the weight of the matching loss is 1.
    """

    weights: ClassVar[Mapping[str, float]] = {}

    def sides(self, image_encoder: Any, text_encoder: Any, inputs: Inputs) -> tuple[Side, Side]:
        """Encode both sides; the first tensor of each is the embedding, the others belong to :meth:`losses`."""
        raise NotImplementedError

    def losses(
        self, images: Side, texts: Side, match: Callable[[Tensor], Tensor], reduction: Reduction
    ) -> dict[str, Tensor]:
        """Return the losses of the whole batch by name.

        Args:
            images: the image side of all pairs.
            texts: their text side.
            match: the matching loss of scores ``(B, B)``.
            reduction: of the matching loss.
        """
        return {name: rows.mean() for name, rows in zip(self.weights, images[1:], strict=True)}


class Reasoning(Auxiliary):
    """VSRN: captions are generated from the regions after graph reasoning."""

    weights: ClassVar[Mapping[str, float]] = {"caption": 1.0}

    def __init__(self, config: VSRNConfig, size: int, vocabulary_size: int) -> None:
        super().__init__()
        self.decoder = CaptionDecoder(size, vocabulary_size, config.decoder, score_padding=config.score_padding)

    def sides(self, image_encoder: Any, text_encoder: Any, inputs: Inputs) -> tuple[Side, Side]:
        elements, mask = _elements(image_encoder, inputs)
        pooling = image_encoder.pooling
        reasoned = pooling.relate(elements, mask)
        image = unit_norm(pooling.read_out(reasoned, mask))
        caption = self.decoder(reasoned, mask, *_tokens(inputs))
        return (image, caption), (_text(text_encoder, inputs),)


class ConceptsAndOrder(Auxiliary):
    """SCO: the concepts of the caption are recognised in the regions, and the caption is generated from the image."""

    weights: ClassVar[Mapping[str, float]] = {"caption": 1.0, "concepts": 1.0}
    of_token: Tensor

    def __init__(self, config: SCOConfig, size: int, vocabulary_size: int) -> None:
        super().__init__()
        self.count = len(config.words) or config.concepts
        self.register_buffer("of_token", torch.full((vocabulary_size,), -1, dtype=torch.int64))
        self.decoder = CaptionDecoder(size, vocabulary_size, config.decoder)

    def fill(self, concepts: Concepts) -> None:
        """Set the concepts of tokens."""
        self.of_token.copy_(torch.from_numpy(concepts.of_token))

    def sides(self, image_encoder: Any, text_encoder: Any, inputs: Inputs) -> tuple[Side, Side]:
        tokens, lengths = _tokens(inputs)
        fused, logits = image_encoder.pooling.parts(*_elements(image_encoder, inputs))
        caption = self.decoder(fused.unsqueeze(1), None, tokens, lengths)
        labels = concept_labels(self.of_token, self.count, tokens, prefix_mask(lengths, tokens.shape[1]))
        costs = binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none")
        return (unit_norm(fused), caption, costs.sum(1, keepdim=True)), (_text(text_encoder, inputs),)


class _Reversed(torch.autograd.Function):
    """The identity, whose gradient has the opposite sign."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


class Imagination(Auxiliary):
    """GXN: grounded image features write the caption, and grounded text features imagine the image.

    The image is imagined as a feature vector ``G(g, z)``. A discriminator D sees real or imagined features with the
    text; one step trains both, since the gradient of ``softplus(-D(real)) + softplus(D(G))`` is reversed before G. The
    real features are the mean of the projected elements, without gradients.
    """

    weights: ClassVar[Mapping[str, float]] = {"caption": 1.0, "adversarial": 1.0}

    def __init__(self, config: GXNConfig, size: int, vocabulary_size: int) -> None:
        super().__init__()
        grounded, hidden = size // 2, config.generator_size
        self.noise_size = config.noise_size
        self.decoder = CaptionDecoder(grounded, vocabulary_size, config.decoder)
        self.generator = _two_layers(grounded + config.noise_size, hidden, size)
        self.discriminator = _two_layers(grounded + size, hidden, 1)

    def sides(self, image_encoder: Any, text_encoder: Any, inputs: Inputs) -> tuple[Side, Side]:
        tokens, lengths = _tokens(inputs)
        elements, mask = _elements(image_encoder, inputs)
        image, seen = image_encoder.pooling.parts(elements, mask)
        text, read = text_encoder.pooling.parts(*text_encoder.elements(tokens, lengths))
        caption = self.decoder(seen.unsqueeze(1), None, tokens, lengths)
        rows = elements if mask is None else elements.masked_fill(~mask.unsqueeze(-1), 0)
        real = normalize(rows.sum(1)).detach()  # the direction of the mean
        noise = torch.randn(len(read), self.noise_size, dtype=read.dtype, device=read.device)
        imagined = normalize(self.generator(torch.cat((read, noise), 1)))
        opposed: Any = _Reversed.apply(imagined)  # type: ignore[no-untyped-call]  # torch's
        adversarial = softplus(-self._judge(real, read)) + softplus(self._judge(opposed, read))
        return (unit_norm(image), caption, adversarial), (unit_norm(text),)

    def _judge(self, features: Tensor, read: Tensor) -> Tensor:
        return self.discriminator(torch.cat((features, read.detach()), 1))  # (B, 1)


class ConsensusLevels(Auxiliary):
    """CVSE: instances and consensus are matched too, and both sides predict the same concepts.

    The released weights are 3, 5, 1 and 2 for fused, instance, consensus and ``KL(text ‖ image)``; here they are
    divided by the first.
    """

    weights: ClassVar[Mapping[str, float]] = {"instance": 5 / 3, "consensus": 1 / 3, "concepts": 2 / 3}

    def sides(self, image_encoder: Any, text_encoder: Any, inputs: Inputs) -> tuple[Side, Side]:
        image = image_encoder.pooling.levels(*_elements(image_encoder, inputs))
        text = text_encoder.levels(inputs["tokens"], inputs["text_lengths"])
        divergence = (text.concepts * (text.concepts.log() - image.concepts.log())).sum(1, keepdim=True)
        return (unit_norm(image.fused), image.instance, image.consensus, divergence), (
            unit_norm(text.fused),
            text.instance,
            text.consensus,
        )

    def losses(
        self, images: Side, texts: Side, match: Callable[[Tensor], Tensor], reduction: Reduction
    ) -> dict[str, Tensor]:
        divergence = images[3].sum() if reduction == "sum" else images[3].mean()
        return {
            "instance": match(images[1] @ texts[1].T),
            "consensus": match(images[2] @ texts[2].T),
            "concepts": divergence,
        }


def _two_layers(features: int, hidden: int, size: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(features, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, size))


def _elements(encoder: Any, inputs: Inputs) -> tuple[Tensor, Tensor | None]:
    elements: tuple[Tensor, Tensor | None] = encoder.elements(
        inputs["images"], inputs["image_lengths"], inputs["image_mask"]
    )
    return elements


def _tokens(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Return tokens and their lengths."""
    tokens, lengths = inputs["tokens"], inputs["text_lengths"]
    if tokens is None:
        raise InputError("a batch without tokens has no captions to generate")
    if lengths is None:
        lengths = torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
    return tokens, lengths


def _text(encoder: Any, inputs: Inputs) -> Tensor:
    text: Tensor = encoder(inputs["tokens"], lengths=inputs["text_lengths"])
    return text
