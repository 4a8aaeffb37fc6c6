"""Everyday queries over captioned images: how many of the first eight hits show what was asked for.

    python benchmarks/everyday.py photo --data DATA/coco                    # one model, 60 queries
    python benchmarks/everyday.py photo runs/photo/best --stock             # two models and the stock classifier
    python benchmarks/everyday.py photo --sheets runs/sheets --json runs/everyday.json
    python benchmarks/everyday.py photo previous --chart docs/images/everyday.png
    python benchmarks/everyday.py photo --words                             # words beside embeddings

MODEL is any model that takes images: a name, a folder or a hub id. Every image of the split is encoded once, every
query is one or a few words as people type them. An image is relevant when at least ``--mentions`` of its captions
contain one of the words of the query. Precision@8 divides the relevant hits among the first eight by eight, or by the
number of relevant images where there are fewer.

``--stock`` adds the classifier that EfficientNet-Lite2 was published with: images ranked by the probability of the
ImageNet classes that the query names, for the queries that have such a class. ``--sheets`` writes the first eight hits
of every query as images in a grid, one file for each model, with a green frame around relevant ones. ``--chart`` draws
the precision of every query, the weakest first, as a dot for each model.

``--words`` searches collections whose files have texts, by words and embeddings (``vse.index.fusion``): names as a
camera gives them, one caption each, one caption for every tenth image, and random folders out of ten albums, four of
which are named like a query. Then the first caption of an image does not count for its relevance, whatever is searched.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import vse
from vse.data import open_data
from vse.errors import InputError, VSEError

if TYPE_CHECKING:
    from vse.data import CaptionedImages

DATA = Path(os.environ.get("VSE_COCO") or Path(__file__).resolve().parents[2] / "data" / "coco")
HITS = 8
STOCK = "stock classifier"
LIBRARIES = ("camera names", "captions", "some captions", "albums")
ALBUMS = (
    "Dog walk",
    "Beach",
    "Birthday cake",
    "Kitchen",
    "Wedding",
    "School",
    "Red Square",
    "Hike",
    "Car show",
    "Rome",
)
CELL, GAP, LABEL = 104, 4, 190
Scores = NDArray[np.float32]


@dataclass(frozen=True)
class Query:
    """A query, the words in captions that make an image relevant, words that do not count, and ImageNet classes."""

    text: str
    words: str
    without: str = ""
    classes: str = ""

    def mentions(self, captions: tuple[str, ...]) -> int:
        """How many captions contain one of the words."""
        wanted = re.compile(rf"\b(?:{self.words})\b", re.IGNORECASE)
        ignored = re.compile(rf"\b(?:{self.without})\b", re.IGNORECASE) if self.without else None
        return sum(bool(wanted.search(ignored.sub(" ", each) if ignored else each)) for each in captions)


QUERIES = (
    Query("pizza", "pizzas?", classes="pizza"),
    Query("giraffe", "giraff?es?"),
    Query("birthday cake", "birthday cakes?|cake with candles|birthday.*cake|cake.*birthday|cake.*candles?"),
    Query("clock tower", "clock ?towers?|tower.*clock|clock.*tower|steeple.*clock|clock.*(?:building|church)"),
    Query("donuts", "donuts?|doughnuts?"),
    Query("zebra", "zebras?", classes="zebra"),
    Query("dog", "dogs?|pupp(?:y|ies)", "hot ?dogs?|chili dogs?|corn dogs?", "dog"),
    Query("cat", "cats?|kittens?|kitty", classes="tabby|tiger cat|Persian cat|Siamese cat|Egyptian cat"),
    Query("bathroom", "bathrooms?|restrooms?|washrooms?", classes="toilet seat|washbasin|bathtub|tub"),
    Query("surfing", "surf(?:ing|s|er|ers|board|boards|ed)?"),
    Query("tennis", "tennis", classes="racket|tennis ball"),
    Query("bus", "bus|buses|busses", classes="school bus|trolleybus|minibus"),
    Query("train", "trains?|locomotives?|subway", classes="bullet train|(?:steam|electric) locomotive|passenger car"),
    Query("snowboarding", "snow ?board(?:ing|er|ers|s)?"),
    Query("skiing", "ski(?:ing|er|ers|s|is|ed)?", classes="ski|alp"),
    Query("baseball", "baseball|batter|pitcher|umpire", classes="ballplayer|baseball"),
    Query("elephant", "elephants?", classes="tusker|Indian elephant|African elephant"),
    Query("horse", "horses?|pony|ponies|horseback", classes="sorrel|horse cart"),
    Query("cow", "cows?|cattle|bulls?|calf|calves|ox|oxen", classes="ox"),
    Query("sheep", "sheep|lambs?|rams?", classes="ram|bighorn"),
    Query("bear", "bears?|cubs?|polar bears?", "(?:teddy|toy|stuffed|stuffed \\w+) bears?|bears? dolls?", "bear"),
    Query("bird", "birds?|seagulls?|parrots?|ducks?|pigeons?|owls?|gee?se|swans?|pelicans?|eagles?|hawks?|flamingos?"),
    Query("boat", "boats?|ships?|canoes?|kayaks?|sailboats?|ferry|yachts?|rowboats?"),
    Query("beach", "beach(?:es)?|seashore", classes="seashore|sandbar"),
    Query("airplane", "(?:air)?planes?|jets?|aircrafts?|(?:jet|air)liners?|biplanes?", classes="airliner|warplane"),
    Query("motorcycle", "motor(?:cycles?|bikes?|cyclists?)|moped|scooters?", classes="moped|motor scooter"),
    Query("bicycle", "bicycles?|bikes?|bicyclists?|cyclists?", "motor ?bikes?|dirt ?bikes?", "mountain bike|bicycle"),
    Query("truck", "trucks?|pick ?up", classes="pickup|trailer truck|garbage truck|tow truck|fire engine|moving van"),
    Query("traffic light", "traffic (?:lights?|signals?)|stop ?lights?|street ?lights?", classes="traffic light"),
    Query("stop sign", "stop signs?", classes="street sign"),
    Query("fire hydrant", "hydrants?"),
    Query("street sign", "(?:street|road|traffic|stop) signs?|signs? .*(?:street|road|pole)", classes="street sign"),
    Query("kitchen", "kitchens?", classes="refrigerator|stove|microwave|dishwasher"),
    Query("refrigerator", "refrigerators?|fridges?", classes="refrigerator"),
    Query("toilet", "toilets?|urinals?", classes="toilet seat"),
    Query("bed", "beds?", classes="four-poster|studio couch|quilt"),
    Query("couch", "couch(?:es)?|sofas?|loveseats?", classes="studio couch"),
    Query("laptop", "laptops?", classes="laptop|notebook"),
    Query("cell phone", "(?:cell|smart|mobile|i)?[ -]?phones?", classes="cellular telephone|hand-held computer"),
    Query("television", "televisions?|tvs?", classes="television|home theater|screen"),
    Query("umbrella", "umbrellas?|parasols?", classes="umbrella"),
    Query("kite", "kites?"),
    Query("skateboarding", "skate ?board(?:ing|er|ers|s)?|skat(?:er|ers|ing)"),
    Query("frisbee", "frisbees?"),
    Query(
        "sandwich", "sandwich(?:es)?|burgers?|hamburgers?|cheeseburgers?|subs?|panini", classes="cheeseburger|hotdog"
    ),
    Query("hot dog", "hot ?dogs?|chili dogs?|corn dogs?", classes="hotdog"),
    Query("broccoli", "broccoli", classes="broccoli"),
    Query("bananas", "bananas?", classes="banana"),
    Query("vegetables", "vegetables?|veggies|broccoli|carrots?|cauliflower|peppers?|cabbage|salad"),
    Query("cake", "cakes?|cupcakes?|cheesecake"),
    Query(
        "vase with flowers",
        "vases?.*(?:flower|rose|tulip)s?|(?:flowers?|roses?|tulips?|bouquet).*vases?",
        classes="vase",
    ),
    Query("teddy bear", "teddy|stuffed (?:\\w+ )?(?:bears?|animals?|toys?)|toy bears?", classes="teddy"),
    Query("baby", "bab(?:y|ies)|infants?|toddlers?"),
    Query("snow", "snow(?:y|ing|ed)?|snow-\\w+|snow ?board(?:ing|er|ers|s)?|ski(?:ing|er|ers|s)?"),
    Query("mountains", "mountains?|mountainside|hills?|alps", classes="alp"),
    Query("living room", "living ?rooms?|sitting room|family room"),
    Query("desk", "desks?|computer table", classes="desk|desktop computer"),
    Query("suitcase", "suitcases?|luggage|bags? on wheels"),
    Query("clock", "clocks?", classes="analog clock|wall clock|digital clock"),
    Query("bench", "bench(?:es)?", classes="park bench"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a name, a folder or a hub id")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="images with captions [default: COCO]")
    parser.add_argument("--split", default="dev", help="[default: dev]")
    parser.add_argument("--mentions", type=int, default=1, metavar="N", help="captions that must agree [default: 1]")
    parser.add_argument("--stock", action="store_true", help="the stock classifier, too")
    parser.add_argument("--words", action="store_true", help="collections with texts, too")
    parser.add_argument("--sheets", type=Path, metavar="DIR", help="contact sheets as PNG files")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="precision of each query as a PNG file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the results as JSON")
    options = parser.parse_args()
    if options.mentions < 1:
        parser.error(f"--mentions: {options.mentions}, expected 1 or more")
    try:
        data = open_data(options.data, options.split, use="files")
        relevant = relevance(data, options.mentions, skip=int(options.words))
        ranked: dict[str, Scores] = {}
        for name in options.models:
            model = vse.load(name)
            images, texts = encoded(model, data)
            ranked[name] = texts @ images.T
            if options.words:
                ranked |= {f"{name}, {kind}": fused_scores(data, images, texts, kind) for kind in LIBRARIES}
        if options.stock:
            ranked[STOCK] = stock_scores(data)
    except VSEError as error:
        parser.error(str(error))
    results = {
        "data": data.name,
        "split": data.split,
        "images": len(data.images),
        "mentions": options.mentions,
        "models": {name: judged(scores, relevant) for name, scores in ranked.items()},
    }
    print(*lines(results, relevant), sep="\n")
    if options.sheets is not None:
        for name, scores in ranked.items():
            print(contact_sheets(name, scores, relevant, data, options.sheets))
    if options.chart is not None:
        chart(results["models"], options.chart)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    return 0


def captions_of(data: CaptionedImages) -> list[list[str]]:
    """The captions of each image."""
    captions: list[list[str]] = [[] for _ in range(len(data.images))]
    for caption, owner in zip(data.captions, data.caption_to_image.tolist(), strict=True):
        captions[owner].append(caption)
    return captions


def relevance(data: CaptionedImages, mentions: int, skip: int) -> NDArray[np.bool_]:
    """``(queries, images)``: whether enough captions mention what the query asks for, without the first ``skip``."""
    captions = [tuple(each[skip:]) for each in captions_of(data)]
    found = np.array([[query.mentions(each) >= mentions for each in captions] for query in QUERIES])
    for query, row in zip(QUERIES, found, strict=True):
        if not row.any():
            raise InputError(f"no image of split {data.split!r} is captioned with {query.text!r}: use more images")
    return found


def encoded(model: Any, data: CaptionedImages) -> tuple[Scores, Scores]:
    """The embeddings of the images, and of the queries."""
    images = model.encode_images(data.images, on_bad="raise")
    return images, model.encode_texts([query.text for query in QUERIES], unknown="allow")


def fused_scores(data: CaptionedImages, images: Scores, texts: Scores, kind: str) -> Scores:
    """``(queries, images)``: reciprocal ranks of the first hits by words and embeddings; 0 for the others."""
    from vse.index.item_search import search_encoded
    from vse.index.query import QueryVector
    from vse.index.store import EmbeddedCollection
    from vse.index.types import Entry, MediaFile, Moment

    captions, random = captions_of(data), np.random.default_rng(0)
    scores = np.zeros((len(texts), len(images)), np.float32)
    with (
        TemporaryDirectory() as folder,
        EmbeddedCollection.create(Path(folder) / "c", model="m", model_source="", dimensions=images.shape[1]) as made,
    ):
        entries = []
        for row, vector in enumerate(images):
            captioned = kind == "captions" or (kind == "some captions" and row % 10 == 0)
            album = ALBUMS[int(random.integers(len(ALBUMS)))] if kind == "albums" else "DCIM"
            file = MediaFile(
                "/photos", f"{album}/IMG_{row:04}.jpg", "image", 1, 1, str(row), 640, 480,
                captions=tuple(captions[row][:1]) if captioned else (),
            )  # fmt: skip
            entries.append(Entry(file, (Moment(vector),)))
        made.add(entries)
        for place, (query, vector) in enumerate(zip(QUERIES, texts, strict=True)):
            wanted = QueryVector(vector, query.text, words_only=True, texts=(query.text,))
            for rank, result in enumerate(search_encoded(made, wanted, HITS).results, 1):
                scores[place, result.id - 1] = 1 / rank
    return scores


def stock_scores(data: CaptionedImages) -> Scores:
    """``(queries, images)``: the summed probability of the ImageNet classes of a query; NaN where it has none."""
    import torch

    from vse.encoders.backbones.efficientnet_lite import EfficientNetLite
    from vse.inputs.preprocessing import load_pixels

    backbone = EfficientNetLite(2, pretrained=True).eval()  # before timm is imported here: it mends torchvision
    from timm.data.imagenet_info import ImageNetInfo

    weight, bias = backbone.classifier()
    how = backbone.preprocessing()
    rows = []
    with torch.inference_mode():
        for start in range(0, len(data.images), 16):
            several = range(start, min(start + 16, len(data.images)))
            pixels = torch.from_numpy(np.stack([load_pixels(data.images[one], how) for one in several]))
            pooled = backbone(pixels).mean(1)
            rows.append(torch.nn.functional.linear(pooled, weight, bias).softmax(-1))
    probabilities = torch.cat(rows).numpy()  # (images, classes)
    info = ImageNetInfo()
    names = [info.index_to_description(index) for index in range(len(bias))]
    scores = np.full((len(QUERIES), len(data.images)), np.nan, np.float32)
    for place, query in enumerate(QUERIES):
        chosen = stock_classes(query, names)
        if chosen:
            scores[place] = probabilities[:, chosen].sum(1)
    return scores


def stock_classes(query: Query, names: list[str]) -> list[int]:
    """The numbers of the ImageNet classes that a query names; all breeds for "dog" and all species for "bear"."""
    if query.classes == "dog":
        return list(range(151, 269))  # ImageNet's domestic dogs
    if query.classes == "bear":
        return list(range(294, 298))
    if not query.classes:
        return []
    wanted = re.compile(rf"(?:{query.classes})")
    return [
        index for index, name in enumerate(names) if any(wanted.fullmatch(part.strip()) for part in name.split(","))
    ]


def judged(scores: Scores, relevant: NDArray[np.bool_]) -> dict[str, Any]:
    """Precision@8 of every query, and their mean."""
    queries: dict[str, Any] = {}
    for query, row, right in zip(QUERIES, scores, relevant, strict=True):
        if np.isnan(row[0]):
            continue
        best = np.argsort(-row, kind="stable")[:HITS]
        possible = min(HITS, int(right.sum()))
        queries[query.text] = {"hits": int(right[best].sum()), "of": possible, "relevant": int(right.sum())}
    mean = float(np.mean([each["hits"] / each["of"] for each in queries.values()]))
    return {"precision_at_8": mean, "queries": queries}


def lines(results: dict[str, Any], relevant: NDArray[np.bool_]) -> list[str]:
    """A Markdown table with a row for each query."""
    models = results["models"]
    said = [
        f"{results['data']}, split {results['split']}, {results['images']:,} images; relevant: at least "
        f"{results['mentions']} of an image's captions",
        "",
        "| query | relevant | " + " | ".join(models) + " |",
        "|---|--:|" + "--:|" * len(models),
    ]
    for query, right in zip(QUERIES, relevant, strict=True):
        cells = []
        for model in models.values():
            found = model["queries"].get(query.text)
            cells.append("" if found is None else f"{found['hits']}/{found['of']}")
        said.append(f"| {query.text} | {int(right.sum())} | " + " | ".join(cells) + " |")
    means = " | ".join(f"**{model['precision_at_8']:.3f}**" for model in models.values())
    return [*said, f"| mean precision@8 | | {means} |"]


def chart(models: dict[str, Any], path: Path) -> None:
    """Draw the precision of every query as a dot for each model, ordered by the first model."""
    from matplotlib.figure import Figure

    first = next(iter(models.values()))["queries"]
    order = sorted(first, key=lambda text: first[text]["hits"] / first[text]["of"])
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    axes = figure.subplots()
    marks = ("o", "x", "_", "s")
    for mark, (name, found) in zip(marks, models.items(), strict=False):
        shown = [text for text in order if text in found["queries"]]
        values = [found["queries"][text]["hits"] / found["queries"][text]["of"] for text in shown]
        label = f"{Path(name).name} ({found['precision_at_8']:.3f})"
        axes.plot([order.index(text) for text in shown], values, mark, label=label, markersize=6)
    axes.set_xticks(range(len(order)), order, rotation=90, fontsize=7)
    axes.set_ylim(-0.05, 1.05)
    axes.set_ylabel("precision@8")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def contact_sheets(name: str, scores: Scores, relevant: NDArray[np.bool_], data: CaptionedImages, folder: Path) -> Path:
    """The first eight hits of every query, a row each, in one PNG file."""
    from PIL import Image, ImageDraw

    shown = [place for place in range(len(QUERIES)) if not np.isnan(scores[place, 0])]
    step = CELL + GAP
    sheet = Image.new("RGB", (LABEL + HITS * step, len(shown) * step), "white")
    draw = ImageDraw.Draw(sheet)
    for down, place in enumerate(shown):
        best = np.argsort(-scores[place], kind="stable")[:HITS]
        right = int(relevant[place, best].sum())
        draw.text((6, down * step + CELL // 2), f"{QUERIES[place].text}: {right}/{HITS}", fill="black")
        for across, image in enumerate(best.tolist()):
            with Image.open(data.images.paths[image]) as opened:
                small = opened.convert("RGB").resize((CELL - 6, CELL - 6))
            left, top = LABEL + across * step, down * step
            colour = "#1a9850" if relevant[place, image] else "#d73027"
            draw.rectangle((left, top, left + CELL - 1, top + CELL - 1), fill=colour)
            sheet.paste(small, (left + 3, top + 3))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (re.sub(r"[^\w.-]+", "-", Path(name).name or name) + ".png")
    sheet.save(path)
    return path


if __name__ == "__main__":
    sys.exit(main())
