"""Contracts of the built-in role parser: what a caption's verbs and phrases are, and the shape of a graph."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.data.video_support import read_captions

from vse.data.roles import MAX_WORDS, parse_roles
from vse.data.roles.lexicon import forms_of
from vse.data.roles.tags import INSIDE_PHRASE, Tag, TagsBehind
from vse.inputs.text import plain_sentence

LABELS = Path(__file__).with_name("role_labels.json")


def heads(caption: str) -> tuple[list[str], list[str]]:
    found = parse_roles(caption)
    return [found.words[i] for i in found.verbs], [found.words[i] for i in found.nouns]


def edges(caption: str) -> set[tuple[str, str, str]]:
    nodes, links = parse_roles(caption).graph()
    return {(nodes[verb]["words"][0], role, " ".join(nodes[phrase]["words"])) for verb, phrase, role in links}


@pytest.mark.parametrize(
    ("caption", "verbs", "nouns"),
    [
        ("an otter is swimming in a river", ["swimming"], ["otter", "river"]),
        ("two chefs bake bread", ["bake"], ["chefs", "bread"]),
        ("a nurse bakes bread", ["bakes"], ["nurse", "bread"]),
        ("the bake sale was sunny", ["was"], ["sale"]),
        ("a boy tries to fix a bicycle", ["tries", "fix"], ["boy", "bicycle"]),
        ("a wall was painted by a robot", ["painted"], ["wall", "robot"]),
        ("a van that carries sheep gets stuck", ["carries", "stuck"], ["van", "sheep"]),
        ("there is a goat in the kitchen", ["is"], ["goat", "kitchen"]),
        ("someone is rock climbing", ["climbing"], ["someone", "rock"]),
        ("a man in the swimming pool waves his hand", ["waves"], ["man", "pool", "hand"]),
        ("a girl s brother has a drum", ["has"], ["brother", "drum"]),
        ("a group of ducks crossed the road", ["crossed"], ["group", "ducks", "road"]),
        ("a sad clown", [], ["clown"]),
        ("A man waves, then he eats.", ["waves,", "eats."], ["man", "he"]),
        ("blorping a zzyx", ["blorping"], ["zzyx"]),
        ("", [], []),
    ],
)
def test_role_parser_finds_verbs_and_noun_heads(caption, verbs, nouns):
    """Lexical verbs without auxiliaries, and the last noun of every phrase."""
    assert heads(caption) == (verbs, nouns)


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        (
            "a boy kicks a ball into the goal",
            {("kicks", "ARG0", "a boy"), ("kicks", "ARG1", "a ball"), ("kicks", "ARGM-DIR", "into the goal")},
        ),
        ("a wall is painted by a robot", {("painted", "ARG1", "a wall"), ("painted", "ARG0", "by a robot")}),
        (
            "a cook peels and slices an onion with a knife",
            {
                ("peels", "ARG0", "a cook"),
                ("slices", "ARG0", "a cook"),
                ("peels", "ARG1", "an onion"),
                ("slices", "ARG1", "an onion"),
                ("slices", "ARGM-MNR", "with a knife"),
            },
        ),
        ("a girl plays with a dog", {("plays", "ARG0", "a girl"), ("plays", "ARGM-COM", "with a dog")}),
        ("a man in a red hat is singing", {("singing", "ARG0", "a man in a red hat")}),
        (
            "a man sings and a woman dances",
            {("sings", "ARG0", "a man"), ("dances", "ARG0", "a woman")},
        ),
        (
            "a man feeds the goat some hay",
            {("feeds", "ARG0", "a man"), ("feeds", "ARG2", "the goat"), ("feeds", "ARG1", "some hay")},
        ),
        ("the soup is hot", {("is", "ARG1", "the soup")}),
    ],
)
def test_role_parser_assigns_roles(caption, expected):
    """Subject, object, prepositions; a passive turns subject and object; joined verbs share both."""
    assert edges(caption) == expected


def test_role_graph_format():
    """ROOT has every word, nodes are numbered from 1, each verb before its phrases, edges name nodes."""
    nodes, links = parse_roles("a boy kicks a ball").graph()
    assert nodes == {
        "ROOT": {"role": "ROOT", "spans": [0, 1, 2, 3, 4], "words": ["a", "boy", "kicks", "a", "ball"]},
        "1": {"role": "V", "spans": [2], "words": ["kicks"]},
        "2": {"role": "ARG0", "spans": [0, 1], "words": ["a", "boy"]},
        "3": {"role": "ARG1", "spans": [3, 4], "words": ["a", "ball"]},
    }
    assert links == [["1", "2", "ARG0"], ["1", "3", "ARG1"]]


def test_role_parser_handles_captions_without_verb():
    """Phrases are nodes of role NOUN without edges, as in the published graphs."""
    nodes, links = parse_roles("a sad clown in a tent").graph()
    assert [node["role"] for node in nodes.values()] == ["ROOT", "NOUN", "NOUN"]
    assert links == []


WORDS = """
a the is are to by with and of her s cutting cut runs run man men red quickly that while 's , . - has can get got eaten
swimming pool not there it zzz ünïcode 7 one each other this these
"""


@given(st.lists(st.sampled_from(WORDS.split()), max_size=14))
def test_role_parser_gives_valid_graph_for_any_words(words):
    """Whatever the words: spans are positions of the caption, edges lead from verbs to phrases, JSON holds it."""
    found = parse_roles(" ".join(words))
    nodes, links = json.loads(json.dumps(found.graph()))
    assert list(nodes) == ["ROOT", *map(str, range(1, len(nodes)))]
    for name, node in nodes.items():
        assert node["words"] == [words[i] for i in node["spans"]]
        assert node["spans"] == sorted(set(node["spans"]))
        assert node["spans"] or name == "ROOT"
    for verb, phrase, role in links:
        assert nodes[verb]["role"] == "V"
        assert nodes[phrase]["role"] == role != "V"
    assert not set(found.verbs) & set(found.nouns)
    assert [node["spans"] for node in nodes.values() if node["role"] == "V"] == [[verb] for verb in found.verbs]


def test_role_parser_truncates_long_caption():
    """Of a caption of a million words the first ones are parsed, and what follows changes nothing."""
    clause = "a man runs while "
    found = parse_roles(clause * 250_000)
    assert found == parse_roles(" ".join((clause * 250_000).split()[:MAX_WORDS]))
    assert found.verbs == tuple(range(2, MAX_WORDS, 4))


def naive_look_back(words: list[str], tags: list[str]) -> tuple[str | None, str | None, str | None, bool]:
    """Last tag but adverbs, what leads in the phrase, the subject, joined or not, each found by going back."""
    subject = None
    for k, tag in enumerate(tags):
        phrase = next((j for j in range(k, 0, -1) if tags[j - 1] not in INSIDE_PHRASE), 0)
        if tag in ("clause", "mark"):
            subject = None
        if tag in ("noun", "pron") and (phrase == 0 or tags[phrase - 1] != "prep"):
            subject = words[k]
    last = [tag for tag in tags if tag != "adv"][-1:]
    outside = [tag for tag in tags if tag not in INSIDE_PHRASE][-1:]
    joined = "conj" in tags and "verb" not in tags
    return (last or [None])[0], (outside or [None])[0], subject, joined


@given(st.lists(st.sampled_from(get_args(Tag)), max_size=20))
@example(["noun", "adv", "prep", "det", "noun", "conj", "verb", "pron", "clause"])
def test_role_parser_state_equals_looking_back(tags):
    """Kept word by word, it is at every place what going back over all tags would find."""
    words = [f"w{k}" for k in range(len(tags))]
    behind = TagsBehind()
    for k, (word, tag) in enumerate(zip(words, tags, strict=True)):
        behind.add(word, tag)
        found = behind.last, behind.outside, behind.subject, behind.joined_subject
        assert found == naive_look_back(words[: k + 1], tags[: k + 1])
    assert behind.tags == tags


@pytest.mark.parametrize(
    ("word", "form"),
    [("running", "ing"), ("tries", "s"), ("lying", "ing"), ("stirred", "participle"), ("ate", "past"), ("goes", "s")],
)
def test_role_parser_knows_inflections(word, form):
    """Doubled consonants, y and ie, irregular verbs."""
    assert form in forms_of(word)


@pytest.mark.parametrize("word", ["king", "ceiling", "red", "bed", "thing", "glass", "string"])
def test_role_parser_knows_nouns_that_look_like_verbs(word):
    """Endings alone do not make a verb."""
    assert not forms_of(word)


def test_labels_match_drawn_msvd_captions(shared_data):
    """100 pairs of MSVD's test split by the generator that the file names; positions lie within the captions."""
    labels = json.loads(LABELS.read_text())["msvd"]
    data = read_captions(shared_data / "msvd", "test")
    drawn = np.sort(np.random.default_rng(0).choice(len(data.captions), 100, replace=False))
    starts = np.searchsorted(data.caption_to_image, np.arange(len(data.ids)))
    expected = [(data.ids[data.caption_to_image[j]], int(j - starts[data.caption_to_image[j]])) for j in drawn]
    assert [(one["video"], one["caption"]) for one in labels] == expected
    for one, j in zip(labels, drawn, strict=True):
        assert all(0 <= place < len(data.captions[j].split()) for place in one["verbs"] + one["nouns"])


