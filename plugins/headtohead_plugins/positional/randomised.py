"""Another encoding, trained on sorted random positions instead of 0, 1, 2, ...

Paper: A. Ruoss et al. "Randomized Positional Encodings Boost Length Generalization of
Transformers". ACL 2023, arXiv:2305.16843, section 3: in training, the positions of a sentence of n
tokens are n numbers of 1..L, sampled without replacement and sorted, so that longer sentences have
no unseen positions.
Departs from the paper: evaluation uses a fixed sorted subset of ``max_length`` numbers, and a
sentence of n tokens has the first n of them. The closer ``max_length`` is to the longest sentence,
the more evaluation resembles training. The authors sample anew for each test batch of known
length. Here each sentence has its own sample, where the authors sample once per batch of sentences
of equal length. The sample has a number per column of the batch, and a shorter sentence has the
smallest of them, so its positions depend on the padding of its batch. ``length_buckets: exact``
reduces padding. With ``alibi``, the numbers are positions and the bias uses their differences; the
authors sample distances.
"""

from functools import partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from headtohead import registered
from headtohead.plugin import Options as BaseOptions
from headtohead.plugin import PerMemberRNG, Positional, Setting, hookimpl, sorted_subset

Inner = Literal["sinusoidal", "rotary", "alibi"]


class RandomisedOptions(BaseOptions):
    """The inner encoding and the range of its positions."""

    of: Inner = Field("sinusoidal", description="the encoding that receives the sampled positions")
    numbers: int = Field(2048, ge=1, le=10**6, description="L: positions are sampled from 1..L")
    max_length: int = Field(
        32,
        ge=1,
        le=100_000,
        description="number of positions in evaluation: the longest sentence in tokens",
    )


def evaluation_positions(positions: Tensor, numbers: int, length: int) -> Tensor:
    """Return the fixed numbers of 1..``numbers`` at ``positions``, of ``length`` in all."""
    generator = torch.Generator().manual_seed(0)
    subsets = sorted_subset(numbers, length, 1, generator)
    fixed = subsets[0].to(positions.device)
    return fixed[positions]


class Randomised(Positional):
    """The inner encoding, with sampled positions in training and fixed ones in evaluation."""

    phrase = "randomised {of:positional}[ from {numbers} numbers][ up to {max_length} tokens]"
    Options = RandomisedOptions
    options: RandomisedOptions

    def build(self) -> None:
        """Create the inner encoding and a stream of random numbers per member."""
        entry: type[Positional] = registered("positional", self.options.of)
        self.inner = entry(entry.Options(), self.context)
        self.rng = PerMemberRNG(self.context)

    @classmethod
    def mechanisms_of(cls, options) -> frozenset[str]:  # type: ignore[no-untyped-def]
        """Return the mechanisms of the inner encoding and ``draw``."""
        entry: type[Positional] = registered("positional", options.of)
        return entry.mechanisms_of(entry.Options()) | {"draw"}

    @classmethod
    def depends_on(cls, options) -> tuple[str, ...]:  # type: ignore[no-untyped-def]
        return (options.of,)

    @classmethod
    def incompatible_with(cls, options, setting: Setting) -> str | None:  # type: ignore[no-untyped-def]
        """Require enough numbers, and what the inner encoding requires."""
        most = options.max_length
        if options.numbers < most:
            return (
                f"randomised cannot sample {most} positions from {options.numbers} numbers; "
                f"set positional.{setting.role}.numbers to at least {most}"
            )
        entry: type[Positional] = registered("positional", options.of)
        return entry.incompatible_with(entry.Options(), setting)

    def formula(self) -> str:
        return (
            f"{self.inner.formula()}, positions: sorted random numbers of 1..{self.options.numbers}"
        )

    def draw(self, batch: int, time: int) -> Tensor:
        """Return a sorted subset of 1..L per sentence, ``[member, batch, time]``."""
        sample = partial(sorted_subset, self.options.numbers, time, batch)
        positions: Tensor = self.rng(sample)
        return positions

    def embed(self, positions: Tensor, role: str) -> Tensor | None:
        inner_positions = self._inner_positions(positions)
        return self.inner.embed(inner_positions, role)

    def rotate(self, x: Tensor, positions: Tensor, role: str, layer: int) -> Tensor:
        inner_positions = self._inner_positions(positions)
        return self.inner.rotate(x, inner_positions, role, layer)

    def bias(
        self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int
    ) -> Tensor | None:
        inner_queries = self._inner_positions(query_positions)
        inner_keys = self._inner_positions(key_positions)
        return self.inner.bias(inner_queries, inner_keys, role, layer)

    def _inner_positions(self, positions: Tensor) -> Tensor:
        if self.training:
            return positions
        numbers = self.options.numbers
        length = self.options.max_length
        return self.cached(evaluation_positions, positions, numbers, length)


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"randomised": Randomised}
