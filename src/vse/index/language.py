"""Notice queries that a model cannot understand: another language than its own, or no known word.

A tokenizer of word pieces has tokens for any text: an English model encodes ``ein roter Ball`` and ``qwrtz``, and the
results mean nothing. For models whose only language is English, a text is read word by word:

- Letters of another script than Latin are another language.
- A word is English if the tokenizer has a token for it, if it is such a word with an English ending, a compound of two,
  or one of a list of everyday words that tokenizers split.
- A list of frequent German, French, Spanish, Italian, Portuguese and Dutch words shows these languages.

Other languages in Latin script are noticed only as unknown words. Models of several languages, and those that do not
record theirs, are never commented on.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vse.index.query import Model
    from vse.inputs.tokenizer import TextTokenizer

NAMED = 60
"""Characters of a text that a note shows."""
ENDINGS = ("s", "es", "d", "ed", "ing", "er", "ers", "r", "rs", "y", "ly", "ish", "less", "ful", "like", "est")
Y_ENDINGS = ("ies", "ied", "ier", "iest")
"""They replace a final y."""
MIN_LETTERS = 2
"""Letters of a token that is a word."""
SHORTEST = 3
"""Letters of a word that is judged, and of each part of a compound."""
_FOREIGN = {
    "German": """
der das dem den des ein eine einen einem einer eines und oder mit ohne auf unter über neben vor hinter zwischen im
vom zum zur beim für gegen durch nicht ist sind wird bei nach aus von zwei drei vier fünf mein meine meinem ich wir
sie auch hund hunde katze katzen vogel vögel pferd pferde kuh schnee meer berge baum bäume wald fluss himmel sonne
sonnenuntergang regen blume blumen haus häuser stadt straße kirche brücke zug flugzeug schiff fahrrad motorrad kind
kinder frau frauen männer leute menschen junge mädchen hochzeit geburtstag weihnachten urlaub küche essen tisch
stuhl bett brot kuchen kaffee wasser wein bier rot rotes roter rote grün blau gelb schwarz schwarzer weiß weiße groß
klein spielen spielt spielende spielender läuft schwimmen sitzt steht
""",
    "French": """
le les du une et avec sans sous dans devant derrière entre chez aux est sont qui pour par deux trois quatre cinq mon
mes nous vous elle chien chiens oiseau oiseaux cheval chevaux vache neige plage montagne arbre arbres forêt lac
rivière ciel soleil coucher pluie fleur fleurs maison ville église avion bateau vélo voiture voitures enfant enfants
homme femme hommes femmes fille garçon bébé mariage anniversaire noël vacances nourriture chaise gâteau eau bière
vert verte bleu bleue jaune blanc blanche petit petite joue jouent joué assis
""",
    "Spanish": """
el los las una unos unas con sin sobre bajo del por para que tres cuatro cinco mis perro perros gato gatos pájaro
pájaros caballo vaca nieve playa montaña árbol bosque lago río cielo atardecer lluvia flor flores ciudad calle
iglesia puente tren avión barco bicicleta coche carro niño niña niños niñas hombre mujer hombres mujeres gente chica
chico bebé boda cumpleaños navidad vacaciones cocina comida mesa silla cama pastel agua vino cerveza rojo roja verde
azul amarillo negro blanco pequeño jugando corriendo puesta
""",
    "Italian": """
il gli uno della dello nel nella sulla sul senza sopra sotto cane cani gatto gatti uccello cavallo spiaggia neve
albero macchina bambino bambini bambina donna uomo cibo fiori fiore matrimonio compleanno tramonto montagne rosso
""",
    "Portuguese": """
uma com sem em cão cachorro praia criança crianças mulher homem casamento aniversário cavalo pássaro árvore neve
carro
""",
    "Dutch": """
