"""Rotary embedding: queries and keys are rotated by angles proportional to their positions.

Paper: J. Su et al. "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021,
arXiv:2104.09864, section 3.2.2: components 2i and 2i+1 are rotated by p · theta^(-2i/d_k).
Values are not rotated.
Option ``fraction``: S. Black et al. "GPT-NeoX-20B", 2022, arXiv:2204.06745, section 2.1.1: the first r = fraction · d_k
components are rotated, with r instead of d_k in the exponent; the others do not depend on the position.
"""

import torch
from pydantic import Field
from torch import Tensor

from headtohead.plugin import Options as BaseOptions
from headtohead.plugin import Positional, Setting, find_geometry, hookimpl


class RotaryOptions(BaseOptions):
    """Base of the wavelengths, and the part of the components that is rotated."""

    theta: float = Field(10000.0, gt=0, le=1e300, description="base of the geometric wavelengths")
    fraction: float = Field(
        1.0,
        gt=0,
        le=1,
        description="part of the key width that is rotated, rounded to an even number, at least 2",
    )


def turns(positions: Tensor, width: int, theta: float, dtype: torch.dtype) -> Tensor:
    """Return the factors of pairs as complex numbers, ``[batch or 1, 1, time, width / 2]``, computed in float64."""
    even = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    p = positions.double()[:, None, :, None]
    frequencies = theta ** (-even / width)
    angles = p * frequencies
    ones = torch.ones_like(angles)
    factors = torch.polar(ones, angles)
    return factors.to(dtype.to_complex())


def multiply_pairs(x: Tensor, factors: Tensor) -> Tensor:
    """Multiply neighbouring pairs of the last axis of ``x [member, batch, head, time, width]`` as complex numbers.

    >>> multiply_pairs(torch.tensor([1.0, 0.0]), torch.tensor([1j]))
    tensor([0., 1.])
    """
    pairs = x.contiguous().unflatten(-1, (-1, 2))
    products = torch.view_as_complex(pairs) * factors
    return torch.view_as_real(products).flatten(-2)


class Rotary(Positional):
    """RoPE: scores depend on relative positions by rotation of queries and keys."""

    phrase = "rotary[ with base {theta}][ with {fraction:%} of the components rotated]"
    Options = RotaryOptions
    options: RotaryOptions
    properties = frozenset({"relative"})

    @classmethod
    def incompatible_with(cls, options: BaseOptions, setting: Setting) -> str | None:
        """Require an even key width, as components are rotated in pairs."""
        width = find_geometry(setting.config, setting.role).key_width
        if width % 2:
            return f"rotary requires an even key width, got {width}; change model.d_model or model.heads"
        return None

    def formula(self) -> str:
        theta = f"{self.options.theta:g}"
        fraction = self.options.fraction
        if fraction == 1:
            return f"(x_{{2i}}, x_{{2i+1}}) rotated by p · {theta}^{{−2i/d_k}}"
        pairs = f"2i < r = {fraction:g} · d_k"
        return f"(x_{{2i}}, x_{{2i+1}}) rotated by p · {theta}^{{−2i/r}} for {pairs}"

    def rotate(self, x: Tensor, positions: Tensor, role: str, layer: int) -> Tensor:
        d_k = x.shape[-1]
        pairs = round(self.options.fraction * d_k / 2)
        r = max(2, pairs * 2)
        dtype = torch.promote_types(x.dtype, torch.float32)
        exact = x[..., :r].to(dtype)
        factors = self.cached(turns, positions, r, self.options.theta, dtype)
        rotated = multiply_pairs(exact, factors).to(x.dtype)
        if r == d_k:
            return rotated
        unrotated = x[..., r:]
        return torch.cat([rotated, unrotated], dim=-1)


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"rotary": Rotary}
