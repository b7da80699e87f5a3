"""modular-arithmetic: the source is an expression of n numbers below a modulus; the target is its value.

Levels in the Chomsky hierarchy: regular without brackets (the paper's "modular arithmetic (simple)"), deterministic
context-free with them. Without brackets, products precede sums and differences.

Paper: G. Delétang et al. "Neural Networks and the Chomsky Hierarchy". ICLR 2023, arXiv:2207.02098, section 4 and
appendix A.1 (modulus 5; trained on lengths up to 40, tested up to 500).
Departs from the paper: an example of length n has n numbers, and with brackets every operation has its own pair.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from headtohead.data import EXACT_MATCH, ComputedDataset, Example, LengthOptions, Metric, Task
from headtohead.plugin import Dataset, hookimpl
from headtohead.plugin import Options as BaseOptions

OPERATIONS = "+-*"


class Options(LengthOptions):
    """The length is the number of numbers; a source of n numbers has 2n - 1 tokens, with brackets 4n - 3."""

    shortest: int = Field(2, ge=1, le=250, description="numbers of the shortest expression")
    longest: int = Field(8, ge=1, le=250, description="numbers of the longest expression, L")
    modulus: int = Field(5, ge=2, le=100, description="numbers are from 0 to modulus - 1")
    brackets: bool = Field(False, description="every operation in brackets, in a random tree")


class ModularArithmetic(ComputedDataset):
    """Generated expressions and their values modulo a number."""

    phrase = "modular arithmetic"
    Options: ClassVar[type[BaseOptions]] = Options
    metrics: ClassVar[tuple[Metric, ...]] = (EXACT_MATCH,)

    @classmethod
    def task(cls, options: Any, split: str) -> Task:
        """Generate expressions; each has one value."""

        def draw(random: np.random.RandomState, length: int) -> Example:
            if options.brackets:
                words, value = _tree(random, length, options.modulus)
            else:
                words, value = _chain(random, length, options.modulus)
            text = " ".join(words)
            target = str(value % options.modulus)
            return Example(key=text, pairs=((text, target),))

        return Task(
            languages=("expressions", f"values modulo {options.modulus}"),
            citation="Delétang et al. 2023, Neural Networks and the Chomsky Hierarchy, appendix A.1",
            draw=draw,
            capacity=lambda length: options.modulus**length * len(OPERATIONS) ** (length - 1),
            unit="numbers",
        )


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"modular-arithmetic": ModularArithmetic}


def _chain(random: np.random.RandomState, length: int, modulus: int) -> tuple[list[str], int]:
    """Return the words and the value of an expression without brackets."""
    first, *numbers = random.randint(modulus, size=length).tolist()
    operations = random.randint(len(OPERATIONS), size=length - 1).tolist()
    words = [str(first)]
    total = 0  # the sum of all products that are complete
    product = first
    for number, index in zip(numbers, operations, strict=True):
        operation = OPERATIONS[index]
        words += [operation, str(number)]
        if operation == "*":
            product *= number
        else:
            total += product
            product = number if operation == "+" else -number
    return words, total + product


def _tree(random: np.random.RandomState, length: int, modulus: int) -> tuple[list[str], int]:
    """Return the words and the value of an expression with brackets."""
    if length == 1:
        number = int(random.randint(modulus))
        return [str(number)], number
    left_length = int(random.randint(1, length))
    left, a = _tree(random, left_length, modulus)
    right, b = _tree(random, length - left_length, modulus)
    operation = OPERATIONS[random.randint(len(OPERATIONS))]
    value = {"+": a + b, "-": a - b, "*": a * b}[operation]
    return ["(", *left, operation, *right, ")"], value % modulus
