"""Another encoding, trained on sorted random numbers in place of 1, 2, 3, ...

Paper: A. Ruoss et al. "Randomized Positional Encodings Boost Length Generalization of
Transformers". ACL 2023, arXiv:2305.16843, section 3: a training sentence of n tokens is told n
numbers of 1..L, drawn without replacement and sorted, so that longer sentences bring no new one.
Departs from the paper: evaluation tells one fixed sorted subset of ``max_length`` numbers, of which
a sentence takes the first n (the nearer ``max_length`` to the longest sentence, the more evaluation
resembles training); the authors draw anew for each test batch, whose length is known. Each sentence
draws for itself, where their batches draw once. With ``alibi``, numbers are positions, whose
differences count; theirs are distances.
"""

from functools import partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from headtohead import Options as BaseOptions
from headtohead import PerMemberRNG, Positional, Setting, hookimpl, registered, sorted_subset

Inner = Literal["sinusoidal", "rotary", "alibi"]


class RandomisedOptions(BaseOptions):
    """What is told the numbers, and how many there are."""

    of: Inner = Field("sinusoidal", description="the encoding that is told the numbers")
    numbers: int = Field(2048, ge=1, description="L: training draws from 1 to here")
    max_length: int = Field(32, ge=1, description="places that evaluation has numbers for")


def evaluated(positions: Tensor, numbers: int, places: int) -> Tensor:
    """Return what evaluation tells for the first of so many places."""
    told = sorted_subset(numbers, places, 1, torch.Generator().manual_seed(0))[0]
    return told.to(positions.device)[positions]


class Randomised(Positional):
    """An encoding that trains on numbers with gaps."""

    Options = RandomisedOptions
    options: RandomisedOptions

    def build(self) -> None:
        """Make the encoding, and each member's stream of numbers."""
        entry = registered("positional", self.options.of)
        self.inner = entry(entry.Options(), self.context)
        self.draws = PerMemberRNG(self.context)

    @classmethod
    def acts(cls, options) -> frozenset[str]:  # type: ignore[no-untyped-def]
        """Return how the encoding acts, and that positions are drawn."""
        entry = registered("positional", options.of)
        return entry.acts(entry.Options()) | {"draw"}

    @classmethod
    def depends_on(cls, options) -> tuple[str, ...]:  # type: ignore[no-untyped-def]
        """Return the encoding that is told the numbers."""
        return (options.of,)

    @classmethod
    def incompatible_with(cls, options, setting: Setting) -> str | None:  # type: ignore[no-untyped-def]
        """Refuse too few numbers, and what the encoding itself refuses."""
        most = options.max_length
        if options.numbers < most:
            return (
                f"randomised cannot draw {most} of {options.numbers} numbers; "
                f"set positional.{setting.role}.numbers to at least {most}"
            )
        entry = registered("positional", options.of)
        return entry.incompatible_with(entry.Options(), setting)

    def formula(self) -> str:
        """Return the encoding's, and what its positions are."""
        return f"{self.inner.formula()}, told sorted random numbers of 1..{self.options.numbers}"

    def draw(self, batch: int, time: int) -> Tensor:
        """Return a sorted subset of the numbers for each sentence, ``[member, batch, time]``."""
        numbers: Tensor = self.draws(partial(sorted_subset, self.options.numbers, time, batch))
        return numbers

    def embed(self, positions: Tensor, role: str) -> Tensor | None:
        """Return what the encoding adds to embeddings, if it does."""
        return self.inner.embed(self._told(positions), role)

    def rotate(self, x: Tensor, positions: Tensor, role: str) -> Tensor:
        """Return queries or keys, turned if the encoding turns them."""
        return self.inner.rotate(x, self._told(positions), role)

    def bias(self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor | None:
        """Return what the encoding adds to scores, if it does."""
        told = self._told(query_positions), self._told(key_positions)
        return self.inner.bias(*told, role, layer)

    def _told(self, positions: Tensor) -> Tensor:
        """Return drawn numbers as they are, and the fixed ones for places."""
        sizes = (self.options.numbers, self.options.max_length)
        return positions if self.training else self.cached(evaluated, positions, *sizes)


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    """Register ``randomised``."""
    return {"randomised": Randomised}
