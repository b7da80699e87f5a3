"""lookup: the source is keys with values, a question mark and a key; the target is the key's value.

Paper: Ba et al. 2016, Using Fast Weights to Attend to the Recent Past, arXiv:1610.06258, section 4.1
(associative retrieval: the target of ``c9k8j3f1??c`` is 9), after the associative recall of Graves et
al. 2014, Neural Turing Machines, arXiv:1410.5401, section 4.3. ``queries`` above 1 is the multi-query
form of Arora et al. 2023, Zoology, arXiv:2312.04927.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from headtohead.data import ComputedDataset, Example, LengthOptions, Task
from headtohead.plugin import Dataset, HeadToHeadError, hookimpl
from headtohead.plugin import Options as BaseOptions


class Options(LengthOptions):
    """The length is the number of key-value pairs; a source of length n has 2n + 1 + queries tokens."""

    longest: int = Field(5, ge=1, le=100, description="key-value pairs of the longest source, L")
    keys: int = Field(
        20, ge=1, le=1000, description="number of keys; a key occurs once in a source"
    )
    values: int = Field(20, ge=2, le=1000, description="number of values")
    queries: int = Field(1, ge=1, le=1000, description="number of distinct keys queried")


class Lookup(ComputedDataset):
    """Generated lists of key-value pairs with queries for some of the keys."""

    phrase = "key-value lookup"
    Options: ClassVar[type[BaseOptions]] = Options

    @classmethod
    def task(cls, options: Any, split: str) -> Task:
        """Generate lists; the same pairs in another order with the same queries are the same example."""
        longest = options.longest_of(split)
        if options.keys < longest:
            raise HeadToHeadError(
                f"lookup: a source of {longest} pairs requires {longest} keys, got {options.keys}; "
                "raise keys or lower longest"
            )
        shortest = options.shortest_of(split)
        if options.queries > shortest:
            raise HeadToHeadError(
                f"lookup: {options.queries} queries require {options.queries} pairs, but the shortest "
                f"source has {shortest}; raise shortest or lower queries"
            )

        def draw(random: np.random.RandomState, length: int) -> Example:
            return _example(random, length, options)

        def capacity(length: int) -> int:
            lists = math.comb(options.keys, length) * options.values**length
            return int(lists * math.perm(length, options.queries))

        return Task(
            languages=("keys, values and queries", "values"),
            citation="Ba et al. 2016, Using Fast Weights to Attend to the Recent Past, section 4.1",
            draw=draw,
            capacity=capacity,
            unit="key-value pairs",
        )


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"lookup": Lookup}


def _example(random: np.random.RandomState, length: int, options: Options) -> Example:
    keys = [f"k{number}" for number in random.permutation(options.keys)[:length]]
    values = [f"v{number}" for number in random.randint(options.values, size=length)]
    queried = random.permutation(length)[: options.queries].tolist()
    entries = [f"{key} {value}" for key, value in zip(keys, values, strict=True)]
    queries = " ".join(keys[index] for index in queried)
    source = f"{' '.join(entries)} ? {queries}"
    target = " ".join(values[index] for index in queried)
    return Example(key=f"{' '.join(sorted(entries))} ? {queries}", pairs=((source, target),))
