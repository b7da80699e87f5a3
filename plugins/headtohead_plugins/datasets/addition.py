"""addition: two numbers of n digits, digit by digit; the target is their sum.

Source: Lee et al. 2023, Teaching Arithmetic to Small Transformers, arXiv:2307.03381, section 3:
``reverse`` is its reversed form, in which a digit of the sum depends on what has been written and
not on what follows.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field

from headtohead import Corpus, Dataset, hookimpl
from headtohead import Options as BaseOptions
from headtohead.data import LengthOptions, Question, Task, drawn_corpus


class Options(LengthOptions):
    """A length counts the digits of each number; a source of n has 2n + 1 tokens."""

    longest: int = Field(4, ge=1, le=17, description="digits of the longest numbers, L")
    reverse: bool = Field(False, description="the sum from its units on, instead of to them")


class Addition(Dataset):
    """Seeded pairs of numbers of equally many digits, and their sum."""

    Options: ClassVar[type[BaseOptions]] = Options
    splits: ClassVar[tuple[str, ...]] = ("iid", "length")
    normalise: ClassVar[str] = "none"

    @classmethod
    def load(cls, options: BaseOptions, split: str, cache: Path) -> Corpus:
        """Draw numbers; ``a + b`` and ``b + a`` are one question, asked once."""
        assert isinstance(options, Options)
        task = Task(
            name="addition",
            languages=("two numbers", "the sum, reversed" if options.reverse else "the sum"),
            citation="Lee et al. 2023, Teaching Arithmetic to Small Transformers",
            draw=lambda random, length: _question(random, length, options.reverse),
            capacity=lambda length: _numbers(length) * (_numbers(length) + 1) // 2,
            targets_join=False,
            unit="digits",
        )
        return drawn_corpus(task, options, split)


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    """Register ``addition``."""
    return {"addition": Addition}


def _numbers(length: int) -> int:
    """Return how many numbers have so many digits; 0 has one."""
    return 10 if length == 1 else 9 * 10 ** (length - 1)


def _question(random: np.random.RandomState, length: int, reverse: bool) -> Question:
    one, two = (_number(random, length) for _ in range(2))
    total = str(one + two)
    source = f"{' '.join(str(one))} + {' '.join(str(two))}"
    target = " ".join(reversed(total) if reverse else total)
    return Question(key=f"{min(one, two)} + {max(one, two)}", pairs=((source, target),))


def _number(random: np.random.RandomState, length: int) -> int:
    digits = random.randint(10, size=length)
    if length > 1:
        digits[0] = random.randint(1, 10)
    return int("".join(str(digit) for digit in digits))
