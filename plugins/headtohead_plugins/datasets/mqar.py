"""mqar: multi-query associative recall; the labels are the values of keys that occur a second time in a sequence.

A sequence begins with n distinct keys, each followed by its value. Of the rest, every second position can be a query.
Each key is the query at one of them, chosen without replacement with probabilities proportional to g^(power_a - 1) at
the g-th position: short distances are more frequent. The label of a query is its key's value. All other
positions have random tokens and no label.

A level is the number of tokens and of key-value pairs, such as ``64x4``. Figure 2 of the paper has 64x4, 128x8 and
256x16. ``original`` are the levels of ``original_mqar_configs`` of the paper's code: 64x4, 128x8, 256x16, 256x32 and
256x64 for training, and 64x4, 64x8, 64x16, 128x32, 256x64, 512x128 and 1024x256 for the test.

Paper: S. Arora et al. "Zoology: Measuring and Improving Recall in Efficient Language Models". ICLR 2024,
arXiv:2312.04927, section 4.1 and appendix E; its code: github.com/HazyResearch/zoology.
Departs from the paper: levels have equally many training examples (the code has 100,000 of 64x4 and 20,000 of each
other level), and tokens that are no query are random keys or values, without the token 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from headtohead.data import Example, LabelledDataset, SizeOptions, Task
from headtohead.plugin import Dataset, hookimpl
from headtohead.plugin import Options as BaseOptions

ORIGINAL = {
    "train": ("64x4", "128x8", "256x16", "256x32", "256x64"),
    "test": ("64x4", "64x8", "64x16", "128x32", "256x64", "512x128", "1024x256"),
}
Level = Annotated[str, Field(pattern="^(original|[1-9][0-9]{0,3}x[1-9][0-9]{0,3})$")]


class Options(SizeOptions):
    """Levels, tokens and distances."""

    levels: tuple[Level, ...] = Field(
        ("64x4",), min_length=1, description="tokens x key-value pairs, or original"
    )
    test_levels: tuple[Level, ...] = Field(
        (), description="split length: levels of the test part; default: levels"
    )
    alphabet: int = Field(
        8192, ge=4, le=100_000, description="number of tokens: half of them keys, half values"
    )
    power_a: float = Field(
        0.01, gt=0, le=10, description="exponent of the distances; 1 is a uniform distribution"
    )
    random_non_queries: bool = Field(
        True, description="random tokens between the queries; false: the token 'none'"
    )

    def lengths(self, part: str = "train") -> Sequence[str]:
        """Return the levels of a part."""
        named = self.levels
        if part == "test" and self.test_levels:
            named = self.test_levels
        levels: list[str] = []
        for name in named:
            levels += ORIGINAL[part] if name == "original" else [name]
        return list(dict.fromkeys(levels))

    def contradiction(self, split: str) -> str | None:
        """Return which level is impossible, or None."""
        levels = [*self.lengths()]
        if split == "length":
            levels += self.lengths("test")
        for level in levels:
            tokens, pairs = sizes(level)
            if tokens % 2 or tokens < 4 * pairs:
                return f"level {level} requires an even number of at least {4 * pairs} tokens"
            if pairs > self.alphabet // 2:
                return f"level {level} requires an alphabet of at least {2 * pairs}, got {self.alphabet}"
        return None


def sizes(level: str) -> tuple[int, int]:
    """Return the tokens and the key-value pairs of a level."""
    tokens, pairs = level.split("x")
    return int(tokens), int(pairs)


class MultiQueryRecall(LabelledDataset):
    """Generated sequences of keys and values; the labels are the values of keys that occur again."""

    phrase = "multi-query recall"
    Options: ClassVar[type[BaseOptions]] = Options

    @classmethod
    def task(cls, options: Any, split: str) -> Task:
        """Generate sequences; two with the same tokens are the same example."""

        def draw(random: np.random.RandomState, level: str) -> Example:
            tokens, pairs = sizes(level)
            return _example(random, tokens, pairs, options)

        def capacity(level: str) -> int:
            tokens, pairs = sizes(level)
            half = int(options.alphabet) // 2
            lists = math.perm(half, pairs) ** 2
            places = tokens // 2 - pairs
            if not options.random_non_queries:
                return lists * math.perm(places, pairs)
            # Every second position has every key at least once (inclusion and exclusion), the others any token.
            queried = 0
            for absent in range(pairs + 1):
                without = math.comb(pairs, absent) * (2 * half - absent) ** places
                queried += without if absent % 2 == 0 else -without
            return int(lists * queried * (2 * half) ** places)

        return Task(
            languages=("keys, values and queries", "values"),
            citation="Arora et al. 2024, Zoology, section 4.1",
            draw=draw,
            capacity=capacity,
            unit="tokens x pairs",
        )


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"mqar": MultiQueryRecall}


def _example(random: np.random.RandomState, tokens: int, pairs: int, options: Options) -> Example:
    half = options.alphabet // 2
    keys = [f"k{number}" for number in random.choice(half, pairs, replace=False)]
    values = [f"v{number}" for number in random.choice(half, pairs, replace=False)]
    places = (tokens - 2 * pairs) // 2
    weights = np.arange(1, places + 1, dtype=np.float64) ** (options.power_a - 1)
    chosen = random.choice(places, pairs, replace=False, p=weights / weights.sum())
    numbers = random.randint(2 * half, size=tokens)  # drawn in both cases: equal keys and queries
    words = ["none"] * tokens
    if options.random_non_queries:
        words = [f"k{number}" if number < half else f"v{number - half}" for number in numbers]
    words[: 2 * pairs : 2] = keys
    words[1 : 2 * pairs : 2] = values
    labels: dict[int, str] = {}
    for place, key, value in zip(chosen.tolist(), keys, values, strict=True):
        position = 2 * pairs + 2 * place
        words[position] = key
        labels[position] = value
    labelled = sorted(labels)
    source = " ".join(words)
    target = " ".join(labels[position] for position in labelled)
    return Example(key=source, pairs=((source, target),), labelled=tuple(labelled))
