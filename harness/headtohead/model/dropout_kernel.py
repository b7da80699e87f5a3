"""Dropout on CUDA as one kernel: random bits, comparison and product; the backward pass computes the bits again.

It has the random numbers of ``DropoutRNG``, and stores no mask. Triton is imported at the first call on CUDA.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

torch.library.define(
    "headtohead::dropout",
    "(Tensor x, Tensor starts, Tensor low, Tensor scale, int start, int lead, int queries, int keys) -> Tensor",
    tags=torch.Tag.pt2_compliant_tag,
)


@torch.library.register_fake("headtohead::dropout")  # type: ignore[untyped-decorator]
def _fake(x: Tensor, *arguments: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.impl("headtohead::dropout", "CUDA")
def _launch(*arguments: Any) -> Tensor:
    from headtohead.model.dropout_triton import dropout

    dropped: Tensor = dropout(*arguments)
    return dropped


class FusedDropout(torch.autograd.Function):
    """Dropout of ``x [member · any, ...]`` with the numbers of a request.

    Arguments after ``x``: starts of the members, smallest number that is kept and scale of the others (``[member]`` or
    ``[1]``), first counter, first number of its word, and number of queries and keys if the numbers belong to
    ``x.transpose(-2, -1)``, else zeros.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, starts: Tensor, low: Tensor, scale: Tensor, *numbers: int) -> Tensor:
        """Return 0 for dropped activations, and scaled values for the others."""
        ctx.save_for_backward(starts, low, scale)
        ctx.numbers = numbers
        dropped: Tensor = torch.ops.headtohead.dropout(x, starts, low, scale, *numbers)
        return dropped

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Return the gradient of ``x``, with the same dropout."""
        dropped = torch.ops.headtohead.dropout(gradient, *ctx.saved_tensors, *ctx.numbers)
        return dropped, None, None, None, None, None, None, None
