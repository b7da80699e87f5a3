"""Inner products of sinusoids, added to the scores; they fall with the logarithm of distance.

Paper: T.-C. Chi, T.-H. Fan, A. I. Rudnicky, P. J. Ramadge. "Dissecting Transformer Length
Extrapolation via the Lens of Receptive Field Analysis". ACL 2023, arXiv:2212.10356, section on
Sandwich: sum_k cos((i - j) / 10000^(2k/w)), k = 0..w/2 - 1, divided by 8(n + 1)/h in head n of h.
The sum is the inner product of rows i and j of the sinusoidal table of width w; w = 128 in all
models.
Departs from the paper: w/2 is subtracted, so that the bias is 0 at distance 0; a softmax is
invariant to this. The bias of an encoder depends on distance and not on direction.
"""

import torch
from pydantic import Field
from torch import Tensor

from headtohead.plugin import Options as BaseOptions
from headtohead.plugin import Positional, hookimpl


class SandwichOptions(BaseOptions):
    """Width of the sinusoids."""

    width: int = Field(
        128, ge=2, le=65_536, multiple_of=2, description="width of the sinusoidal table"
    )


def similarities(query_positions: Tensor, key_positions: Tensor, heads: int, width: int) -> Tensor:
    """Return the biases, ``[1, batch or 1, head, query, key]``, in float64."""
    distance = (query_positions[:, :, None] - key_positions[:, None, :]).double()
    even = torch.arange(0, width, 2, dtype=torch.float64, device=distance.device)
    frequencies = 10000.0 ** (-even / width)
    angles = distance.unsqueeze(-1) * frequencies
    similarity = angles.cos().sum(-1) - width / 2
    head = torch.arange(1, heads + 1, dtype=torch.float64, device=distance.device)
    divisors = head * 8 / heads
    bias = similarity[:, None] / divisors[:, None, None]
    return bias.unsqueeze(0)


class Sandwich(Positional):
    """Inner products of sinusoids, added to the scores; they fall with distance, but not monotonically."""

    phrase = "Sandwich biases[ of width {width}]"
    Options = SandwichOptions
    options: SandwichOptions
    properties = frozenset({"relative", "mirror-invariant"})

    def formula(self) -> str:
        width = self.options.width
        waves = f"Σ_k cos((i − j) / 10000^{{2k/{width}}}) − {width // 2}"
        return f"B[i, j] = ({waves}) / (8(n + 1)/h) in head n of h"

    def bias(self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor:
        """Return the biases, which are equal for all members and layers."""
        heads = self.context.geometry.heads
        width = self.options.width
        return self.cached(similarities, query_positions, key_positions, heads, width)


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"sandwich": Sandwich}
