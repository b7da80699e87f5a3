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
    angles = positions.double()[:, None, :, None] * theta ** (-even / width)
    return torch.polar(torch.ones_like(angles), angles).to(dtype.to_complex())


def multiply_pairs(x: Tensor, factors: Tensor) -> Tensor:
    """Multiply neighbouring pairs of the last axis of ``x [member, batch, head, time, width]`` as complex numbers.

    >>> multiply_pairs(torch.tensor([1.0, 0.0]), torch.tensor([1j]))
    tensor([0., 1.])
    """
    pairs = x.contiguous().unflatten(-1, (-1, 2))
    return torch.view_as_real(torch.view_as_complex(pairs) * factors).flatten(-2)


class Rotary(Positional):
    """RoPE: scores depend on relative positions by rotation of queries and keys."""

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
        fraction, theta = self.options.fraction, self.options.theta
        width, pairs = ("d_k", "") if fraction == 1 else ("r", f" for 2i < r = {fraction:g} · d_k")
        return f"(x_{{2i}}, x_{{2i+1}}) rotated by p · {theta:g}^{{−2i/{width}}}{pairs}"

    def rotate(self, x: Tensor, positions: Tensor, role: str, layer: int) -> Tensor:
        width = max(2, round(self.options.fraction * x.shape[-1] / 2) * 2)
        exact = x[..., :width].to(torch.promote_types(x.dtype, torch.float32))
        factors = self.cached(turns, positions, width, self.options.theta, exact.dtype)
        rotated = multiply_pairs(exact, factors).to(x.dtype)
        return rotated if width == x.shape[-1] else torch.cat([rotated, x[..., width:]], dim=-1)


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"rotary": Rotary}
