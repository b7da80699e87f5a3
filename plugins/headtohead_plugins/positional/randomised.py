"""Another encoding, trained on sorted random numbers in place of 1, 2, 3, ...

Paper: A. Ruoss et al. "Randomized Positional Encodings Boost Length Generalization of
Transformers". ACL 2023, arXiv:2305.16843, section 3: a training sentence of n tokens is told n
numbers of 1..L, drawn without replacement and sorted, so that longer sentences bring no new one.
Departs from the paper: evaluation tells one fixed sorted subset of ``max_length`` numbers, of which
a sentence takes the first n; the authors draw anew for each test batch, whose length is known. Each
sentence draws for itself, where their batches draw once. With ``alibi``, numbers are positions,
whose differences count; theirs are distances.
"""

from typing import Literal, cast

import torch
from pydantic import Field
from torch import Tensor

from headtohead import Draws, HeadToHeadError, Positional, Setting, hookimpl, registered
from headtohead import Options as BaseOptions


class RandomisedOptions(BaseOptions):
    """What is told the numbers, and how many there are."""

    of: Literal["sinusoidal", "rotary", "alibi"] = Field(
        "sinusoidal", description="the encoding that is told the numbers"
    )
    numbers: int = Field(2048, ge=1, description="L: training draws from 1 to here")
    max_length: int = Field(
        32,
        ge=1,
        description="places that evaluation has numbers for, boundary tokens counted; the nearer "
        "to the longest sentence, the more evaluation resembles training",
    )


class Randomised(Positional):
    """An encoding that trains on numbers with gaps."""

    Options = RandomisedOptions
    options: RandomisedOptions

    def build(self) -> None:
        """Make the encoding, each member's stream of numbers, and the numbers of evaluation."""
        entry = _entry(self.options)
        self.inner = entry(entry.Options(), self.context)
        self.draws = Draws(self.context)
        fixed = torch.Generator().manual_seed(0)
        told = subset(self.options.numbers, self.options.max_length, 1, fixed)[0]
        device = self.draws.get_buffer("state").device
        self.register_buffer("told", told.to(device), persistent=False)

    @classmethod
    def acts(cls, options: BaseOptions) -> frozenset[str]:
        """Return how the encoding acts, and that positions are drawn."""
        assert isinstance(options, RandomisedOptions)
        entry = _entry(options)
        return entry.acts(entry.Options()) | {"draw"}

    @classmethod
    def made_of(cls, options: BaseOptions) -> tuple[str, ...]:
        """Return the encoding that is told the numbers."""
        assert isinstance(options, RandomisedOptions)
        return (options.of,)

    @classmethod
    def limit(cls, options: BaseOptions) -> int:
        """Return how many places evaluation has numbers for."""
        assert isinstance(options, RandomisedOptions)
        return options.max_length

    @classmethod
    def undefined_for(cls, options: BaseOptions, setting: Setting) -> str | None:
        """Refuse cross-attention, too few numbers, and what the encoding itself refuses."""
        assert isinstance(options, RandomisedOptions)
        field = f"set positional.{setting.role}"
        if setting.role == "cross":
            return (
                "randomised draws the places of one sentence, cross-attention has two; use 'none'"
            )
        if options.numbers < options.max_length:
            return (
                f"randomised cannot draw {options.max_length} of {options.numbers} numbers; "
                f"{field}.numbers to at least {options.max_length}"
            )
        side = "source" if setting.role == "encoder" else "target"
        longest = setting.longest.get(side, 0)
        if longest > options.max_length:
            return (
                f"a {side} of {longest} tokens is longer than the {options.max_length} places that "
                f"randomised has numbers for; {field}.max_length to at least {longest}"
            )
        entry = _entry(options)
        return entry.undefined_for(entry.Options(), setting)

    def formula(self) -> str:
        """Return the encoding's, and what its positions are."""
        return f"{self.inner.formula()}, told sorted random numbers of 1..{self.options.numbers}"

    def draw(self, batch: int, time: int) -> Tensor:
        """Return a sorted subset of the numbers for each sentence, ``[member, batch, time]``."""
        most = self.options.numbers
        drawn: Tensor = self.draws(lambda own: subset(most, time, batch, own))
        return drawn

    def embed(self, positions: Tensor, role: str) -> Tensor | None:
        """Return what the encoding adds to embeddings, if it does."""
        return self.inner.embed(self._told(positions), role)

    def rotate(self, x: Tensor, positions: Tensor, role: str) -> Tensor:
        """Return queries or keys, turned if the encoding turns them."""
        return self.inner.rotate(x, self._told(positions), role)

    def bias(
        self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int
    ) -> Tensor | None:
        """Return what the encoding adds to scores, if it does."""
        told = self._told(query_positions), self._told(key_positions)
        return self.inner.bias(*told, role, layer)

    def _told(self, positions: Tensor) -> Tensor:
        """Return drawn numbers as they are, and the fixed ones for places."""
        return positions if self.training else self.remember(self._look_up, positions)

    def _look_up(self, positions: Tensor) -> Tensor:
        told = self.get_buffer("told")
        if positions.shape[-1] > len(told):
            raise HeadToHeadError(
                f"position {positions.shape[-1]} is beyond the {len(told)} that evaluation has "
                f"numbers for; set positional.{self.context.role}.max_length higher"
            )
        return told[positions]


def subset(most: int, count: int, batch: int, generator: torch.Generator) -> Tensor:
    """Return sorted numbers of ``1..most``, every subset of a row as likely, ``[batch, count]``.

    By R. Floyd's method (J. Bentley, "Programming Pearls", CACM 1987): the largest number so far
    allowed takes the place of one that is drawn twice.
    """
    largest = torch.arange(most - count + 1, most + 1)
    share = torch.rand(batch, count, dtype=torch.float64, generator=generator)
    drawn = (share * largest).long() + 1
    for place in range(1, count):
        taken = (drawn[:, :place] == drawn[:, place : place + 1]).any(dim=-1)
        drawn[:, place] = torch.where(taken, largest[place], drawn[:, place])
    return drawn.sort(dim=-1).values


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    """Register ``randomised``."""
    return {"randomised": Randomised}


def _entry(options: RandomisedOptions) -> type[Positional]:
    return cast("type[Positional]", registered("positional", options.of))
