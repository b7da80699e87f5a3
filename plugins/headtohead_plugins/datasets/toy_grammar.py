"""toy-grammar: generated English-French sentences with exactly one correct translation each.

Nouns, articles and adjectives agree in gender and number, verbs in person. In French most adjectives
follow the noun, object pronouns precede the verb, and negation surrounds it. Many sentences are
permutations of other sentences with other translations. Permutations share a group: they are in the
same part of a split, and the score of a bag-of-words encoder has an upper bound below 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from headtohead.plugin import Corpus, Dataset, HeadToHeadError, Pair, hookimpl
from headtohead.plugin import Options as BaseOptions
from headtohead_plugins.datasets.toy import grammar, lexicon, sampling

MAX_IDLE_FAMILIES = 1000
"""Consecutive families without a new pair after which the generator gives up."""


NOTES = {
    "length": "test sentences have more than {} words",
    "compositional": "every test sentence combines an adjective and a noun that train never combines",
}


class Options(BaseOptions):
    """Number of pairs, and the longest training sentence of split ``length``."""

    size: int = Field(6000, ge=50, le=100_000, description="distinct pairs")
    seed: int = Field(
        1,
        ge=1,
        le=2**32 - 1,
        description="seed of the generator; data.seed is the seed of the split",
    )
    longest_train: int = Field(
        8, ge=4, le=12, description="split length: source words of the longest training sentence"
    )


class ToyGrammar(Dataset):
    """Generated English-French sentences with exactly one correct translation each."""

    phrase = (
        "the toy grammar"
        "[ with {size} sentences]"
        "[ with data seed {seed}]"
        "[ with at most {longest_train} words in training]"
    )
    Options: ClassVar[type[BaseOptions]] = Options
    splits: ClassVar[tuple[str, ...]] = ("iid", "length", "compositional", "row")
    of_split: ClassVar[Mapping[str, str]] = {"longest_train": "length"}
    normalise: ClassVar[str] = "none"

    @classmethod
    def cache_key(cls, options: BaseOptions, split: str, cache: Path) -> str:
        """Return a hash of lexicon and grammar, so that cached data need not be generated again."""
        files = [lexicon.FILE]
        for module in (lexicon, grammar, sampling):
            files.append(Path(str(module.__file__)))
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

    @classmethod
    def load(cls, options: BaseOptions, split: str, cache: Path) -> Corpus:
        """Generate the pairs; the group is the bag of source words."""
        assert isinstance(options, Options)
        is_held_out = _held_out(split, options)
        pairs = []
        for source, target in _texts(options.seed, options.size):
            words = source.split()
            part = "test" if is_held_out(words) else None
            pairs.append(Pair(source, target, " ".join(sorted(words)), part))
        notes: tuple[str, ...] = ()
        if split in NOTES:
            notes = (f"split {split}: {NOTES[split].format(options.longest_train)}",)
        return Corpus(
            pairs=pairs,
            licence="MIT",
            citation="headtohead toy-grammar: generated, after the vocabulary of the notebook "
            "'Understanding and Implementing Transformers from Scratch'",
            languages=("English", "French"),
            notes=notes,
        )


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"toy-grammar": ToyGrammar}


@lru_cache(maxsize=8)
def _texts(seed: int, size: int) -> tuple[tuple[str, str], ...]:
    """Return ``size`` distinct pairs, the same for every split; a family that would exceed ``size`` is skipped."""
    pairs: dict[str, str] = {}
    idle = 0
    for family in sampling.families(seed):
        new: dict[str, str] = {}
        for sentence in family:
            english = sentence.english()
            if english not in pairs:
                new[english] = sentence.french()
        if new and len(pairs) + len(new) <= size:
            pairs.update(new)
            idle = 0
        if len(pairs) == size:
            return tuple(pairs.items())
        idle += 1
        if idle > MAX_IDLE_FAMILIES:
            raise HeadToHeadError(f"toy-grammar cannot generate {size} distinct pairs; lower size")
    raise AssertionError("families never ends")


def _held_out(split: str, options: Options) -> Callable[[list[str]], bool]:
    """Return the function that decides whether a sentence belongs to the test part."""
    if split == "length":
        return lambda words: len(words) > options.longest_train
    if split == "compositional":
        return _combines_held_out
    return lambda words: False


def _combines_held_out(words: list[str]) -> bool:
    """Return whether a sentence has an adjective and a noun that no training sentence combines."""
    for index, adjective in enumerate(lexicon.ADJECTIVES):
        if adjective.english not in words:
            continue
        for noun in (lexicon.NOUNS[index], lexicon.NOUNS[-1 - index]):
            if not set(words).isdisjoint(noun.english):
                return True
    return False
