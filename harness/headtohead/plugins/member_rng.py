"""Random numbers that belong to a member: the same alone, in a stack and after a resume."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from headtohead.plugins.positional import BuildContext, init_per_member

Sample = Callable[[torch.Generator], Tensor]


class PerMemberRNG(nn.Module):
    """PerMemberRNG for every member from its own stream; how far it has come is saved with the weights.

    Args:
        context: Of the entry that draws; it costs one number of each member's generator.
    """

    def __init__(self, context: BuildContext) -> None:
        super().__init__()
        start = init_per_member(context.generators, (2,), _seed)
        self.register_buffer("state", start.long())

    def forward(self, sample: Sample) -> Tensor:
        """Return ``[member, ...]``: what ``sample`` gives for the next generator of each member.

        Generators are on the CPU; the result is on the device of the model.
        """
        state = self.get_buffer("state")
        drawn = []
        for seed, count in state.tolist():
            generator = torch.Generator().manual_seed(int(seed) * 2**24 + int(count))
            drawn.append(sample(generator))
        state[:, 1] += 1
        return torch.stack(drawn).to(state.device)


def sorted_subset(most: int, count: int, batch: int, generator: torch.Generator) -> Tensor:
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


def _seed(out: Tensor, generator: torch.Generator) -> Tensor:
    """Fill ``[2]`` with a seed below 2^24, exact in float32, and a count of none."""
    out[0] = float(torch.randint(2**24, (), generator=generator))
    out[1] = 0.0
    return out
