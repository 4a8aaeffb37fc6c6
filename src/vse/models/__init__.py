"""Models: configuration, loading, saving, encoding and model cards.

Names are imported on first access, so that an exported model runs without torch.

>>> from vse.inputs import Vocabulary
>>> from vse.models import BiGRUConfig, ModelConfig, RegionConfig, VSEModel
>>> words = Vocabulary.build(["a dog runs in the snow"], min_count=1)
>>> config = ModelConfig(image=RegionConfig(), text=BiGRUConfig(vocabulary_size=len(words)))
>>> VSEModel.build(config, words.tokenizer()).encode_texts(["a dog"]).shape
(1, 1024)
"""

from typing import TYPE_CHECKING

from vse._util.lazy import lazy_names

if TYPE_CHECKING:
    from vse.models.card import save_with_card, write_card
    from vse.models.coefficients import Coefficients, coefficients_of, is_foreign
    from vse.models.config import (
        About,
        BackboneConfig,
        BiGRUConfig,
        FrameBackboneConfig,
        FramesConfig,
        GridConfig,
        HGRConfig,
        ModelConfig,
        PluginTextConfig,
        PoolingConfig,
        RegionConfig,
        Score,
        TransformerConfig,
        WordsConfig,
    )
    from vse.models.curves import PoolingCurve, nearest_named, read_curves
    from vse.models.encode import BadImage, BadImageWarning
    from vse.models.hub import push, push_folder
    from vse.models.inspection import ModelReport, inspect_folder
    from vse.models.onnx import OnnxModel
    from vse.models.protocols import AnyModel, Capabilities, EmbeddingModel, PairScorer
    from vse.models.sources import load
    from vse.models.storage import TorchModel, load_model, save_model
    from vse.models.vse_model import VSEModel

__all__ = [
    "About",
    "AnyModel",
    "BackboneConfig",
    "BadImage",
    "BadImageWarning",
    "BiGRUConfig",
    "Capabilities",
    "Coefficients",
    "EmbeddingModel",
    "FrameBackboneConfig",
    "FramesConfig",
    "GridConfig",
    "HGRConfig",
    "ModelConfig",
    "ModelReport",
    "OnnxModel",
    "PairScorer",
    "PluginTextConfig",
    "PoolingConfig",
    "PoolingCurve",
    "RegionConfig",
    "Score",
    "TorchModel",
    "TransformerConfig",
    "VSEModel",
    "WordsConfig",
    "coefficients_of",
    "inspect_folder",
    "is_foreign",
    "load",
    "load_model",
    "nearest_named",
    "push",
    "push_folder",
    "read_curves",
    "save_model",
    "save_with_card",
    "write_card",
]

__getattr__ = lazy_names(
    __name__,
    {
        "card": ("save_with_card", "write_card"),
        "coefficients": ("Coefficients", "coefficients_of", "is_foreign"),
        "config": (
            "About",
            "BackboneConfig",
            "BiGRUConfig",
            "FrameBackboneConfig",
            "FramesConfig",
            "GridConfig",
            "HGRConfig",
            "ModelConfig",
            "PluginTextConfig",
            "PoolingConfig",
            "RegionConfig",
            "Score",
            "TransformerConfig",
            "WordsConfig",
        ),
        "curves": ("PoolingCurve", "nearest_named", "read_curves"),
        "encode": ("BadImage", "BadImageWarning"),
        "hub": ("push", "push_folder"),
        "inspection": ("ModelReport", "inspect_folder"),
        "onnx": ("OnnxModel",),
        "protocols": ("AnyModel", "Capabilities", "EmbeddingModel", "PairScorer"),
        "sources": ("load",),
        "storage": ("TorchModel", "load_model", "save_model"),
        "vse_model": ("VSEModel",),
    },
)
