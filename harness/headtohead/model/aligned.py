"""Matrix products with many columns, stored with aligned rows.

On a CPU, a product with rows of 25,035 numbers takes 1.5 times as long as one with rows of 25,040,
because most rows start at addresses that are not aligned for wide stores. The layout of the factors
does not matter. The result is therefore stored with a padded row stride; padding is not computed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

ALIGNED = 16
"""Row strides are multiples of this many numbers: 64 bytes in float32."""

WIDE = 512
"""Number of columns from which alignment is faster (docs/internals/performance.md)."""


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``x @ weight + bias``, ``[member, row, column]``, with aligned rows where it is faster."""
    columns = weight.shape[-1]
    if columns >= WIDE and columns % ALIGNED and x.device.type == "cpu":
        aligned: Tensor = _Product.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return aligned
    return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias, x, weight)


class _Product(torch.autograd.Function):
    """The product and its gradient with respect to the weight, both with aligned rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _aligned_product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            torch.bmm(gradient, weight.transpose(1, 2)) if needs_x else None,
            _weight_gradient(weight, x, gradient) if needs_weight else None,
            gradient.sum(1, keepdim=True) if needs_bias else None,
        )


def _weight_gradient(weight: Tensor, x: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient in the layout of the weight; a tied embedding table is transposed."""
    if weight.is_contiguous():
        return _aligned_product(x.transpose(1, 2), gradient, None)
    return torch.bmm(gradient.transpose(1, 2), x).transpose(1, 2)


def _aligned_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    members, rows, columns = *x.shape[:2], weight.shape[-1]
    stride = columns + -columns % ALIGNED
    out = x.new_empty_strided((members, rows, columns), (rows * stride, stride, 1))
    if bias is None:
        return torch.bmm(x, weight, out=out)
    return torch.baddbmm(bias, x, weight, out=out)
