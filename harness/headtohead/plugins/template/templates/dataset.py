"""my-idea: sequences of letters, translated by repeating each letter.

Source: where the pairs come from, and under which licence.
"""

import random
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from headtohead.plugin import Corpus, Dataset, HeadToHeadError, Pair, hookimpl
from headtohead.plugin import Options as BaseOptions

LETTERS = "abcdefgh"


class MyIdeaOptions(BaseOptions):
    """Options of ``my-idea``."""

    size: int = Field(2000, ge=50, le=50_000, description="number of distinct pairs")
    seed: int = Field(1, ge=1, description="seed of the generator; data.seed is the seed of the split")
    longest_train: int = Field(6, ge=4, le=12, description="maximum length of a training source in the split `length`")


class MyIdea(Dataset):
    """Random sequences of letters; the target repeats each letter."""

    Options = MyIdeaOptions
    splits = ("grouped", "length", "row")
    normalise = "none"

    @classmethod
    def load(cls, options: BaseOptions, split: str, cache: Path) -> Corpus:
        """Generate the pairs; the split ``length`` tests on sources up to twice as long as in training."""
        assert isinstance(options, MyIdeaOptions)
        pairs = list(generate_pairs(options, split))
        return Corpus(
            pairs=pairs,
            licence="public domain",
            citation="my-idea: generated",
            languages=("letters", "repeated letters"),
        )


def translate(source: str) -> str:
    """Return the only correct target.

    >>> translate("c a b")
    'c c a a b b'
    """
    return " ".join(f"{letter} {letter}" for letter in source.split())


def generate_pairs(options: MyIdeaOptions, split: str) -> Iterator[Pair]:
    """Yield distinct pairs, each in its own group."""
    rng = random.Random(options.seed)
    max_length = options.longest_train * (2 if split == "length" else 1)
    sources: set[str] = set()
    for _ in range(100 * options.size):
        if len(sources) == options.size:
            return
        letters = rng.choices(LETTERS, k=rng.randint(1, max_length))
        source = " ".join(letters)
        if source not in sources:
            sources.add(source)
            is_longer = split == "length" and len(letters) > options.longest_train
            yield Pair(source, translate(source), group=source, split="test" if is_longer else None)
    if len(sources) < options.size:
        raise HeadToHeadError(f"my-idea cannot generate {options.size} distinct pairs; reduce size")


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"my-idea": MyIdea}
