"""Random numbers per member: the same in any stack, and continued by a resumed training."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from headtohead.plugins.component import BuildContext, init_per_member, mark_accepted

Sample = Callable[[torch.Generator], Tensor]


class PerMemberRNG(nn.Module):
    """A stream of random numbers for each member; its state is saved with the weights.

    Create it in ``build`` and call it in a hook. Creating it consumes one number of each member's
    initialisation generator.

    Args:
        context: Of the entry that samples.
    """

    def __init__(self, context: BuildContext) -> None:
        super().__init__()
        start = init_per_member(context.generators, (2,), _seed_and_count)
        self.state = mark_accepted(nn.Buffer(start.long()))

    def forward(self, sample: Sample) -> Tensor:
        """Return ``[member, ...]``: the result of ``sample`` for each member's next generator.

        Generators are on the CPU. The result is on the model's device.
        """
        state = self.get_buffer("state")
        samples = []
        for seed, count in state.tolist():
            generator = torch.Generator().manual_seed(int(seed) * 2**24 + int(count))
            samples.append(sample(generator))
        state[:, 1] += 1
        return torch.stack(samples).to(state.device)


def sorted_subset(most: int, count: int, batch: int, generator: torch.Generator) -> Tensor:
    """Return ``count`` distinct numbers of ``1..most`` in ascending order, ``[batch, count]``.

    All subsets are equally likely. This is R. Floyd's method (J. Bentley, "Programming Pearls",
    CACM 1987): a number that was sampled before is replaced by the largest number allowed so far.
    """
    largest = torch.arange(most - count + 1, most + 1)
    share = torch.rand(batch, count, dtype=torch.float64, generator=generator)
    numbers = (share * largest).long() + 1
    for index in range(1, count):
        taken = (numbers[:, :index] == numbers[:, index : index + 1]).any(dim=-1)
        numbers[:, index] = torch.where(taken, largest[index], numbers[:, index])
    return numbers.sort(dim=-1).values


def _seed_and_count(out: Tensor, generator: torch.Generator) -> Tensor:
    # Below 2^24, so that the seed is exact in float32.
    out[0] = float(torch.randint(2**24, (), generator=generator))
    out[1] = 0.0
    return out
