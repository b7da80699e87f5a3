"""notebook-en-fr, -en-de, -slides and -by-hand: the sentence pairs of four notebooks.

The pairs are printed in the notebooks and contain their mistakes ("bon nuit", "nous va"; "is" has no
id in scratch-en-fr). They reproduce the notebooks and are far too few to generalise from.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from headtohead.plugin import Corpus, Dataset, Options, Pair, hookimpl

# The pairs are in this module and not in a data file: a declared file would be a part of the data hash, and a change of
# an undeclared file would not make runs STALE.
EN_FR_TABLE = """
I love you | Je t’aime
hello world | bonjour monde
good morning | bon matin
good night | bon nuit
cat is small | chat est petit
dog is big | chien est grand
he runs fast | il court rapide
she walks slow | elle marche lent
we eat good | nous mange bon
they are happy | ils sont heureux
boy plays | garçon joue
girl reads | fille lit
he writes | il écrit
car is big | voiture est grand
house is small | maison est petit
she is sad | elle est triste
we go | nous va
they run morning | ils courent matin
I read | Je lisent
dog walks fast | chien marche rapide
"""

EN_DE_TABLE = """
hello world | hallo welt
goodbye | auf wiedersehen
how are you? | wie geht es dir?
I'm fine | ich bin gut
what's your name? | wie heißt du?
my name is John | ich heiße John
nice to meet you | freut mich
where are you from? | woher kommst du?
I'm from Germany | ich komme aus Deutschland
do you speak English? | sprichst du Englisch?
yes, a little | ja, ein bisschen
what time is it? | wie spät ist es?
it's three o'clock | es ist drei Uhr
I'm hungry | ich habe Hunger
let's eat something | lass uns etwas essen
the food is delicious | das Essen ist lecker
thank you very much | vielen Dank
you're welcome | bitte schön
see you tomorrow | bis morgen
have a good day | einen schönen Tag
I love reading | ich liebe es zu lesen
what's the weather like? | wie ist das Wetter?
it's raining | es regnet
the sun is shining | die Sonne scheint
I need help | ich brauche Hilfe
can you help me? | kannst du mir helfen?
of course | natürlich
excuse me | entschuldigung
I'm sorry | es tut mir leid
no problem | kein Problem
how much is this? | wie viel kostet das?
that's expensive | das ist teuer
I'll take it | ich nehme es
where is the bathroom? | wo ist die Toilette?
turn left | links abbiegen
turn right | rechts abbiegen
go straight ahead | geradeaus gehen
I'm lost | ich habe mich verlaufen
can you show me the way? | können Sie mir den Weg zeigen?
I don't understand | ich verstehe nicht
please speak slowly | bitte sprechen Sie langsam
could you repeat that? | können Sie das wiederholen?
what does this mean? | was bedeutet das?
I like this | das gefällt mir
that's interesting | das ist interessant
I agree | ich stimme zu
I disagree | ich stimme nicht zu
good morning | guten Morgen
good evening | guten Abend
good night | gute Nacht
"""

EN_FR_SOURCE_WORDS = """
<pad> I love you hello world good morning night cat dog he she we they go eat run walk happy sad big small fast slow
boy girl play read write car house plays reads writes walks runs are <sos> <eos>
"""
EN_FR_TARGET_WORDS = """
<pad> Je t’aime bonjour monde bon matin nuit chat chien il elle nous ils va mange court marche heureux triste grand
petit rapide lent garçon fille joue lit écrit voiture maison jouent lisent écrivent marchent courent est sont <sos>
<eos>
"""
"""The tables that the notebook prints, in the order of their ids."""

SLIDES = ("I love AI .", "J' adore l'IA .")
BY_HAND = ("this is a fat cat", "c'est un chat gros")


def _pairs_of(table: str) -> tuple[tuple[str, str], ...]:
    """Return the sentence pairs of a table with a pair in each line."""
    pairs = []
    for line in table.strip().splitlines():
        source, target = line.split(" | ")
        pairs.append((source, target))
    return tuple(pairs)


EN_FR = _pairs_of(EN_FR_TABLE)
EN_DE = _pairs_of(EN_DE_TABLE)


class NotebookPairs(Dataset):
    """Sentence pairs that a notebook prints; each pair is a separate group."""

    splits: ClassVar[tuple[str, ...]] = ("nothing-held-out",)
    normalise: ClassVar[str] = "none"
    texts: ClassVar[Sequence[tuple[str, str]]]
    title: ClassVar[str]
    languages: ClassVar[tuple[str, str]] = ("English", "French")
    words: ClassVar[Sequence[Sequence[str]]] = ()
    """Words of source and target by id, if the notebook has fixed tables."""

    @classmethod
    def load(cls, options: Options, split: str, cache: Path) -> Corpus:
        """Return the pairs, with the tables of word to id."""
        tables = [{word: index for index, word in enumerate(side)} for side in cls.words]
        pairs = [Pair(source, target, source) for source, target in cls.texts]
        return Corpus(
            pairs=pairs,
            licence="example sentences, none stated",
            citation=f"example sentences of the notebook '{cls.title}'",
            languages=cls.languages,
            vocabularies=(tables[0], tables[1]) if tables else None,
        )


class NotebookEnFr(NotebookPairs):
    """The 20 English-French pairs of the scratch-en-fr notebook."""

    phrase = "the English-French notebook"
    splits = Dataset.splits
    texts = EN_FR
    title = "Understanding and Implementing Transformers from Scratch"
    words = (EN_FR_SOURCE_WORDS.split(), EN_FR_TARGET_WORDS.split())


class NotebookEnDe(NotebookPairs):
    """The 50 English-German pairs of the architecture-en-de notebook."""

    phrase = "the English-German notebook"
    splits = Dataset.splits
    texts = EN_DE
    title = "Transformer Architecture"
    languages = ("English", "German")


class NotebookSlides(NotebookPairs):
    """The only English-French pair of the slides-en-fr notebook."""

    phrase = "the pair of the slides notebook"
    texts = (SLIDES,)
    title = "Neural Machine Translation Using Transformer"
    words = tuple(("<pad>", *text.split()) for text in SLIDES)


class NotebookByHand(NotebookPairs):
    """The only English-French pair of the by-hand-en-fr notebook."""

    phrase = "the pair of the by-hand notebook"
    texts = (BY_HAND,)
    title = "by-hand-en-fr"
    words = (BY_HAND[0].split(), ("<sos>", *BY_HAND[1].split(), "<eos>"))


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {
        "notebook-en-fr": NotebookEnFr,
        "notebook-en-de": NotebookEnDe,
        "notebook-slides": NotebookSlides,
        "notebook-by-hand": NotebookByHand,
    }
