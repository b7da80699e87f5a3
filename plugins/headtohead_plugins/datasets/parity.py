"""parity: the source is n binary digits; the target is 1 if the number of ones is odd, else 0.

Level in the Chomsky hierarchy: regular. Encoder-decoders read the source; decoder-only models read source and target.

Paper: G. Delétang et al. "Neural Networks and the Chomsky Hierarchy". ICLR 2023, arXiv:2207.02098, section 4 and
appendix A.1 (parity check; trained on lengths up to 40, tested up to 500).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from headtohead.data import EXACT_MATCH, ComputedDataset, Example, LengthOptions, Metric, Task
from headtohead.plugin import Dataset, hookimpl
from headtohead.plugin import Options as BaseOptions


class Options(LengthOptions):
    """The length is the number of digits."""

    longest: int = Field(20, ge=1, le=500, description="digits of the longest source, L")


class Parity(ComputedDataset):
    """Generated binary digits, and whether the number of ones is odd."""

    phrase = "parity"
    Options: ClassVar[type[BaseOptions]] = Options
    metrics: ClassVar[tuple[Metric, ...]] = (EXACT_MATCH,)

    @classmethod
    def task(cls, options: Any, split: str) -> Task:
        """Generate sources; each has one target."""

        def draw(random: np.random.RandomState, length: int) -> Example:
            digits = random.randint(2, size=length)
            text = " ".join(map(str, digits))
            target = str(digits.sum() % 2)
            return Example(key=text, pairs=((text, target),))

        return Task(
            languages=("binary digits", "parity"),
            citation="Delétang et al. 2023, Neural Networks and the Chomsky Hierarchy, appendix A.1",
            draw=draw,
            capacity=lambda length: 2**length,
            unit="digits",
        )


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"parity": Parity}
