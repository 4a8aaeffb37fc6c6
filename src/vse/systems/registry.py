"""The systems of two towers by name: which towers and losses each has, and how they are built.

``vsrn``   graph reasoning over regions, captions generated from them
``liwe``   words from characters
``de``     plain towers, softmax over the batch
``cvse``   instance and consensus levels over a graph of concepts
``sco``    concepts of regions gated with the context, captions generated from both
``gxn``    abstract and grounded features, which generate captions and imagine images
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vse.encoders.text import BiGRUEncoder
from vse.errors import InputError
from vse.models.system_config import CVSEConfig, GXNConfig, SCOConfig, SystemConfig, VSRNConfig
from vse.systems.auxiliary import Auxiliary, ConceptsAndOrder, ConsensusLevels, Imagination, Reasoning
from vse.systems.concepts import Concepts
from vse.systems.readouts import ConceptGraph, Consensus, ConsensusTextEncoder, GatedConcepts, TwoLevels

if TYPE_CHECKING:
    from vse.models.config import ModelConfig

REGIONS = ("region", "grid")
WHOLE_WORDS = ("bigru", "gru")


@dataclass(frozen=True)
class System:
    """What a system requires of the towers, and the losses that it adds.

    Attributes:
        title: as in papers.
        images: kinds of image towers that it takes; empty for any.
        texts: kinds of text towers that it takes; empty for any.
        image_pooling: the pooling that its image tower needs; None for any.
        text_pooling: the same for texts.
        objective: the only objective that it is trained with; None for any.
        losses: auxiliary losses and their default weights.
        generates: whether it generates the caption of each pair in training.
        untraceable: why it cannot be exported to ONNX; None if it can.
    """

    title: str
    images: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    image_pooling: str | None = None
    text_pooling: str | None = None
    objective: str | None = None
    losses: Mapping[str, float] | None = None
    generates: bool = False
    untraceable: str | None = None

    @property
    def weights(self) -> Mapping[str, float]:
        """The auxiliary losses and their default weights."""
        return self.losses or {}


SYSTEMS: dict[str, System] = {
    "vsrn": System(
        "VSRN",
        images=REGIONS,
        texts=WHOLE_WORDS,
        image_pooling="gcn-seq2seq",
        losses=Reasoning.weights,
        generates=True,
    ),
    "liwe": System(
        "LIWE",
        texts=("characters",),
        untraceable="the number of words depends on the characters of a text, which torch's exporter cannot trace",
    ),
    "de": System("DE", objective="contrastive"),
    "cvse": System(
        "CVSE",
        images=REGIONS,
        texts=("bigru",),
        image_pooling="avg",
        text_pooling="avg",
        losses=ConsensusLevels.weights,
        untraceable="its text tower reads the concepts of the tokens beside their states",
    ),
    "sco": System("SCO", images=REGIONS, texts=WHOLE_WORDS, losses=ConceptsAndOrder.weights, generates=True),
    "gxn": System("GXN", images=REGIONS, texts=WHOLE_WORDS, losses=Imagination.weights, generates=True),
}


DIFFERENCES = {
    "vsrn": "Formulas of the released code on COCO, its caption loss on padding included. Regions may be of any "
    "number, captions are whole, and the paper's figures are of two models averaged.",
    "liwe": "Characters, layers and loss of the released code, with Adam in place of Adamax, no warm-up, and the "
    "marks of start and end as words. The figures that the VSE∞ paper cites are of LIWE+GloVe, which this"
    " is not.",
    "de": "The idea of the paper with towers of this package, pairs of image and caption alone, and a "
    "temperature of our own; not compared with released code.",
    "cvse": "The released code without its batch norms, GloVe vectors and the labels completed from the test "
    "split. Concept labels are those of each caption alone, and the rate of the graph decays as the rest.",
    "sco": "The idea of the paper: concepts are trained with the rest, from the caption at hand, and GRUs take "
    "the place of LSTMs; no code was released.",
    "gxn": "The idea of the paper: features in place of pixels, cross-entropy in place of rewards, one text "
    "encoder, cosines, and one training step for all parts; not compared with released code.",
    "scan": "Formulas of the released code, whose attention keeps 0.1 of negative similarities where the paper "
    "keeps none (option slope). Captions of one image are no negatives of each other.",
    "imram": "Formulas of the released code without the last update, which it does not use. The paper's mode is "
    "full with K = 3; the released scripts train words or regions alone.",
    "caan": "The formulas follow the abstract and summaries by others; no code was released. The cosine, the "
    "width of Q, the scaling of affinities and the start of K are ours.",
}
"""In what each system differs from its released code or, without code, from its paper; for model cards and the docs."""


def check_towers(system: SystemConfig, image: Any, text: Any) -> None:
    """Raise ValueError if the towers of a recipe or configuration do not go with a system."""
    known = SYSTEMS[system.name]
    for side, config, kinds, pooling in (
        ("image", image, known.images, known.image_pooling),
        ("text", text, known.texts, known.text_pooling),
    ):
        if kinds and config.kind not in kinds:
            raise ValueError(
                f'system "{system.name}" does not go with {side}.kind "{config.kind}": expected '
                f"{' or '.join(map(repr, kinds))}"
            )
        found = getattr(config, "pooling", None)
        if pooling is not None and found is not None and found.name != pooling:
            raise ValueError(f'system "{system.name}" needs {side}.pooling "{pooling}", got "{found.name}"')


def check_recipe(system: SystemConfig, recipe: Any) -> None:
    """Raise ValueError if the loss or augmentation of a recipe does not go with its system."""
    known = SYSTEMS[system.name]
    if known.objective is not None and recipe.loss.objective != known.objective:
        raise ValueError(
            f'loss.objective is "{recipe.loss.objective}", and model.system "{system.name}" is trained with '
            f'"{known.objective}"'
        )
    if known.generates and recipe.augmentation.text != "none":
        raise ValueError(
            f'augmentation.text "{recipe.augmentation.text}" would teach model.system "{system.name}" to generate '
            'captions that lack words: set it to "none"'
        )
    if known.losses and recipe.run.compile:
        raise ValueError(f'run.compile is not for model.system "{system.name}": its losses take parts of the towers')


def equip(config: ModelConfig, image_encoder: Any, text_encoder: Any) -> None:
    """Replace the poolings of two encoders by the readouts of the configured system; plain towers stay as they are."""
    system, size = config.system, config.embed_size
    if system is None:
        return
    try:
        check_towers(system, config.image, config.text)
    except ValueError as error:
        raise InputError(str(error)) from None
    if isinstance(system, SCOConfig):
        image_encoder.pooling = GatedConcepts(image_encoder.pooling, size, _count(system))
    elif isinstance(system, GXNConfig):
        if size < 2:
            raise InputError(f"embed_size is {size}, and GXN splits it in two: set it to 2 or more")
        for encoder in (image_encoder, text_encoder):
            encoder.pooling = TwoLevels(encoder.pooling, size, system.balance)
    elif isinstance(system, CVSEConfig):
        vocabulary = text_encoder.embed.num_embeddings
        graph = ConceptGraph(_count(system), system.concept_size, size, vocabulary)
        own = {"label_share", "fusion", "training_fusion", "consensus_share", "sharpness", "dropout"}
        options = system.model_dump(include=own)
        image_encoder.pooling = Consensus(image_encoder.pooling, graph, size, text=False, **options)
        text_encoder.pooling = Consensus(text_encoder.pooling, graph, size, text=True, **options)


def text_encoder_class(system: SystemConfig | None) -> type[BiGRUEncoder]:
    """Return the class of a BiGRU text tower in a system."""
    return ConsensusTextEncoder if isinstance(system, CVSEConfig) else BiGRUEncoder


def build_auxiliary(config: ModelConfig) -> Auxiliary | None:
    """Return what the configured system needs in training beside its towers; None if that is nothing."""
    system, size = config.system, config.embed_size
    if system is None or not SYSTEMS[system.name].losses:
        return None
    vocabulary = int(getattr(config.text, "vocabulary_size", 0))
    if isinstance(system, VSRNConfig):
        return Reasoning(system, size, vocabulary)
    if isinstance(system, SCOConfig):
        return ConceptsAndOrder(system, size, vocabulary)
    return Imagination(system, size, vocabulary) if isinstance(system, GXNConfig) else ConsensusLevels()


def fill_concepts(image_encoder: Any, auxiliary: Any, concepts: Concepts) -> None:
    """Give the concepts of the training captions to the parts of a system that need them."""
    if isinstance(auxiliary, ConceptsAndOrder):
        auxiliary.fill(concepts)
    if isinstance(image_encoder.pooling, Consensus):
        image_encoder.pooling.graph.fill(concepts)


def _count(system: CVSEConfig | SCOConfig) -> int:
    return len(system.words) or system.concepts
