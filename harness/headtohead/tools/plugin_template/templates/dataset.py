"""my-idea: letters of which each is to be said twice; the right answer can be computed.

Source: where the pairs come from, and under which licence.
"""

import random
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from headtohead import Corpus, Dataset, HeadToHeadError, Pair, hookimpl
from headtohead import Options as BaseOptions
from headtohead.data import hash_pairs

LETTERS = "abcdefgh"


class MyIdeaOptions(BaseOptions):
    """How many pairs are drawn, and where the split ``length`` cuts."""

    size: int = Field(2000, ge=50, le=50_000, description="distinct pairs")
    seed: int = Field(1, ge=1, description="seed of the generator; data.seed is that of the split")
    longest_train: int = Field(6, ge=4, le=12, description="split length: letters of the longest training source")


class MyIdea(Dataset):
    """Seeded rows of letters, each said twice."""

    Options = MyIdeaOptions
    splits = ("grouped", "length", "row")
    normalise = "none"

    @classmethod
    def load(cls, options: BaseOptions, split: str, cache: Path) -> Corpus:
        """Draw the pairs; the split ``length`` tests on rows up to twice as long."""
        assert isinstance(options, MyIdeaOptions)
        pairs = list(drawn(options, split))
        return Corpus(
            pairs=pairs,
            data_hash=hash_pairs(pairs),
            licence="public domain",
            citation="my-idea: generated",
            languages=("letters", "letters, each twice"),
        )


def answer(source: str) -> str:
    """Return the one right target.

    >>> answer("c a b")
    'c c a a b b'
    """
    return " ".join(f"{letter} {letter}" for letter in source.split())


def drawn(options: MyIdeaOptions, split: str) -> Iterator[Pair]:
    """Yield distinct pairs, each a group of its own."""
    generator = random.Random(options.seed)
    longest = options.longest_train * (2 if split == "length" else 1)
    seen: set[str] = set()
    for _ in range(100 * options.size):
        if len(seen) == options.size:
            return
        letters = generator.choices(LETTERS, k=generator.randint(1, longest))
        source = " ".join(letters)
        if source not in seen:
            seen.add(source)
            beyond = split == "length" and len(letters) > options.longest_train
            yield Pair(source, answer(source), source, "test" if beyond else None)
    if len(seen) < options.size:
        raise HeadToHeadError(f"my-idea cannot draw {options.size} distinct pairs; lower size")


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    """Register ``my-idea``."""
    return {"my-idea": MyIdea}
