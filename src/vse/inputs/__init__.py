"""From a file or a text to what a model takes: one path, for training and for search, without torch.

>>> from vse.inputs import Vocabulary, imagenet, load_pixels
>>> pixels = load_pixels("photo.jpg", imagenet(512))  # doctest: +SKIP
>>> batch = Vocabulary.build(["a dog runs"], min_count=1).tokenizer().encode(["a cat runs"])
>>> batch.tokens
array([[1, 4, 3, 6, 2]])
"""

from vse.inputs.images import BadImageError, ImageLimits, ImageSource, read_image
from vse.inputs.preprocessing import ImagePreprocessing, butd, efficientnet_lite, imagenet, load_pixels, prepare
from vse.inputs.resize import Method, resize
from vse.inputs.tokenizer import SpecialIds, TextTokenizer, TokenBatch
from vse.inputs.vocabulary import Vocabulary
from vse.inputs.words import split_words, words_of

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
