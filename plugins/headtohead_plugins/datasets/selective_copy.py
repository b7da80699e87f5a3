"""selective-copy: the labels are the data tokens of a sequence of data and noise, in their order.

A sequence has ``data_tokens`` tokens at random positions among noise, and ends with as many tokens ``>``. The labels of
these are the data tokens in the order of the sequence. The distances vary, so fixed convolutions do not suffice.

Papers: A. Gu, T. Dao. "Mamba: Linear-Time Sequence Modeling with Selective State Spaces". COLM 2024, arXiv:2312.00752,
section 4.1.1 (length 4096, 16 data tokens of 16 kinds); after the denoising task of L. Jing et al. "Gated Orthogonal
Recurrent Units", Neural Computation 2019, arXiv:1706.02761.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from headtohead.data import Example, LabelledDataset, LengthOptions, Task
from headtohead.plugin import Dataset, HeadToHeadError, hookimpl
from headtohead.plugin import Options as BaseOptions

NOISE = "."
ANSWER = ">"


class Options(LengthOptions):
    """The length is the number of data and noise tokens; a sequence of length n has n + data_tokens tokens."""

    shortest: int = Field(
        16, ge=1, le=10_000, description="data and noise of the shortest sequence"
    )
    longest: int = Field(
        32, ge=1, le=10_000, description="data and noise of the longest sequence, L"
    )
    data_tokens: int = Field(8, ge=1, le=1000, description="data tokens of a sequence")
    alphabet: int = Field(15, ge=2, le=10_000, description="number of different data tokens")


class SelectiveCopy(LabelledDataset):
    """Generated sequences of data and noise; the labels are the data in their order."""

    phrase = "selective copying"
    Options: ClassVar[type[BaseOptions]] = Options

    @classmethod
    def task(cls, options: Any, split: str) -> Task:
        """Generate sequences; two with the same tokens are the same example."""
        count = options.data_tokens
        shortest = options.shortest_of(split)
        if shortest < count:
            raise HeadToHeadError(
                f"selective-copy: {count} data tokens require a length of {count}, but the shortest is {shortest}; "
                "raise shortest or lower data_tokens"
            )

        def draw(random: np.random.RandomState, length: int) -> Example:
            data = [f"t{number}" for number in random.randint(options.alphabet, size=count)]
            positions = np.sort(random.permutation(length)[:count])
            words = [NOISE] * length + [ANSWER] * count
            for position, token in zip(positions.tolist(), data, strict=True):
                words[position] = token
            source = " ".join(words)
            target = " ".join(data)
            answers = range(length, length + count)
            return Example(key=source, pairs=((source, target),), labelled=tuple(answers))

        return Task(
            languages=("data and noise", "the data"),
            citation="Gu and Dao 2024, Mamba, section 4.1.1",
            draw=draw,
            capacity=lambda length: math.comb(length, count) * options.alphabet**count,
            unit="tokens of data and noise",
        )


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"selective-copy": SelectiveCopy}
