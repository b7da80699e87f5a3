"""Attention with linear biases: scores fall linearly with distance, with a slope per head.

Paper: O. Press, N. A. Smith, M. Lewis. "Train Short, Test Long: Attention with Linear Biases
Enables Input Length Extrapolation". ICLR 2022, arXiv:2108.12409, section 3: the bias is
-m_h · |i - j| with m_h = 2^(-8n/h) for n = 1..h. If h is not a power of two, the slopes are those of
the next smaller power, then every other slope of the next larger power (the authors' code).
Departs from the paper: the paper does not treat encoders. Here an encoder's bias is symmetric; it
depends on distance and not on direction, so a sentence and its mirror image are equivalent.
"""

import torch
from torch import Tensor

from headtohead.plugin import Positional, hookimpl


def slopes(heads: int) -> list[float]:
    """Return one slope per head.

    >>> slopes(2), slopes(3)
    ([0.0625, 0.00390625], [0.0625, 0.00390625, 0.25])
    """
    power = 2 ** (heads.bit_length() - 1)  # the largest power of two up to `heads`
    of_power = [2.0 ** (-8.0 * n / power) for n in range(1, power + 1)]
    if power == heads:
        return of_power
    missing = heads - power
    every_other = slopes(2 * power)[0::2]
    return of_power + every_other[:missing]


def biases(query_positions: Tensor, key_positions: Tensor, heads: int) -> Tensor:
    """Return ``-m_h · |i - j|``, ``[1, batch or 1, head, query, key]``, in float64."""
    distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs()
    m = torch.tensor(slopes(heads), dtype=torch.float64, device=distance.device)
    penalty = m[:, None, None] * distance[:, None]
    return -penalty.unsqueeze(0)


class Alibi(Positional):
    """A linear penalty on distance, added to the scores."""

    phrase = "ALiBi"
    properties = frozenset({"relative", "mirror-invariant", "falls-with-distance"})

    def formula(self) -> str:
        return "B[i, j] = −m_h · |i − j|"

    def bias(self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor:
        """Return the penalties, which are equal for all members and layers."""
        heads = self.context.geometry.heads
        return self.cached(biases, query_positions, key_positions, heads)


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"alibi": Alibi}
