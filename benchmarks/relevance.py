"""Measure relevance: reliability, the default cut-off, absent things, exclusion, and notes on other languages.

    python benchmarks/relevance.py photo --data DATA/coco                       # one model, as Markdown
    python benchmarks/relevance.py photo MODEL... --data DATA/coco --json runs/relevance.json

MODEL is any model that takes images: a name, a folder or a hub id. The images of the split are divided into halves with
seed 0: coefficients are fitted on one (``vse.index.relevance_fit``), and everything is measured on the other. Which
images fit is judged from captions, two of which must agree. Captions do not name everything that is visible, so
precision is a lower bound.

- Reliability: pairs of a query and an image from the default cut-off on, in ten bins, beside a sigmoid of the cosine
  that was fitted on the same pairs.
- The default cut-off: precision and recall for categories with n fitting images, and for the 60 everyday queries.
- Size: relevance and confidence of the same image and caption in collections of 36, 288 and all images.
- Absent things: how often nothing is said to match, for things that no caption names, and for things that are there.
- Exclusion: the share of images with something excluded among the first eight results.
- Notes: how often a query is called foreign or unknown, for English captions and for queries that are.

Embeddings are cached below ``--into``: delete them when a model has changed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import vse
from everyday import DATA, QUERIES, Query
from vse.errors import InputError, VSEError
from vse.evaluation.embeddings import Embeddings
from vse.evaluation.models import embed_model
from vse.index.calibration import area, bins, calibration_error
from vse.index.confidence import SAMPLE, Background, confidences
from vse.index.judging import EXCLUDED_FROM, relevant
from vse.index.language import query_notes
from vse.index.query import combine
from vse.index.relevance import WEAK, relevances
from vse.index.relevance_fit import RelevanceReport, fit_embeddings, judge_captions
from vse.models.coefficients import RelevanceCoefficients, coefficients_of
from vse.progress import SilentProgress

HITS = 8
AGREEING = 2
BUCKETS = ((1, 3), (4, 9), (10, 29), (30, 10_000))
SIZES = (36, 288)
SMALL = (50, 150)
ABSENT = (
    "a submarine", "a volcano", "a penguin", "an astronaut", "a violin", "a helicopter", "a lion", "a kangaroo",
    "a dinosaur", "a spaceship", "a chess board", "a squirrel", "a lighthouse", "an igloo", "an octopus",
    "a roller coaster", "a windmill", "a snake", "a ballet dancer", "a waterfall", "a drum kit", "a camel", "a shark",
    "fireworks", "a sewing machine", "a piano", "a tiger", "a spider", "a turtle", "a whale", "a rocket", "a cactus",
)  # fmt: skip
UNWANTED = (
    Query("woman", r"wom[ae]n|lady|ladies|girls?|female"),
    Query("man", r"m[ae]n|guys?|males?|boys?|gentlem[ae]n"),
    Query(
        "people", r"people|persons?|m[ae]n|wom[ae]n|girls?|boys?|child(?:ren)?|kids?|lady|ladies|guys?|players?|crowd"
    ),
    Query("child", r"child(?:ren)?|kids?|boys?|girls?|bab(?:y|ies)|toddlers?"),
    Query("dog", r"dogs?|pupp(?:y|ies)", r"hot ?dogs?"),
    Query("table", r"tables?|desks?"),
    Query("car", r"cars?|vehicles?|taxis?|traffic"),
    Query("snow", r"snow\w*"),
    Query("water", r"water|ocean|sea|lake|river|waves?"),
    Query("sign", r"signs?"),
)
FOREIGN = {
    "German": (
        "Kühe auf der Wiese", "ein Junge mit einem Ball", "Omas Garten", "Lagerfeuer", "Weihnachtsbaum",
        "Segelboot auf dem See", "zwei Freundinnen lachen", "Schmetterling",
        "Regenbogen über dem Feld", "Opa liest Zeitung",
    ),
    "French": (
        "un bateau sur le lac", "une fille avec un ballon", "feu de camp", "papillon", "marché aux légumes",
        "le chat dort sur le canapé", "sapin de Noël", "ma grand-mère",
        "arc-en-ciel", "un écureuil dans le parc",
    ),
    "Spanish": (
        "una niña con un globo", "mariposa", "hoguera en la playa", "mi abuela", "barco en el lago",
        "mercado de verduras", "el gato duerme en el sofá", "fuegos artificiales",
        "una ardilla en el parque", "mi hermano leyendo",
    ),
    "Chinese": ("一只猫在沙发上", "雪山", "我的奶奶", "两个朋友在笑", "蝴蝶"),
    "Russian": ("кошка на диване", "снежные горы", "моя бабушка", "бабочка", "лодка на озере"),
    "gibberish": ("sdkfjh", "lorpzig", "aaaaqqq", "wxyzv bnmk", "tralfub", "ghjkl", "oiuztr", "plmokn ijb"),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a name, a folder or a hub id")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="images with captions [default: COCO]")
    parser.add_argument("--split", default="dev", help="[default: dev]")
    parser.add_argument("--into", type=Path, default=Path("runs/relevance"), metavar="DIR", help="cached embeddings")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures as JSON")
    options = parser.parse_args()
    figures = {}
    try:
        for name in options.models:
            figures[name] = measure(name, options)
            print(*lines(name, figures[name]), sep="\n")
    except VSEError as error:
        parser.error(str(error))
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
    return 0


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return all figures of a model."""
    model = vse.load(name)
    short = re.sub(r"[^\w.-]+", "-", name).strip("-")
    place = options.into / f"{short}-{options.data.name}-{options.split}"
    try:
        found = Embeddings.load(place)
    except InputError:
        found = embed_model(model, options.data, options.split, progress=SilentProgress())
        found.save(place)
    report = fit_embeddings(found, model)
    held = Held(found, report, model)
    return {
        "fit": report.to_json(),
        "categories": held.categories(),
        "everyday": held.everyday(),
        "sizes": held.sizes(name, found),
        "absent": held.absent(),
        "exclusion": held.exclusion(),
        "notes": notes(model, found.captions),
    }


