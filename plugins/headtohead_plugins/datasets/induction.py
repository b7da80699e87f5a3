"""induction: the last token of a sequence is a special token that occurred before; the label is the token after it.

Papers: D. Fu et al. "Hungry Hungry Hippos: Towards Language Modeling with State Space Models". ICLR 2023,
arXiv:2212.14052, section 3.1 (induction head); A. Gu, T. Dao. "Mamba". COLM 2024, arXiv:2312.00752, section 4.1.2
(trained at length 256 with 16 tokens, tested up to 2^20). C. Olsson et al. "In-context Learning and Induction Heads",
2022, arXiv:2209.11895, describe the circuit: two layers, or one with a convolution of keys.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from headtohead.data import Example, LabelledDataset, LengthOptions, Task
from headtohead.plugin import Dataset, hookimpl
from headtohead.plugin import Options as BaseOptions

SPECIAL = "!"


class Options(LengthOptions):
    """The length is the number of tokens of a sequence, both special tokens included."""

    shortest: int = Field(16, ge=3, le=1000, description="tokens of the shortest sequence")
    longest: int = Field(32, ge=3, le=1000, description="tokens of the longest sequence, L")
    alphabet: int = Field(
        15, ge=2, le=10_000, description="number of tokens without the special token"
    )


class Induction(LabelledDataset):
    """Generated sequences whose last token repeats an earlier one; the label is the token that followed."""

    phrase = "induction"
    Options: ClassVar[type[BaseOptions]] = Options

    @classmethod
    def task(cls, options: Any, split: str) -> Task:
        """Generate sequences; two with the same tokens are the same example."""

        def draw(random: np.random.RandomState, length: int) -> Example:
            words = [f"t{number}" for number in random.randint(options.alphabet, size=length)]
            position = int(random.randint(length - 2))
            words[position] = words[-1] = SPECIAL
            text = " ".join(words)
            label = words[position + 1]
            return Example(key=text, pairs=((text, label),), labelled=(length - 1,))

        return Task(
            languages=("tokens with a repeated special token", "the token after it"),
            citation="Fu et al. 2023, Hungry Hungry Hippos, section 3.1",
            draw=draw,
            capacity=lambda length: (length - 2) * options.alphabet ** (length - 2),
            unit="tokens",
        )


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"induction": Induction}
