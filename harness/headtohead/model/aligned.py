"""Matrix products in shapes and memory layouts that are fast.

On a CPU, a product with rows of 25,035 numbers takes 1.5 times as long as one with rows of 25,040,
because most rows start at addresses that are not aligned for wide stores. The layout of the factors
does not matter. The result is therefore stored with a padded row stride; padding is not computed. On CUDA, rows of
both are padded, because tensor cores load aligned rows only.

On a CPU, oneDNN computes bfloat16 products. It generates code for every new shape and keeps the code of
1,024 products. Batches of different lengths have hundreds of shapes, so products get rows of zeros
until few row counts are left.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headtohead.model.cuda import ALIGNED as ALIGNED_ON_CUDA
from headtohead.model.cuda import on_cuda

ALIGNED = 16
"""On a CPU, row strides are multiples of this many numbers: 64 bytes in float32."""

WIDE = 512
"""Number of columns from which alignment is faster (benchmarks/results.md)."""


FEW_ROWS = 256
MANY_ROWS = 64
"""Row counts of bfloat16 products on a CPU are multiples of 16 up to `FEW_ROWS`, and of `MANY_ROWS` above."""


def padded_rows(rows: int) -> int:
    """Return the number of rows with which a bfloat16 product of ``rows`` rows is computed on a CPU.

    >>> padded_rows(1), padded_rows(48), padded_rows(257)
    (16, 48, 320)
    """
    return rows + -rows % (16 if rows <= FEW_ROWS else MANY_ROWS)


def narrowed(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ``x [member, row, column]`` in a narrow type, with rows of zeros up to `padded_rows`, in one pass."""
    members, rows, columns = x.shape
    if padded_rows(rows) == rows:
        return x.to(dtype)
    out = x.new_empty((members, padded_rows(rows), columns), dtype=dtype)
    out[:, :rows].copy_(x)
    out[:, rows:].zero_()
    return out


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``x @ weight + bias`` for ``x [member, row, in]`` and ``weight [member, in, out]``.

    Under autocast on a CPU, factors and result have its type, see `NarrowProduct`.
    """
    if x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        product: Tensor = NarrowProduct.apply(  # type: ignore[no-untyped-call]
            x, weight, bias, torch.get_autocast_dtype("cpu")
        )
        return product
    return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias, x, weight)


class NarrowProduct(torch.autograd.Function):
    """``x @ weight + bias`` with factors of a narrow type such as bfloat16, forward and backward, on a CPU.

    Products are summed in float32 and rounded to the type. ``x`` and ``weight`` are each converted once: the backward
    pass uses the same factors. Gradients of ``x``, ``weight`` and ``bias`` have their types.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype
    ) -> Tensor:
        """Return the product, ``[member, row, out]``, in the narrow type."""
        left = narrowed(x, dtype)
        right = weight.to(dtype)
        ctx.save_for_backward(left, right)
        ctx.rows, ctx.types = x.shape[1], (x.dtype, weight.dtype)
        if bias is None:
            out = torch.bmm(left, right)
        else:
            out = torch.baddbmm(bias.to(dtype), left, right)
        return out[:, : ctx.rows]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Return the gradients of ``x``, ``weight`` and ``bias``, those that are required."""
        left, right = ctx.saved_tensors
        x_type, weight_type = ctx.types
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[2]:
            of_bias = gradient.sum(1, keepdim=True).to(weight_type)  # summed in float32
        gradient = narrowed(gradient, left.dtype)
        if ctx.needs_input_grad[0]:
            of_x = torch.bmm(gradient, right.transpose(1, 2))[:, : ctx.rows].to(x_type)
        if ctx.needs_input_grad[1]:
            of_weight = torch.bmm(left.transpose(1, 2), gradient).to(weight_type)
        return of_x, of_weight, of_bias, None


def aligned_empty(
    like: Tensor, shape: tuple[int, int, int], dtype: torch.dtype | None = None
) -> Tensor:
    """Return an uninitialised tensor ``[member, row, column]`` with aligned rows where products into it are faster.

    Rows are aligned on CUDA, and on a CPU from `WIDE` columns. They may have padding between them; the tensor is then
    not contiguous.

    Args:
        like: A tensor with the device.
        shape: Members, rows and columns.
        dtype: Type of the numbers; default: that of ``like``.
    """
    rows, stride = shape[1:]
    if on_cuda(like):
        stride += -stride % ALIGNED_ON_CUDA
    elif stride >= WIDE and like.device.type == "cpu":
        stride += -stride % ALIGNED
    return torch.empty_strided(
        shape, (rows * stride, stride, 1), dtype=dtype or like.dtype, device=like.device
    )


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``x @ weight + bias``, ``[member, row, column]``; without gradients, with aligned rows where faster."""
    if torch.is_grad_enabled() or x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return affine(x, weight, bias)
    out = aligned_empty(x, (*x.shape[:2], weight.shape[-1]))
    return (
        torch.bmm(x, weight, out=out) if bias is None else torch.baddbmm(bias, x, weight, out=out)
    )


def factor(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ``weight [member, row, column]`` as a factor of products: converted, and on CUDA with aligned rows."""
    if not on_cuda(weight) or not weight.is_contiguous() or weight.shape[-1] % ALIGNED_ON_CUDA == 0:
        return weight.to(dtype)
    members, rows, columns = weight.shape
    return aligned_empty(weight, (members, rows, columns), dtype).copy_(weight)
