"""Slow and obvious versions of what vse.inputs computes, sharing no code with it."""

from __future__ import annotations

import math

import numpy as np

TITLES = {"mr", "mrs", "ms", "dr", "prof", "jr", "sr"}
PLACES = {"st", "ave", "blvd", "rd", "mt", "ft"}
OTHERS = {"vs", "etc", "inc", "ltd", "co"}
CLOSING = "])}>\"'»”’"
OPENING = '([{<"“‘«`'


def plain_bilinear(image, size):
    """Four neighbours for every output pixel, weighed by hand."""
    rows, columns = image.shape[:2]
    out = np.zeros((*size, 3))
    for i in range(size[0]):
        for j in range(size[1]):
            y = min(max((i + 0.5) * rows / size[0] - 0.5, 0), rows - 1)
            x = min(max((j + 0.5) * columns / size[1] - 0.5, 0), columns - 1)
            for row in (math.floor(y), math.floor(y) + 1):
                for column in (math.floor(x), math.floor(x) + 1):
                    weight = (1 - abs(y - row)) * (1 - abs(x - column))
                    if weight > 0:
                        out[i, j] += weight * image[row, column].astype(float)
    return out


def over_white(colour, alpha):
    """A colour of 0 … 255 behind which a white wall shines through."""
    return np.asarray(colour, float) * alpha / 255 + 255 * (1 - alpha / 255)


def part_sentences(text):
    """A space before every period that ends a sentence within the lower-cased text, walking from chunk to chunk."""
    chunks = text.split()
    for position, following in enumerate(chunks[1:]):
        chunk = chunks[position]
        if ends_sentence(chunk, following):
            bare = chunk.rstrip(CLOSING)
            chunks[position] = bare[:-1] + " ." + chunk[len(bare) :]
    return " ".join(chunks)


def ends_sentence(chunk, following):
    bare = chunk.rstrip(CLOSING)
    if not bare.endswith(".") or bare.endswith(".."):
        return False
    word = bare[:-1]
    last = len(word)
    while last > 0 and (word[last - 1].isalnum() or word[last - 1] == "_"):
        last -= 1
    tail, before = word[last:], word[:last]
    if tail in TITLES | PLACES | OTHERS:
        return False
    if len(tail) == 1 and tail.isalpha() and (before == "" or before[-1] in OPENING + "."):
        return False
    return not (tail == "no" and following[0].isdecimal())
