"""Captions in five languages, generated: punctuation, capitals, digits, emoji, accents, double spaces."""

from __future__ import annotations

import random

WORDS = {
    "en": "a two the dog dogs girl's don't man-made rides red horse beach snow T-shirt HDTV playing café o'clock it's",
    "de": "ein zwei der Hund Mädchen läuft über grüne Straße Schnee schöne Bäume spielt Fußball Größe ÖPNV auf dem",
    "fr": "un une le gâteau d'anniversaire l'été où garçon très français à côté forêt Noël œuvre joue qu'il déjà",
    "zh": "一 两只 狗 在 雪地 里 玩耍 女孩 骑 红色 的 马 海滩 电视 北京 2024年 照片，美丽",
    "ru": "два кота спят на диване девочка бежит красный мяч снег ещё Москва ёлка объект в и около большой",
}
BETWEEN = (" ", " ", " ", " ", "  ", ", ", " - ", "; ", "\t", " ... ")
ENDS = (".", "!", "?", "", " …", ' "', ")", " 😀", "🐶🐶", "!!!", " #1", "  ", " 12,5 %", " (2024)", "_x", "\n")


def captions(count: int = 1000, seed: int = 0) -> list[str]:
    """Return ``count`` captions, as many of each language; none has HTML entities or badly decoded text."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        words = list(WORDS.values())[number % len(WORDS)].split()
        text = "".join(draw.choice(words) + draw.choice(BETWEEN) for _ in range(draw.randint(1, 14)))
        text = text + draw.choice(words) + draw.choice(ENDS)
        found.append({0: text.upper(), 1: text.capitalize(), 2: f"  {text}"}.get(draw.randint(0, 7), text))
    return found
