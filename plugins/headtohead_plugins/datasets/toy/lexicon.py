"""The toy lexicon: English words and the French forms they agree into.

It extends the vocabulary of the scratch-en-fr notebook (cat, dog, boy, girl, car, house, big,
small, happy, sad, fast, slow, good, eat, run, walk, play, read, write, go, love …). No noun starts
with a vowel, so articles never elide; verbs that do (aimer, entendre, écrire, est) make
je, me, te, le, la and ne elide.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Noun:
    """``english`` and ``french`` hold singular and plural."""

    english: tuple[str, str]
    french: tuple[str, str]
    feminine: bool
    animate: bool


@dataclass(frozen=True)
class Adjective:
    """``french`` holds masculine and feminine singular, then masculine and feminine plural."""

    english: str
    french: tuple[str, str, str, str]
    precedes: bool = False


@dataclass(frozen=True)
class Verb:
    """``english`` holds the base and the -s form; ``french`` je, tu, il, nous, ils."""

    english: tuple[str, str]
    french: tuple[str, str, str, str, str]


@dataclass(frozen=True)
class Determiner:
    """``french`` holds masculine and feminine singular, and plural; "" where there is none."""

    english: tuple[str, str]
    french: tuple[str, str, str]
    indefinite: bool = False


@dataclass(frozen=True)
class Pronoun:
    """A person: English and French subject, English and French object; ``number`` 0 or 1."""

    subject: tuple[str, str]
    object: tuple[str, str]
    person: int
    number: int
    feminine: bool = False

    @property
    def form(self) -> int:
        """Index of the French verb form: je, tu, il, nous, ils."""
        return {(1, 0): 0, (2, 0): 1, (3, 0): 2, (1, 1): 3, (3, 1): 4}[self.person, self.number]


def _noun(english: str, french: str, gender: str, animate: bool) -> Noun:
    return Noun((english, f"{english}s"), (french, f"{french}s"), gender == "f", animate)


def _regular(english: str, french: str, *, precedes: bool = False) -> Adjective:
    feminine = french if french.endswith("e") else f"{french}e"
    return Adjective(english, (french, feminine, f"{french}s", f"{feminine}s"), precedes)


def _er_verb(base: str, third: str, stem: str, nous: str = "ons") -> Verb:
    return Verb((base, third), (f"{stem}e", f"{stem}es", f"{stem}e", stem + nous, f"{stem}ent"))


NOUNS = (
    _noun("cat", "chat", "m", True),
    _noun("dog", "chien", "m", True),
    _noun("boy", "garçon", "m", True),
    _noun("king", "roi", "m", True),
    _noun("brother", "frère", "m", True),
    Noun(("horse", "horses"), ("cheval", "chevaux"), False, True),
    _noun("girl", "fille", "f", True),
    _noun("queen", "reine", "f", True),
    _noun("sister", "sœur", "f", True),
    _noun("cow", "vache", "f", True),
    Noun(("woman", "women"), ("femme", "femmes"), True, True),
    _noun("book", "livre", "m", False),
    _noun("garden", "jardin", "m", False),
    _noun("car", "voiture", "f", False),
    _noun("house", "maison", "f", False),
    _noun("letter", "lettre", "f", False),
)

ADJECTIVES = (
    _regular("big", "grand", precedes=True),
    _regular("small", "petit", precedes=True),
    Adjective("good", ("bon", "bonne", "bons", "bonnes"), precedes=True),
    Adjective("happy", ("heureux", "heureuse", "heureux", "heureuses")),
    _regular("sad", "triste"),
    _regular("fast", "rapide"),
    _regular("slow", "lent"),
    _regular("red", "rouge"),
    _regular("calm", "calme"),
)

TRANSITIVES = (
    _er_verb("love", "loves", "aim"),
    _er_verb("find", "finds", "trouv"),
    _er_verb("watch", "watches", "regard"),
    Verb(("see", "sees"), ("vois", "vois", "voit", "voyons", "voient")),
    Verb(("hear", "hears"), ("entends", "entends", "entend", "entendons", "entendent")),
)

INTRANSITIVES = (
    _er_verb("eat", "eats", "mang", "eons"),
    _er_verb("walk", "walks", "march"),
    _er_verb("play", "plays", "jou"),
    Verb(("run", "runs"), ("cours", "cours", "court", "courons", "courent")),
    Verb(("read", "reads"), ("lis", "lis", "lit", "lisons", "lisent")),
    Verb(("write", "writes"), ("écris", "écris", "écrit", "écrivons", "écrivent")),
)

GO = Verb(("go", "goes"), ("vais", "vas", "va", "allons", "vont"))

BE = ("suis", "es", "est", "sommes", "sont")

DETERMINERS = (
    Determiner(("the", "the"), ("le", "la", "les")),
    Determiner(("this", "these"), ("ce", "cette", "ces")),
    Determiner(("my", "my"), ("mon", "ma", "mes")),
    Determiner(("a", "some"), ("un", "une", "des"), indefinite=True),
)

PRONOUNS = (
    Pronoun(("I", "je"), ("me", "me"), 1, 0),
    Pronoun(("you", "tu"), ("you", "te"), 2, 0),
    Pronoun(("he", "il"), ("him", "le"), 3, 0),
    Pronoun(("she", "elle"), ("her", "la"), 3, 0, feminine=True),
    Pronoun(("we", "nous"), ("us", "nous"), 1, 1),
    Pronoun(("they", "ils"), ("them", "les"), 3, 1),
)

ADVERBIALS = (
    ("here", "ici"),
    ("now", "maintenant"),
    ("tomorrow", "demain"),
    ("outside", "dehors"),
    ("often", "souvent"),
    ("in the morning", "le matin"),
    ("at night", "la nuit"),
)

PREPOSITIONS = (("with", "avec"), ("behind", "derrière"), ("under", "sous"))

GREETING = ("hello", "bonjour")