def msrvtt_test(shared_data: Path) -> dict[int, str]:
    """The captions of the official test by their numbers, as published."""
    with zipfile.ZipFile(shared_data / "msrvtt" / "test_videodatainfo.json.zip") as archive:
        content = json.loads(archive.read("test_videodatainfo.json"))
    return {one["sen_id"]: one["caption"] for one in content["sentences"]}


def test_labels_match_drawn_msrvtt_captions(shared_data):
    """60 of the 59,800 captions of the test by the generator that the file names; plain sentences have their words."""
    labels = json.loads(LABELS.read_text())["msrvtt"]
    captions = msrvtt_test(shared_data)
    numbers = np.array(sorted(captions))
    assert [one["sen_id"] for one in labels] == numbers[
        sorted(np.random.default_rng(0).choice(59800, 60, False))
    ].tolist()
    for one in labels:
        words = captions[one["sen_id"]].split()
        assert plain_sentence(" ".join(words)).split() == words
        assert all(0 <= place < len(words) for place in one["verbs"] + one["nouns"])


@pytest.mark.parametrize("data", ["msvd", "msrvtt"])
def test_role_parser_on_hand_labeled_captions(shared_data, data):
    """At least nine of ten verbs and noun heads that were labelled by hand are found, and as many found are right."""
    labels = json.loads(LABELS.read_text())[data]
    if data == "msvd":
        of_video = json.loads((shared_data / "msvd/annotation/RET/ref_captions.json").read_text())
        captions = [of_video[one["video"]][one["caption"]] for one in labels]
    else:
        of_number = msrvtt_test(shared_data)
        captions = [plain_sentence(of_number[one["sen_id"]]) for one in labels]
    for kind in ("verbs", "nouns"):
        found = [
            (set(getattr(parse_roles(caption), kind)), one[kind]) for caption, one in zip(captions, labels, strict=True)
        ]
        right = sum(len(ours & set(theirs)) for ours, theirs in found)
        assert right >= 0.9 * sum(len(ours) for ours, _ in found)
        assert right >= 0.9 * sum(len(theirs) for _, theirs in found)
