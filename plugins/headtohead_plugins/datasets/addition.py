"""addition: the source is two numbers of n digits, digit by digit; the target is their sum.

Paper: Lee et al. 2023, Teaching Arithmetic to Small Transformers, arXiv:2307.03381, section 3.
With ``digit_order: reversed``, the paper's reversed format, each digit of the sum depends on the last digit and on
the digits of the source at its position. Deletang et al. 2023 (see parity) count binary addition, reversed, among the
context-sensitive tasks.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from headtohead.data import ComputedDataset, Example, LengthOptions, Task
from headtohead.plugin import Dataset, hookimpl
from headtohead.plugin import Options as BaseOptions


class Options(LengthOptions):
    """The length is the number of digits of each number; a source of length n has 2n + 1 tokens."""

    longest: int = Field(4, ge=1, le=17, description="digits of the longest numbers, L")
    digit_order: Literal["plain", "reversed"] = Field(
        "plain", description="reversed: the sum has its units digit first"
    )


class Addition(ComputedDataset):
    """Generated pairs of numbers with equally many digits, and their sums."""

    phrase = "addition[ with a {digit_order} digit order]"
    Options: ClassVar[type[BaseOptions]] = Options

    @classmethod
    def task(cls, options: Any, split: str) -> Task:
        """Generate pairs of numbers; ``a + b`` and ``b + a`` are the same example."""

        def draw(random: np.random.RandomState, length: int) -> Example:
            return _example(random, length, is_reversed=options.digit_order == "reversed")

        def capacity(length: int) -> int:
            numbers = _count_numbers(length)
            return numbers * (numbers + 1) // 2

        return Task(
            # The same languages for both orders of digits, so that reports compare the orders.
            languages=("two numbers", "the sum"),
            citation="Lee et al. 2023, Teaching Arithmetic to Small Transformers",
            draw=draw,
            capacity=capacity,
            unit="digits",
        )


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"addition": Addition}


def _count_numbers(length: int) -> int:
    """Return how many numbers have ``length`` digits; 0 has one digit."""
    if length == 1:
        return 10
    return int(9 * 10 ** (length - 1))


def _example(random: np.random.RandomState, length: int, *, is_reversed: bool) -> Example:
    a = _number(random, length)
    b = _number(random, length)
    total = str(a + b)
    if is_reversed:
        total = total[::-1]
    source = f"{_spaced(a)} + {_spaced(b)}"
    return Example(key=f"{min(a, b)} + {max(a, b)}", pairs=((source, " ".join(total)),))


def _spaced(number: int) -> str:
    return " ".join(str(number))


def _number(random: np.random.RandomState, length: int) -> int:
    digits = random.randint(10, size=length)
    if length > 1:
        digits[0] = random.randint(1, 10)
    return int("".join(str(digit) for digit in digits))
