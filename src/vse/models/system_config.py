"""The configuration of a named system: what it adds to two plain towers.

A system is written by its name, ``system = "vsrn"``, or as a table with options. No torch.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_serializer

from vse._util.strict import Strict
from vse.errors import unknown_choice

LARGEST = 100_000
LAST = "last"
"""The pooling of a recurrent text encoder: the state of the last token."""
Width = Annotated[int, Field(ge=1, le=LARGEST)]
Share = Annotated[float, Field(ge=0, le=1)]
Dropout = Annotated[float, Field(ge=0, lt=1)]
Words = Annotated[tuple[str, ...], Field(strict=False)]


class DecoderConfig(Strict):
    """The GRU that generates captions in training; the defaults are VSRN's released ones."""

    hidden_size: Width = 512
    word_size: Width = 300
    dropout: Dropout = 0.2


class VSRNConfig(Strict):
    """Visual semantic reasoning: the pooling ``gcn-seq2seq``, and captions generated from the reasoned regions.

    Attributes:
        decoder: the caption decoder.
        score_padding: the caption loss has a term for the padding after ``<end>``, as the released mask does.
    """

    name: Literal["vsrn"] = "vsrn"
    decoder: DecoderConfig = DecoderConfig()
    score_padding: bool = True


class LIWEConfig(Strict):
    """Words from characters: a text tower of kind ``characters``."""

    name: Literal["liwe"] = "liwe"


class DEConfig(Strict):
    """The dual encoder of Crisscrossed Captions: plain towers and a softmax over the batch."""

    name: Literal["de"] = "de"


class CVSEConfig(Strict):
    """Consensus: both sides also as mixtures of concepts, which a graph network embeds.

    Attributes:
        concepts: how many words of the training captions are concepts.
        words: the concepts themselves; a recipe may list them, a saved model does.
        concept_size: width of a concept before the graph network.
        label_share: weight of a caption's own concepts against predicted ones.
        fusion: weight of the instance level in the embedding.
        training_fusion: the same in training; ``fusion`` if None.
        consensus_share: weight of the cosine of the consensus level in the score, beside that of the fused level. Above
            0 an embedding has twice ``embed_size`` dimensions outside training: both levels, scaled.
        sharpness: factor of the logits of concepts.
        dropout: of word embeddings, and inside the attention over regions and words.
    """

    name: Literal["cvse"] = "cvse"
    concepts: Width = 300
    words: Words = ()
    concept_size: Width = 300
    label_share: Share = 0.4
    fusion: Share = 0.75
    training_fusion: Share | None = None
    consensus_share: Share = 0.0
    sharpness: Annotated[float, Field(gt=0, le=1000)] = 10.0
    dropout: Dropout = 0.4

    @model_serializer(mode="wrap")
    def _without_absent(self, write: Any) -> dict[str, Any]:
        """Leave a ``consensus_share`` of 0 out, so that fingerprints of models without it stay as they were."""
        plain: dict[str, Any] = write(self)
        return {key: value for key, value in plain.items() if key != "consensus_share" or value}


class SCOConfig(Strict):
    """Concepts of regions gated with the global context, and a decoder that learns the order of words."""

    name: Literal["sco"] = "sco"
    concepts: Width = 256
    words: Words = ()
    decoder: DecoderConfig = DecoderConfig()


class GXNConfig(Strict):
    """Abstract and grounded features; the grounded ones generate the other side.

    Attributes:
        balance: weight of the abstract features in the score.
        noise_size: width of the noise of the image generator.
        generator_size: hidden width of generator and discriminator.
        decoder: the caption decoder.
    """

    name: Literal["gxn"] = "gxn"
    balance: Annotated[float, Field(gt=0, lt=1)] = 0.5
    noise_size: Width = 100
    generator_size: Width = 512
    decoder: DecoderConfig = DecoderConfig()


NAMES = ("vsrn", "liwe", "de", "cvse", "sco", "gxn")


def _named(value: Any) -> Any:
    """Accept a name for a table; say which systems there are."""
    if isinstance(value, str):
        value = {"name": value}
    if isinstance(value, dict) and value.get("name") not in NAMES:
        raise ValueError(unknown_choice("system", value.get("name", ""), NAMES))
    return value


_Systems: TypeAlias = VSRNConfig | LIWEConfig | DEConfig | CVSEConfig | SCOConfig | GXNConfig
SystemConfig = Annotated[Annotated[_Systems, Field(discriminator="name")], BeforeValidator(_named)]
DECODING = (VSRNConfig, SCOConfig, GXNConfig)
"""Systems that generate captions in training."""
CONCEPTUAL = (CVSEConfig, SCOConfig)
"""Systems with concepts of the training captions."""
READING_OUT = (CVSEConfig, SCOConfig, GXNConfig)
"""Systems whose image embedding is no weighted sum of elements, whatever the pooling inside."""
