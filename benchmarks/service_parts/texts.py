"""Sentences of everyday words, as many as a run needs, all distinct."""

from __future__ import annotations

from math import prod
from urllib.parse import quote_plus

PARTS = tuple(
    tuple(words.split(","))
    for words in (
        "a,one,two,three,some,many",
        "black,brown,white,red,blue,green,yellow,small,large,young,old,wet,happy,little,tall,dark",
        "dog,man,woman,boy,girl,child,cat,horse,bird,player,people,bike,car,boat,ball,crowd,climber,runner,dancer,baby",
        "runs,jumps,sits,stands,plays,walks,sleeps,swims,waits,looks,rides,rests,smiles,works,climbs,dances",
        "near,behind,in front of,beside,over,under",
        "water,snow,grass,sand,a building,a fence,a tree,a bench,the street,the beach,a wall,rocks,a river,a lake,"
        "a mountain,the crowd,a hill,a pool,the sun,a field",
    )
)
COUNT = prod(map(len, PARTS))
STEP = 1_000_003
"""A prime that divides no number of words: neighbouring sentences differ in most of theirs."""


def sentence(number: int) -> str:
    """Return a distinct sentence for each number from 0 to ``COUNT - 1``."""
    rest, chosen = number * STEP % COUNT, []
    for words in PARTS:
        rest, place = divmod(rest, len(words))
        chosen.append(words[place])
    return " ".join(chosen)


def search_path(number: int, k: int) -> str:
    """Return the request for the first ``k`` results of a sentence."""
    return f"/api/v1/search?q={quote_plus(sentence(number))}&k={k}"
