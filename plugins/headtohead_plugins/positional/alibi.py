"""Attention with linear biases: scores fall with distance, faster in some heads than in others.

Paper: O. Press, N. A. Smith, M. Lewis. "Train Short, Test Long: Attention with Linear Biases
Enables Input Length Extrapolation". ICLR 2022, arXiv:2108.12409, section 3: -m_h · |i - j|, with
m_h = 2^(-8n/h) for n = 1..h; for h that is no power of two, the slopes of the next smaller power
and then every other one of twice that power (the authors' code).
Departs from the paper: in the encoder the bias is symmetric, which the paper does not treat; such
an encoder hears distances and no directions, so a sentence and its mirror image are one to it.
"""

import torch
from torch import Tensor

from headtohead import Positional, hookimpl


def slopes(heads: int) -> list[float]:
    """Return one slope per head.

    >>> slopes(2), slopes(3)
    ([0.0625, 0.00390625], [0.0625, 0.00390625, 0.25])
    """
    power = 2 ** (heads.bit_length() - 1)
    exact = [2.0 ** (-8.0 * n / power) for n in range(1, power + 1)]
    if power == heads:
        return exact
    return exact + slopes(2 * power)[0::2][: heads - power]


def biases(query_positions: Tensor, key_positions: Tensor, heads: int) -> Tensor:
    """Return ``-m_h · |i - j|``, ``[1, batch or 1, head, query, key]``, in float64."""
    distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs()
    rates = torch.tensor(slopes(heads), dtype=torch.float64, device=distance.device)
    return -(rates[:, None, None] * distance[:, None]).unsqueeze(0)


class Alibi(Positional):
    """A linear penalty on distance, added to the scores."""

    properties = frozenset({"relative", "mirror-invariant", "falls-with-distance"})

    def formula(self) -> str:
        """Return the penalty."""
        return "B[i, j] = −m_h · |i − j|"

    def bias(self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor:
        """Return the penalties, equal for every member and layer."""
        heads = self.context.geometry.heads
        return self.cached(biases, query_positions, key_positions, heads)


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    """Register ``alibi``."""
    return {"alibi": Alibi}