het een van met zonder onder naast hond honden kat sneeuw zee boom kinderen vrouw huis bruiloft verjaardag bloemen
paard fiets
""",
}
_ENGLISH = """
abseiling acorn acrobatic aerobatics affixed agility alcove aloft alpaca amish amphitheater anemone antelope
anticipates appetizers appliance apricot armadillo artichoke ascend asparagus assorted astride attentive aubergine
avocado awning baboon bagel baguette bake bale ballerina bannister barb barbeque barnacle barricade bathe bbq
beachgoers beaded beagle beanie bento beret bib bicyclist bidet binocular biscuit bleachers blimp bmx boa bobsled
boomerang bridal bridesmaid bridle brindle broccoli broth brownie browse brulee bulldozer bumblebee bundt bunt buoy
burka burlap bushel bystander cabinetry caboose calculator calico camo cane cappuccino cardigan carves cashier
casserole cauliflower cavorting celery centipede chameleon chaps checkerboard checkered cheetah chic chimpanzee
chipmunk chubby cityscape clam clementine clings closeup clump clutter cluttered cob cobble cobblestone cobweb
cockatoo coleslaw collage collide computerized concentric conch condiment condiments confetti congregate contorted
contraption conveyor corgi cormorant corral cosplay cougar couture crammed crayon crazily creme crevasse crevice crib
croc crocheted crocs crocus croissant croquet croutons crumb crutch crutches cubicle cucumber cuddle cuddled cuddling
cupola custard dachshund daffodil dahlia dalmatian dandelion dangle dappled decal deli desolate dine dinghy disheveled
dispenser doberman donut doze drab dreary dribbles dribbling dries drooping duffel dunk easel egret eiffel emitting
emo emu entree escalator escargot espresso facet fancily fasten faucet fawn fedora ferret festive flailing flamboyant
flamingo flannel fleece floatation florets florist floss foal frilly frisbee fritter frolic frolicking fudge gadgets
gallop garb gargoyle garnish garnished garter gazebo gazelle gecko geranium gerbil geyser gigolo giraffe glaze gnarly
gnawing goblet goers goggles gondola gourmet granola grate graze greenery grizzly groomsmen guacamole gull gushing
gymnastic gyro henna hibiscus hieroglyphs hippo hippopotamus hoagie hoodie hookah huddle hula hump hyacinth hydrangea
hydrant hyena ibis icicle icing igloo iguana imac inflatable instructs jacuzzi jigsaw jog jogger juggle juggling
jukebox jumbo karaoke kart kayak kayaker kayaking kebab kelp kennel ketchup khaki kilt kiosk kitchenette kiwi kneel
knick koala kraut labradoodle ladle lapel lapse lasagna lassie lasso latte laundromat lawnmower lazily leek leggings
lemonade lemur lettuce lightening lilac lioness lite llama loaves locust lollipop lolly looms macaque macaroni macaw
magenta mallard malnourished mambo mamma mannequin mardi marmot marquee marshmallow mashed matador meditate meerkat
melon menorah messily metronome mime mingle mitt mop moped motocross mountaineer mousse moustache mowed mown muffin
mulch munching murky musher mussel narwhal navel nectarine nerd nibbles nibbling nips noodle nook nozzle nudge
numerals nuzzling oar oatmeal okra omelet oncoming onlooker orangutan orca oreo origami ornament ostrich oxen pacifier
paella pail pajama pane pangolin panoramic pansy papaya parachutist parakeet paraphernalia parka parsley pebble
pelican pensive peony pepperoni persimmon petunia pheasant pickle piggyback pistachio pita pizzeria placid plow plowed
plushie poinsettia polaroid pomegranate ponchos poodle pooh poop popsicle porcupine possum pounces pouncing pram
prancing prawn pretzel primrose projector propel puffin pug pulley puma pyjamas quail quaint quokka raccoon racket
racquet radish radishes rappelling raspberries raspberry ravioli reenactment relish repels rhinoceros rickety rind
risotto rodent romp rottweiler rucksack salamander sari satchel sauna sauteed scallops scarves schnauzer scissor
scooter scruffy scuffle seagull segway selfie sepia sequined shawl sheltie shelving shredding shrubbery siamese sill
skewers skillet skimpy skims skunk slatted slaw sled sledding sledge sleigh slop sloth slouching slum smear smock
smoothie smothered snorkel snorkeling snorkelling snowflake snuggles snuggling soars socialize socializing sombrero
somersault spaniel sparring spatula speckled speedo spewing spigot spinach spool spout sprinkled sprinkler sprinkles
sprout squints squirt squirted squirting standup steeple stethoscope stilts stoop stork straddles straddling styrofoam
sunbathe sundae sushi swooping swoops syringe tambourine tangerine tarantula tarp tattered teal termite tether
tethered thermometer thermos thicket tiara tiramisu toboggan toddler tofu toiletries toilette tortilla tortoise tots
toucan trampoline trot trotting truffle tulip tupperware turban turnip tusk tusked tussle tussling tutu tuxedo tvs
twig twirling twirls ukulele unattended uncooked uncut uneaten unicycle unloading unmade unoccupied unpaved unpeeled
unripe uphill upholstered upraised upturned urinal urinating urn utensils vandalized veggie vending verdant visor
waffle watermelon wheelie whist wicker wiimote wildebeest wok wombat wrench xylophone yak yawning yawns yogurt yorkie
zigzag zinnia zucchini
"""

ENGLISH = frozenset(_ENGLISH.split())
"""Everyday English words that are not single tokens of common tokenizers."""
FUNCTION_WORDS = frozenset(
    ("da", "de", "di", "du", "el", "en", "la", "las", "le", "les", "los", "ma", "mi", "sur", "un")
)
"""Short words of other languages that names in English queries contain, too: evidence beside unknown words only."""
_AMBIGUOUS = """
am auto berg boom cane carro casa chat con cuisine den die dos est im kind lac mann mar mesa met mon noir on pan par rot
rouge rue sin sol son strand table train van vert zee
"""
AMBIGUOUS = frozenset(_AMBIGUOUS.split()) | FUNCTION_WORDS
"""Words of another language that English queries contain, too: evidence of neither."""
FOREIGN = {name: frozenset(words.split()) - AMBIGUOUS for name, words in _FOREIGN.items()}


def query_notes(model: Model, texts: Sequence[str]) -> tuple[str, ...]:
    """Return what should be said about the texts of a query, each as ``"code: words"``.

    The codes are ``language`` and ``unknown``.

    >>> import vse
    >>> query_notes(vse.load("photo"), ["zwei Hunde im Schnee"])
    ('language: "zwei Hunde im Schnee" looks German, and the model understands English only',)
    """
    tokenizer = model.tokenizer
    if tokenizer is None or tokenizer.kind != "subwords" or languages_of(model) != ("en",):
        return ()
    known = KnownWords(tokenizer)
    return tuple(note for text in texts if (note := _note(text, known)) is not None)


def languages_of(model: object) -> tuple[str, ...]:
    """Return the languages that a loaded model records, as codes; empty if it records none."""
    config = getattr(model, "config", None)
    about = getattr(config, "about", None)
    if about is not None:
        return tuple(about.languages)
    source = getattr(config, "source", None)  # of an export, as plain values
    recorded = source.get("about", {}) if isinstance(source, dict) else {}
    found = recorded.get("languages", ()) if isinstance(recorded, dict) else ()
    return tuple(map(str, found)) if isinstance(found, (list, tuple)) else ()


class KnownWords:
    """The words for which a tokenizer has a token of its own; each is looked up, since a vocabulary is large."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._find = tokenizer.pipeline.token_to_id
        pieces = self._find("##s") is not None  # WordPiece marks pieces within words, others the ends of words
        self._spellings = ("{}",) if pieces else ("{}</w>", "Ġ{}", "▁{}")  # CLIP, RoBERTa, SentencePiece

    def __contains__(self, word: object) -> bool:
        if not isinstance(word, str) or len(word) < MIN_LETTERS or not word.isalpha():
            return False
        cases = (word, word.capitalize())
        return any(self._find(each.format(case)) is not None for each in self._spellings for case in cases)


