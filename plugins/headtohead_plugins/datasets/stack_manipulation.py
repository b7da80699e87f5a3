"""stack-manipulation: the source is the content of a stack and n operations; the target is the content after them.

The target begins with the top of the stack.

Level in the Chomsky hierarchy: deterministic context-free. ``copy`` (context-sensitive), ``reverse`` (deterministic
context-free) and ``addition`` with reversed digits (context-sensitive) are close to further tasks of the paper.

Paper: G. Delétang et al. "Neural Networks and the Chomsky Hierarchy". ICLR 2023, arXiv:2207.02098, section 4 and
appendix A.1 (stack manipulation; trained on lengths up to 40, tested up to 500).
Departs from the paper: the target has no padding up to a fixed length; "empty" stands for an empty stack.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from headtohead.data import EXACT_MATCH, ComputedDataset, Example, LengthOptions, Metric, Task
from headtohead.plugin import Dataset, hookimpl
from headtohead.plugin import Options as BaseOptions

OPERATIONS = ("pop", "push 0", "push 1")


class Options(LengthOptions):
    """The length is the number of symbols of the content and of operations, half each."""

    shortest: int = Field(
        2, ge=1, le=500, description="symbols and operations of the shortest source"
    )
    longest: int = Field(
        16, ge=1, le=500, description="symbols and operations of the longest source, L"
    )


class StackManipulation(ComputedDataset):
    """Generated stacks of binary symbols with operations, and the stacks after them."""

    phrase = "stack manipulation"
    Options: ClassVar[type[BaseOptions]] = Options
    metrics: ClassVar[tuple[Metric, ...]] = (EXACT_MATCH,)

    @classmethod
    def task(cls, options: Any, split: str) -> Task:
        """Generate stacks and operations; each source has one target."""
        return Task(
            languages=("a stack and operations", "the stack after them"),
            citation="Delétang et al. 2023, Neural Networks and the Chomsky Hierarchy, appendix A.1",
            draw=_example,
            capacity=_capacity,
            unit="symbols and operations",
        )


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"stack-manipulation": StackManipulation}


def _capacity(length: int) -> int:
    symbols = length // 2
    return int(2**symbols * len(OPERATIONS) ** (length - symbols))


def _example(random: np.random.RandomState, length: int) -> Example:
    stack = [str(symbol) for symbol in random.randint(2, size=length // 2)]
    kinds = random.randint(len(OPERATIONS), size=length - len(stack))
    operations = [OPERATIONS[kind] for kind in kinds]
    text = " ".join([*stack, "then", *operations])  # the top of the stack is its last symbol
    for operation in operations:
        if operation != "pop":
            stack.append(operation[-1])
        elif stack:
            stack.pop()
    target = " ".join(reversed(stack)) or "empty"
    return Example(key=text, pairs=((text, target),))
