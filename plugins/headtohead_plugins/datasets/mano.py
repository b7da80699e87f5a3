"""mano: an expression in prefix notation with n operations modulo a number; the label is its value.

An expression begins with ``#n`` and ends with ``=n``. The value is the label of the last token. The model learns the
tables of the operations by heart and applies them to a tree that it parses without intermediate results.

Paper: Z. Allen-Zhu. "Physics of Language Models: Part 4.1, Architecture Design and the Magic of Canon Layers".
NeurIPS 2025, arXiv:2512.17351, section 2, task Mano (knowledge manipulation; modulus 23, lengths up to 10, 13 and 16,
tested at the largest); its code: github.com/zhuzeyuan/PhysicsLM4, data-synthetic-pretrain. Its test set is that of
``split: length, test_lengths: [10, 10]``.
Departs from the paper: each token has one form (the code has two, which it says do not matter), examples are distinct,
and only the value is a label.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from headtohead.data import Example, LabelledDataset, LengthOptions, Task
from headtohead.plugin import Dataset, hookimpl
from headtohead.plugin import Options as BaseOptions

OPERATIONS = "+-*"


class Options(LengthOptions):
    """The length is the number of operations; a sequence of n operations has 2n + 3 tokens."""

    longest: int = Field(4, ge=1, le=100, description="operations of the longest expression, L")
    modulus: int = Field(23, ge=2, le=100, description="numbers are from 0 to modulus - 1")


class Mano(LabelledDataset):
    """Generated expressions in prefix notation; the label is their value modulo a number."""

    phrase = "prefix arithmetic[ modulo {modulus}]"
    Options: ClassVar[type[BaseOptions]] = Options
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **LabelledDataset.defaults,
        "data": {"source_boundaries": "none", "target_boundaries": "sos-eos"},
    }

    @classmethod
    def task(cls, options: Any, split: str) -> Task:
        """Generate expressions; each has one value."""
        modulus = options.modulus

        def draw(random: np.random.RandomState, length: int) -> Example:
            numbers = random.randint(modulus, size=length + 1).tolist()
            kinds = random.randint(len(OPERATIONS), size=length)
            operations = [OPERATIONS[kind] for kind in kinds]
            tokens, value = expression(draw_tree(random, length), operations, numbers)
            source = " ".join([f"#{length}", *tokens, f"={length}"])
            return Example(source, ((source, str(value % modulus)),), (2 * length + 2,))

        def capacity(length: int) -> int:
            trees = math.comb(2 * length, length) // (length + 1)  # the Catalan number
            return int(trees * len(OPERATIONS) ** length * modulus ** (length + 1))

        return Task(
            languages=("expressions", f"values modulo {modulus}"),
            citation="Allen-Zhu 2025, Physics of Language Models: Part 4.1, section 2",
            draw=draw,
            capacity=capacity,
            unit="operations",
        )


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"mano": Mano}


def draw_tree(random: np.random.RandomState, length: int) -> list[bool]:
    """Return a random tree with this number of operations, in prefix notation.

    True stands for an operation, False for a number. Every number of operations of a left operand is equally likely.
    """
    tree: list[bool] = []
    sizes = [length]
    while sizes:
        size = sizes.pop()
        tree.append(size > 0)
        if size:
            left = int(random.randint(size))
            sizes += [size - 1 - left, left]
    return tree


def expression(
    tree: Sequence[bool], operations: Sequence[str], numbers: Sequence[int]
) -> tuple[list[str], int]:
    """Return the tokens of an expression and its value.

    Args:
        tree: From `draw_tree`.
        operations: The operations in the order of their tokens.
        numbers: The numbers in the order of their tokens.
    """
    next_operation = iter(operations)
    next_number = iter(numbers)
    tokens: list[str] = []
    for is_operation in tree:
        tokens.append(next(next_operation) if is_operation else str(next(next_number)))
    operands: list[int] = []
    for token in reversed(tokens):  # the operands of an operation are complete when it is reached
        if token in OPERATIONS:
            a = operands.pop()
            b = operands.pop()
            operands.append({"+": a + b, "-": a - b, "*": a * b}[token])
        else:
            operands.append(int(token))
    return tokens, operands[0]
