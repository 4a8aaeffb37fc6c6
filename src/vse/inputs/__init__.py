"""From a file or a text to what a model takes: one path, for training and for search, without torch.

>>> from vse.inputs import Vocabulary, imagenet, load_pixels
>>> pixels = load_pixels("photo.jpg", imagenet(512))  # doctest: +SKIP
>>> batch = Vocabulary.build(["a dog runs"], min_count=1).tokenizer().encode(["a cat runs"])
>>> batch.tokens
array([[1, 4, 3, 6, 2]])

A name is loaded when it is asked for: a search for a text needs no library for pictures.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vse.inputs.images import BadImageError, ImageLimits, ImageSource, read_image
    from vse.inputs.preprocessing import ImagePreprocessing, butd, efficientnet_lite, imagenet, load_pixels, prepare
    from vse.inputs.resizing import Method, resize
    from vse.inputs.text import split_words, words_of
    from vse.inputs.tokenizer import SpecialIds, TextTokenizer, TokenBatch
    from vse.inputs.vocabulary import Vocabulary

__all__ = [
    "BadImageError",
    "ImageLimits",
    "ImagePreprocessing",
    "ImageSource",
    "Method",
    "SpecialIds",
    "TextTokenizer",
    "TokenBatch",
    "Vocabulary",
    "butd",
    "efficientnet_lite",
    "imagenet",
    "load_pixels",
    "prepare",
    "read_image",
    "resize",
    "split_words",
    "words_of",
]

_MODULES = {
    "images": ("BadImageError", "ImageLimits", "ImageSource", "read_image"),
    "preprocessing": ("ImagePreprocessing", "butd", "efficientnet_lite", "imagenet", "load_pixels", "prepare"),
    "resizing": ("Method", "resize"),
    "tokenizer": ("SpecialIds", "TextTokenizer", "TokenBatch"),
    "vocabulary": ("Vocabulary",),
    "text": ("split_words", "words_of"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
