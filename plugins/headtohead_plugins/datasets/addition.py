"""addition: the source is two numbers of n digits, digit by digit; the target is their sum.

Paper: Lee et al. 2023, Teaching Arithmetic to Small Transformers, arXiv:2307.03381, section 3.
``reverse`` is the paper's reversed format, in which each digit of the sum depends on earlier
digits only.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field

from headtohead.data import Example, LengthOptions, Task, generate_corpus
from headtohead.plugin import Corpus, Dataset, hookimpl
from headtohead.plugin import Options as BaseOptions


class Options(LengthOptions):
    """The length is the number of digits of each number; a source of length n has 2n + 1 tokens."""

    longest: int = Field(4, ge=1, le=17, description="digits of the longest numbers, L")
    reverse: bool = Field(False, description="write the sum with the units digit first")


class Addition(Dataset):
    """Generated pairs of numbers with equally many digits, and their sums."""

    Options: ClassVar[type[BaseOptions]] = Options
    splits: ClassVar[tuple[str, ...]] = ("iid", "length")
    normalise: ClassVar[str] = "none"

    @classmethod
    def load(cls, options: BaseOptions, split: str, cache: Path) -> Corpus:
        """Generate pairs of numbers; ``a + b`` and ``b + a`` are the same example."""
        assert isinstance(options, Options)
        task = Task(
            name="addition",
            languages=("two numbers", "the sum, reversed" if options.reverse else "the sum"),
            citation="Lee et al. 2023, Teaching Arithmetic to Small Transformers",
            draw=lambda random, length: _example(random, length, options.reverse),
            capacity=lambda length: _numbers(length) * (_numbers(length) + 1) // 2,
            targets_join=False,
            unit="digits",
        )
        return generate_corpus(task, options, split)


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"addition": Addition}


def _numbers(length: int) -> int:
    """Return how many numbers have ``length`` digits; 0 has one digit."""
    return 10 if length == 1 else 9 * 10 ** (length - 1)


def _example(random: np.random.RandomState, length: int, reverse: bool) -> Example:
    a, b = (_number(random, length) for _ in range(2))
    total = str(a + b)
    source = f"{' '.join(str(a))} + {' '.join(str(b))}"
    target = " ".join(reversed(total) if reverse else total)
    return Example(key=f"{min(a, b)} + {max(a, b)}", pairs=((source, target),))


def _number(random: np.random.RandomState, length: int) -> int:
    digits = random.randint(10, size=length)
    if length > 1:
        digits[0] = random.randint(1, 10)
    return int("".join(str(digit) for digit in digits))
