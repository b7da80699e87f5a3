"""Products with many columns, whose rows start at aligned addresses.

On a CPU a product that is written in rows of, say, 25,035 numbers takes half as long again as one
in rows of 25,040: most rows do not start where wide stores want it. How the factors lie does not
matter. So rows are laid a little apart, and nothing is computed that nobody reads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

ALIGNED = 16
"""Numbers of which rows are a multiple apart: 64 bytes in float32."""

WIDE = 512
"""Columns from which it pays (docs/internals/performance.md)."""


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``x @ weight + bias``, ``[member, row, column]``, its rows aligned where that pays."""
    columns = weight.shape[-1]
    if columns >= WIDE and columns % ALIGNED and x.device.type == "cpu":
        aligned: Tensor = _Product.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return aligned
    return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias, x, weight)


class _Product(torch.autograd.Function):
    """The product, and its gradient in aligned rows too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _written_aligned(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            torch.bmm(gradient, weight.transpose(1, 2)) if of_x else None,
            _like(weight, x, gradient) if of_weight else None,
            gradient.sum(1, keepdim=True) if of_bias else None,
        )


def _like(weight: Tensor, x: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of the weight, laid out as that is: a table of words has them in rows."""
    if weight.is_contiguous():
        return _written_aligned(x.transpose(1, 2), gradient, None)
    return torch.bmm(gradient.transpose(1, 2), x).transpose(1, 2)


def _written_aligned(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    members, rows, columns = *x.shape[:2], weight.shape[-1]
    apart = columns + -columns % ALIGNED
    out = x.new_empty_strided((members, rows, columns), (rows * apart, apart, 1))
    if bias is None:
        return torch.bmm(x, weight, out=out)
    return torch.baddbmm(bias, x, weight, out=out)