def _note(text: str, known: Container[str]) -> str | None:
    """Return what should be said about one text."""
    shown = text if len(text) <= NAMED else text[:NAMED] + " …"
    letters = [character for character in text if character.isalpha()]
    foreign = sum(not _is_latin(character) for character in letters)
    if foreign * 2 > len(letters):
        return f'language: "{shown}" is in a script that the model does not read: it understands English only'
    words = re.findall(r"[^\W\d_]+", text.lower())
    language = max(FOREIGN, key=lambda name: sum(word in FOREIGN[name] for word in words))
    marked = [word for word in words if word in FOREIGN[language]]
    judged = [word for word in words if word not in AMBIGUOUS and word not in marked]
    english = [word for word in judged if _is_english(word, known)]
    if marked and len(marked) + len(judged) >= 2 * len(english):
        return f'language: "{shown}" looks {language}, and the model understands English only'
    unknown = [word for word in judged if len(word) >= SHORTEST and word not in english]
    if unknown and len(unknown) >= len(english) and not FUNCTION_WORDS.isdisjoint(words):
        return f'language: "{shown}" does not look English, and the model understands English only'
    if unknown and not english and not any(character.isdigit() for character in text):
        return f'unknown: the model may not know any word of "{shown}"'
    return None


def _is_english(word: str, known: Container[str]) -> bool:
    plain = _without_accents(word)
    return _is_known(plain, known) or any(
        _is_known(plain[:place], known) and _is_known(plain[place:], known)
        for place in range(SHORTEST, len(plain) - SHORTEST + 1)
    )


def _is_known(word: str, known: Container[str]) -> bool:
    """Return whether a word, or its stem, is in the vocabulary or the list."""

    def listed(stem: str) -> bool:
        return stem in known or stem in ENGLISH

    if listed(word):
        return True
    for ending in (*ENDINGS, *Y_ENDINGS):
        stem = word.removesuffix(ending)
        if stem == word or len(stem) < SHORTEST:
            continue
        if ending in Y_ENDINGS:
            if listed(stem + "y"):
                return True
        elif listed(stem) or listed(stem + "e") or (stem[-1] == stem[-2] and listed(stem[:-1])):
            return True
    return False


def _without_accents(word: str) -> str:
    return "".join(each for each in unicodedata.normalize("NFD", word) if not unicodedata.combining(each))


@lru_cache(maxsize=4096)
def _is_latin(character: str) -> bool:
    return unicodedata.name(character, "").startswith(("LATIN", "FULLWIDTH LATIN", "FEMININE", "MASCULINE"))
