"""Prepare images, videos and texts for a model, without torch; the same code for training and search.

>>> from vse.inputs import Vocabulary, imagenet, load_pixels
>>> pixels = load_pixels("photo.jpg", imagenet(512))  # doctest: +SKIP
>>> batch = Vocabulary.build(["a dog runs"], min_count=1).tokenizer().encode(["a cat runs"])
>>> batch.tokens
array([[1, 4, 3, 6, 2]])

Names are imported on first access: a text query loads no image library.
"""

from typing import TYPE_CHECKING

from vse._util.lazy import lazy_names

if TYPE_CHECKING:
    from vse.inputs.files import BadMediaError
    from vse.inputs.images import BadImageError, ImageLimits, ImageSource, read_image
    from vse.inputs.preprocessing import ImagePreprocessing, butd, efficientnet_lite, imagenet, load_pixels, prepare
    from vse.inputs.resizing import Method, resize
    from vse.inputs.text import split_words, words_of
    from vse.inputs.tokenizer import SpecialIds, TextTokenizer, TokenBatch
    from vse.inputs.video.file import VideoLimits, open_video
    from vse.inputs.vocabulary import Vocabulary

__all__ = [
    "BadImageError",
    "BadMediaError",
    "ImageLimits",
    "ImagePreprocessing",
    "ImageSource",
    "Method",
    "SpecialIds",
    "TextTokenizer",
    "TokenBatch",
    "VideoLimits",
    "Vocabulary",
    "butd",
    "efficientnet_lite",
    "imagenet",
    "load_pixels",
    "open_video",
    "prepare",
    "read_image",
    "resize",
    "split_words",
    "words_of",
]

__getattr__ = lazy_names(
    __name__,
    {
        "files": ("BadMediaError",),
        "images": ("BadImageError", "ImageLimits", "ImageSource", "read_image"),
        "preprocessing": ("ImagePreprocessing", "butd", "efficientnet_lite", "imagenet", "load_pixels", "prepare"),
        "resizing": ("Method", "resize"),
        "text": ("split_words", "words_of"),
        "tokenizer": ("SpecialIds", "TextTokenizer", "TokenBatch"),
        "video.file": ("VideoLimits", "open_video"),
        "vocabulary": ("Vocabulary",),
    },
)
