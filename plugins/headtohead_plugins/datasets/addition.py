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

    Options: ClassVar[type[BaseOptions]] = Options

    @classmethod
    def task(cls, options: Any, split: str) -> Task:
        """Generate pairs of numbers; ``a + b`` and ``b + a`` are the same example."""
        is_reversed = options.digit_order == "reversed"
        return Task(
            languages=(
                "two numbers",
                "the sum",
            ),  # the same of both orders, so that they are compared
            citation="Lee et al. 2023, Teaching Arithmetic to Small Transformers",
            draw=lambda random, length: _example(random, length, is_reversed),
            capacity=lambda length: _numbers(length) * (_numbers(length) + 1) // 2,
            unit="digits",
        )


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"addition": Addition}


def _numbers(length: int) -> int:
    """Return how many numbers have ``length`` digits; 0 has one digit."""
    return 10 if length == 1 else 9 * 10 ** (length - 1)


def _example(random: np.random.RandomState, length: int, is_reversed: bool) -> Example:
    a, b = (_number(random, length) for _ in range(2))
    total = str(a + b)
    source = f"{' '.join(str(a))} + {' '.join(str(b))}"
    target = " ".join(reversed(total) if is_reversed else total)
    return Example(key=f"{min(a, b)} + {max(a, b)}", pairs=((source, target),))


def _number(random: np.random.RandomState, length: int) -> int:
    digits = random.randint(10, size=length)
    if length > 1:
        digits[0] = random.randint(1, 10)
    return int("".join(str(digit) for digit in digits))
