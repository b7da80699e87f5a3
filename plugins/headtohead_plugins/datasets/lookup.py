"""lookup: keys with their values, then a question mark and a key; the target is its value.

Source: Ba et al. 2016, Using Fast Weights to Attend to the Recent Past, arXiv:1610.06258, section
4.1 (associative retrieval: ``c9k8j3f1??c`` asks for 9), after the associative recall of Graves et
al. 2014, Neural Turing Machines, arXiv:1410.5401, section 4.3. With ``queries`` above 1 several
keys are asked for, as in the multi-query form of Arora et al. 2023, Zoology, arXiv:2312.04927.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field

from headtohead import Corpus, Dataset, HeadToHeadError, hookimpl
from headtohead import Options as BaseOptions
from headtohead.data import LengthOptions, Question, Task, drawn_corpus


class Options(LengthOptions):
    """A length counts pairs of key and value; a source of n has 2n + 1 + queries tokens."""

    longest: int = Field(5, ge=1, le=100, description="pairs of key and value in the longest, L")
    keys: int = Field(20, ge=1, le=1000, description="number of keys; each once in a source")
    values: int = Field(20, ge=2, le=1000, description="number of values")
    queries: int = Field(1, ge=1, description="keys that are asked for, each once")


class Lookup(Dataset):
    """Seeded lists of keys and values, and which value is wanted."""

    Options: ClassVar[type[BaseOptions]] = Options
    splits: ClassVar[tuple[str, ...]] = ("iid", "length")
    normalise: ClassVar[str] = "none"

    @classmethod
    def load(cls, options: BaseOptions, split: str, cache: Path) -> Corpus:
        """Draw lists; the same pairs in another order, with the same queries, are one question."""
        assert isinstance(options, Options)
        most = options.longest * (2 if split == "length" else 1)
        if options.keys < most:
            raise HeadToHeadError(
                f"lookup: a source of {most} pairs needs {most} keys, got {options.keys}; raise keys or lower longest"
            )
        if options.queries > options.shortest:
            raise HeadToHeadError(
                f"lookup: {options.queries} queries need {options.queries} pairs, and the shortest "
                f"source has {options.shortest}; raise shortest"
            )
        task = Task(
            name="lookup",
            languages=("keys, values and queries", "values"),
            citation="Ba et al. 2016, Using Fast Weights to Attend to the Recent Past, section 4.1",
            draw=lambda random, length: _question(random, length, options),
            capacity=lambda length: (
                math.comb(options.keys, length) * options.values**length * math.perm(length, options.queries)
            ),
            targets_join=False,
            unit="pairs of key and value",
        )
        return drawn_corpus(task, options, split)


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    """Register ``lookup``."""
    return {"lookup": Lookup}


def _question(random: np.random.RandomState, length: int, options: Options) -> Question:
    keys = [f"k{one}" for one in random.permutation(options.keys)[:length]]
    values = [f"v{one}" for one in random.randint(options.values, size=length)]
    asked = [int(one) for one in random.permutation(length)[: options.queries]]
    listed = [f"{key} {value}" for key, value in zip(keys, values, strict=True)]
    queries = " ".join(keys[place] for place in asked)
    return Question(
        key=f"{' '.join(sorted(listed))} ? {queries}",
        pairs=((f"{' '.join(listed)} ? {queries}", " ".join(values[place] for place in asked)),),
    )
