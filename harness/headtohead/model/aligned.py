"""Matrix products with many columns, stored with aligned rows.

On a CPU, a product with rows of 25,035 numbers takes 1.5 times as long as one with rows of 25,040,
because most rows start at addresses that are not aligned for wide stores. The layout of the factors
does not matter. The result is therefore stored with a padded row stride; padding is not computed.
"""

from __future__ import annotations

import torch
from torch import Tensor

ALIGNED = 16
"""Row strides are multiples of this many numbers: 64 bytes in float32."""

WIDE = 512
"""Number of columns from which alignment is faster (benchmarks/results/kernels.md)."""


def aligned_empty(like: Tensor, shape: tuple[int, int, int], dtype: torch.dtype | None = None) -> Tensor:
    """Return an uninitialised tensor ``[member, row, column]`` with aligned rows where products into it are faster."""
    rows, stride = shape[1:]
    if stride >= WIDE and like.device.type == "cpu":
        stride += -stride % ALIGNED
    return torch.empty_strided(shape, (rows * stride, stride, 1), dtype=dtype or like.dtype, device=like.device)


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``x @ weight + bias``, ``[member, row, column]``; without gradients, with aligned rows where faster."""
    if torch.is_grad_enabled() or x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias, x, weight)
    out = aligned_empty(x, (*x.shape[:2], weight.shape[-1]))
    return torch.bmm(x, weight, out=out) if bias is None else torch.baddbmm(bias, x, weight, out=out)
