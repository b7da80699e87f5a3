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
        1.0, gt=0, le=1, description="part of the key width that is rotated, rounded down to an even number, at least 2"
    )


def angles(positions: Tensor, width: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, ``[batch or 1, 1, time, width / 2]``, computed in float64."""
    even = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    turns = positions.double()[:, None, :, None] * theta ** (-even / width)
    return turns.cos().to(dtype), turns.sin().to(dtype)


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate neighbouring pairs of the last axis of ``x [member, batch, head, time, width]``.

    >>> rotate_pairs(torch.tensor([1.0, 0.0]), torch.tensor([0.0]), torch.tensor([1.0]))
    tensor([0., 1.])
    """
    first, second = x[..., 0::2], x[..., 1::2]
    rotated = torch.stack([first * cos - second * sin, first * sin + second * cos], dim=-1)
    return rotated.flatten(-2)


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
        width = max(2, int(self.options.fraction * x.shape[-1] / 2) * 2)
        rotated = rotate_pairs(x[..., :width], *self.cached(angles, positions, width, self.options.theta, x.dtype))
        return rotated if width == x.shape[-1] else torch.cat([rotated, x[..., width:]], dim=-1)


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"rotary": Rotary}
