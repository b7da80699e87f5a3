"""toy-grammar: seeded English-French sentences, one right translation each, for quick truth.

Nouns, articles and adjectives agree in gender and number, verbs in person; most adjectives follow
the noun, object pronouns precede the verb, negation stands around it. Many sentences are
permutations of others with another translation: they share a group, so that they fall on the same
side of a split and a bag-of-words encoder has a ceiling.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from headtohead import Corpus, Dataset, HeadToHeadError, Pair, hookimpl
from headtohead import Options as BaseOptions
from headtohead.data import hash_pairs
from headtohead_plugins.datasets.toy import grammar, lexicon, sampling

PATIENCE = 1000


class Options(BaseOptions):
    """How many pairs are drawn, and where the split ``length`` cuts."""

    size: int = Field(6000, ge=50, le=100_000, description="distinct pairs")
    seed: int = Field(1, ge=1, description="seed of the generator; data.seed is that of the split")
    longest_train: int = Field(
        8, ge=4, le=12, description="split length: source words of the longest training sentence"
    )


class ToyGrammar(Dataset):
    """Seeded toy English-French sentences with exactly one right translation each."""

    Options: ClassVar[type[BaseOptions]] = Options
    splits: ClassVar[tuple[str, ...]] = ("iid", "length", "compositional", "row")
    normalise: ClassVar[str] = "none"

    @classmethod
    def cache_key(cls, options: BaseOptions, split: str, cache: Path) -> str:
        """Return a mark of the words and rules, so that prepared data need no generating."""
        files = [Path(str(module.__file__)) for module in (lexicon, grammar, sampling)]
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

    @classmethod
    def load(cls, options: BaseOptions, split: str, cache: Path) -> Corpus:
        """Draw the pairs; the bag of source words is the group."""
        assert isinstance(options, Options)
        texts = _texts(options.seed, options.size)
        part = _parts(split, options)
        pairs = []
        for source, target in texts:
            group = " ".join(sorted(source.split()))
            pairs.append(Pair(source, target, group, part(source)))
        return Corpus(
            pairs=pairs,
            data_hash=hash_pairs(pairs),
            licence="MIT",
            citation="headtohead toy-grammar: generated, after the vocabulary of the notebook "
            "'Understanding and Implementing Transformers from Scratch'",
            languages=("English", "French"),
            notes=_notes(split, options),
        )


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    """Register ``toy-grammar``."""
    return {"toy-grammar": ToyGrammar}


def _texts(seed: int, size: int) -> list[tuple[str, str]]:
    """Return ``size`` distinct pairs; a family that would exceed it is left out."""
    found: dict[str, str] = {}
    idle = 0
    for family in sampling.families(seed):
        new = {one.english(): one.french() for one in family if one.english() not in found}
        if new and len(found) + len(new) <= size:
            found.update(new)
            idle = 0
        if len(found) == size:
            return list(found.items())
        idle += 1
        if idle > PATIENCE:
            raise HeadToHeadError(f"toy-grammar cannot draw {size} distinct pairs; lower size")
    raise AssertionError("families never ends")


def _parts(split: str, options: Options) -> Callable[[str], str | None]:
    if split == "length":
        return lambda source: "test" if len(source.split()) > options.longest_train else None
    if split == "compositional":
        return lambda source: "test" if _held_out(source) else None
    return lambda source: None


def _notes(split: str, options: Options) -> tuple[str, ...]:
    if split == "length":
        return (f"split length: test sentences have more than {options.longest_train} words",)
    if split == "compositional":
        return ("split compositional: test pairs an adjective with a noun as train never does",)
    return ()


def _held_out(source: str) -> bool:
    """Whether a sentence has an adjective and a noun that never meet in training."""
    said = set(source.split())
    return any(
        adjective.english in said and not said.isdisjoint(noun.english)
        for index, adjective in enumerate(lexicon.ADJECTIVES)
        for noun in (lexicon.NOUNS[index], lexicon.NOUNS[-1 - index])
    )