class Held:
    """The half of the images that nothing was fitted on."""

    def __init__(self, found: Embeddings, report: RelevanceReport, model: Any) -> None:
        self.rows = np.array_split(np.random.default_rng(0).permutation(len(found.images)), 2)[1]
        self.images = np.asarray(found.images)[self.rows]
        self.coefficients: RelevanceCoefficients = report.coefficients
        self.model = model
        captions: list[list[str]] = [[] for _ in range(len(found.images))]
        for caption, owner in zip(found.captions, found.text_to_image.tolist(), strict=True):
            captions[owner].append(caption)
        self.captions = [tuple(captions[row]) for row in self.rows]
        self.judged = judge_captions(found.captions, found.text_to_image, len(found.images)).of(self.rows)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.model.encode_texts(list(texts), unknown="allow")

    def relevance(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """``(texts, images)``: the relevance of every image."""
        return np.stack([relevances(self.coefficients, each, self.images @ each) for each in self.encode(texts)])

    def mentions(self, queries: Sequence[Query]) -> NDArray[np.int64]:
        """``(queries, images)``: how many captions name what is asked for."""
        return np.array([[query.mentions(captions) for captions in self.captions] for query in queries])

    def categories(self) -> list[dict[str, Any]]:
        """Precision and recall of the default cut-off by the number of fitting images."""
        number = self.judged.categories
        guesses = self.relevance(self.judged.texts[:number])
        return by_number(guesses, self.judged.relevant[:number], self.judged.unclear[:number])

    def everyday(self) -> dict[str, Any]:
        """The same for the everyday queries, and their reliability."""
        guesses, named = self.relevance([query.text for query in QUERIES]), self.mentions(QUERIES)
        fits, unclear = named >= AGREEING, (named > 0) & (named < AGREEING)
        shown = (guesses >= WEAK) & ~unclear
        return {
            "cutoff": by_number(guesses, fits, unclear),
            "area": area(guesses[~unclear], fits[~unclear]),
            "shown_error": calibration_error(guesses[shown], fits[shown]),
            "bins": bins(guesses[shown], fits[shown]),
        }

    def sizes(self, name: str, found: Embeddings) -> dict[str, Any]:
        """Relevance and confidence of captions for their own image, in collections of several sizes."""
        known = coefficients_of(name)
        everything = np.asarray(found.images)
        rows = self.rows[:36]
        answers: dict[str, Any] = {}
        for size in (*SIZES, len(everything)):
            order = np.concatenate([rows, np.setdiff1d(np.arange(len(everything)), rows)])[:size]
            background = Background(everything[order][:SAMPLE], size, 1)
            pairs = []
            for row in rows:
                text = np.asarray(found.texts)[int(np.flatnonzero(found.text_to_image == row)[0])]
                score = np.array([everything[row] @ text])
                sure = None if known is None else float(confidences(background, text, score, known)[0])
                pairs.append((float(relevances(self.coefficients, text, score)[0]), sure))
            answers[str(size)] = {
                "relevance": float(np.mean([each for each, _ in pairs])),
                "confidence": None
                if known is None
                else float(np.mean([sure for _, sure in pairs if sure is not None])),
            }
        return answers

    def absent(self) -> list[dict[str, Any]]:
        """How often nothing is said to match."""
        words = [Query(text, re.escape(text.removeprefix("an ").removeprefix("a ")) + "(?:e?s)?") for text in ABSENT]
        gone = [query for query, row in zip(words, self.mentions(words), strict=True) if not row.any()]
        missing, there = self.relevance([query.text for query in gone]), self.relevance([q.text for q in QUERIES])
        fits = self.mentions(QUERIES) >= AGREEING
        answers = []
        for size in (*SMALL, len(self.images)):
            parts = np.array_split(np.arange(len(self.images)), len(self.images) // size)
            said = [not relevant(row[part], WEAK, len(part)).any() for part in parts for row in missing]
            wrong = [
                not relevant(row[part], WEAK, len(part)).any()
                for part in parts
                for row, right in zip(there, fits, strict=True)
                if right[part].any()
            ]
            answers.append(
                {"images": size, "absent": len(gone), "said": float(np.mean(said)), "wrong": float(np.mean(wrong))}
            )
        return answers

    def exclusion(self) -> dict[str, Any]:
        """What is excluded among the first results: without excluding, moving the query, and dropping as well."""
        wanted = self.encode([query.text for query in QUERIES])
        away = self.encode([query.text for query in UNWANTED])
        fits, bad = self.mentions(QUERIES) >= AGREEING, self.mentions(UNWANTED) >= AGREEING
        shares: dict[str, list[float]] = {"none": [], "moved": [], "dropped": []}
        right: dict[str, list[float]] = {"none": [], "moved": [], "dropped": []}
        for query, vector in enumerate(wanted):
            plain = np.argsort(-(self.images @ vector), kind="stable")
            for other, without in enumerate(away):
                left = fits[query] & ~bad[other]
                if (
                    not bad[other][plain[:HITS]].any()
                    or left.sum() < HITS // 2
                    or UNWANTED[other].text in QUERIES[query].text
                ):
                    continue
                moved = np.argsort(-(self.images @ combine(vector[None], None, without[None])), kind="stable")
                shown = relevances(self.coefficients, without, self.images @ without) >= EXCLUDED_FROM
                for how, ranked in (("none", plain), ("moved", moved), ("dropped", moved[~shown[moved]])):
                    shares[how].append(float(bad[other][ranked[:HITS]].mean()))
                    right[how].append(float(left[ranked[:HITS]].mean()))
        return {
            "pairs": len(shares["none"]),
            "excluded": {how: float(np.mean(values)) if values else None for how, values in shares.items()},
            "right": {how: float(np.mean(values)) if values else None for how, values in right.items()},
        }


def by_number(guesses: Any, fits: Any, unclear: Any) -> list[dict[str, Any]]:
    """Precision and recall of the default cut-off, mean over queries, by the number of fitting images."""
    rows: dict[tuple[int, int], list[tuple[float | None, float]]] = {bucket: [] for bucket in (*BUCKETS, (1, 10_000))}
    for guess, fit, unknown in zip(guesses, fits, unclear, strict=True):
        shown = relevant(guess, WEAK, len(guess))
        counted = shown & ~unknown
        for (low, high), kept in rows.items():
            if low <= fit.sum() <= high:
                kept.append((float(fit[counted].mean()) if counted.any() else None, float(shown[fit].mean())))
    return [
        {
            "from": low,
            "to": high,
            "queries": len(found),
            "precision": float(np.mean([each for each, _ in found if each is not None] or [np.nan])),
            "recall": float(np.mean([each for _, each in found] or [np.nan])),
        }
        for (low, high), found in rows.items()
    ]


def notes(model: Any, captions: Sequence[str]) -> dict[str, float]:
    """The share of texts about which something is said."""
    texts = {"captions": tuple(captions), "everyday queries": tuple(query.text for query in QUERIES), **FOREIGN}
    return {name: float(np.mean([bool(query_notes(model, [text])) for text in group])) for name, group in texts.items()}


def lines(name: str, found: dict[str, Any]) -> list[str]:
    """The figures as Markdown."""
    fit, everyday = found["fit"], found["everyday"]
    quality, cosine = fit["quality"], fit["cosine"]
    told = [
        f"## {name}",
        f"{fit['pictures']:,} images, {fit['categories']} categories and as many captions, {fit['pairs']:,} pairs held "
        "out",
        "",
        "| | AUC | calibration error, all | shown |",
        "|---|--:|--:|--:|",
        *(
            f"| {label} | {each['area']:.3f} | {each['error']:.4f} | {each['shown_error']:.3f} |"
            for label, each in (("relevance", quality), ("sigmoid of the cosine", cosine))
        ),
        "",
        "| | " + " | ".join(str(number) for number in range(1, 11)) + " |",
        "|---|" + "--:|" * 10,
    ]
    for label, each in (("relevance", quality), ("sigmoid", cosine), ("relevance, everyday", everyday)):
        told.append(f"| {label}: said | " + " | ".join(f"{said:.2f}" for said, _, _ in each["bins"]) + " |")
        told.append(f"| {label}: fit | " + " | ".join(f"{were:.2f}" for _, were, _ in each["bins"]) + " |")
    told += [
        "",
        "| fitting images | categories | precision | recall | everyday | precision | recall |",
        "|---|" + "--:|" * 6,
    ]
    for row, other in zip(found["categories"], everyday["cutoff"], strict=True):
        label = f"{row['from']}–{row['to']}" if row["to"] < 10_000 else f"{row['from']} or more"
        cells = [f"{part['queries']} | {part['precision']:.2f} | {part['recall']:.2f}" for part in (row, other)]
        told.append(f"| {label} | {cells[0]} | {cells[1]} |")
    told += ["", "| images in the collection | relevance | confidence |", "|--:|--:|--:|"]
    for size, row in found["sizes"].items():
        sure = "" if row["confidence"] is None else f"{row['confidence']:.3f}"
        told.append(f"| {size} | {row['relevance']:.3f} | {sure} |")
    told += ["", "| images | nothing matches: absent things | things that are there |", "|--:|--:|--:|"]
    told += [
        f"| {row['images']} | {row['said']:.0%} of {row['absent']} | {row['wrong']:.1%} |" for row in found["absent"]
    ]
    gone = found["exclusion"]
    told += ["", f"| {gone['pairs']} pairs, first {HITS} | show what is excluded | fit and do not |", "|---|--:|--:|"]
    for how, label in (("none", "no exclusion"), ("moved", "query moved"), ("dropped", "query moved, results dropped")):
        if gone["pairs"]:
            told.append(f"| {label} | {gone['excluded'][how]:.1%} | {gone['right'][how]:.1%} |")
    told += [
        "",
        "| texts | noted |",
        "|---|--:|",
        *(f"| {each} | {share:.1%} |" for each, share in found["notes"].items()),
    ]
    return [*told, ""]


if __name__ == "__main__":
    sys.exit(main())
