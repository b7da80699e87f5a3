"""Sinusoids of geometric wavelengths, added to the embeddings.

Paper: A. Vaswani et al. "Attention Is All You Need". NeurIPS 2017, arXiv:1706.03762, section 3.5:
P[p, 2i] = sin(p / 10000^(2i/d)), P[p, 2i+1] = cos(p / 10000^(2i/d)).
"""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from headtohead.plugin import Options as BaseOptions
from headtohead.plugin import Positional, hookimpl

Arithmetic = Literal["exact", "single", "single-log"]


class SinusoidalOptions(BaseOptions):
    """Precision of the table."""

    arithmetic: Arithmetic = Field(
        "exact",
        description="exact: double precision; single: angles in single precision as in notebooks 1 "
        "to 3, with an error of 1e-5 at position 128; single-log: log 10000 in single precision too, "
        "as in notebook 4",
    )


def sinusoids(positions: Tensor, width: int, arithmetic: Arithmetic = "exact") -> Tensor:
    """Return the table rows of ``positions``, ``[*positions.shape, width]``.

    >>> sinusoids(torch.tensor([0, 1]), 4)[1, 0].item() == math.sin(1)
    True
    """
    rates = angles_per_position(width, arithmetic, positions.device)
    p = positions.to(rates.dtype).unsqueeze(-1)
    angles = p * rates
    pairs = torch.stack([angles.sin(), angles.cos()], dim=-1)
    return pairs.flatten(-2)[..., :width]


def angles_per_position(width: int, arithmetic: Arithmetic, device: torch.device) -> Tensor:
    """Return ``1 / 10000^(2i/d)`` of every i, in double or single precision."""
    if arithmetic == "exact":
        even = torch.arange(0, width, 2, dtype=torch.float64, device=device)
        return 10000.0 ** (-even / width)
    even = torch.arange(0, width, 2, dtype=torch.float32, device=device)
    if arithmetic == "single":
        exponent = even * -(math.log(10000.0) / width)
        return exponent.exp()
    log = torch.tensor(10000.0).log()
    exponent = even * -(log / width)
    return exponent.exp()


class Sinusoidal(Positional):
    """Fixed sinusoids of the position, added to the embeddings.

    An odd width omits the last cosine.
    """

    phrase = "sinusoidal[ in {arithmetic} arithmetic]"
    Options = SinusoidalOptions
    options: SinusoidalOptions

    @classmethod
    def violations_by_option(cls, options) -> dict[str, str]:  # type: ignore[no-untyped-def]
        """Return ``precision`` for the options in single precision."""
        if options.arithmetic == "exact":
            return {}
        return {"precision": f"arithmetic: {options.arithmetic}"}

    def formula(self) -> str:
        return "P[p, 2i] = sin(p / 10000^{2i/d}), P[p, 2i+1] = cos(p / 10000^{2i/d})"

    def embed(self, positions: Tensor, role: str) -> Tensor:
        """Return the sinusoids of the positions, which are equal for all members."""
        return self.cached(_stacked, positions, self.context.d_model, self.options.arithmetic)


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"sinusoidal": Sinusoidal}


def _stacked(positions: Tensor, width: int, arithmetic: Arithmetic) -> Tensor:
    rows = sinusoids(positions, width, arithmetic)
    return rows.unsqueeze(0)
