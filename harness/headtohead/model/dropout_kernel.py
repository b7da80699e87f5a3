"""Dropout on CUDA as one kernel: random bits, comparison and product; the backward pass computes the bits again.

It has the random numbers of ``DropoutRNG``, and stores no mask. Triton is imported at the first call on CUDA.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from headtohead.errors import first_line

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


@cache
def kernel_fault(device: torch.device) -> str:
    """Return why the kernel cannot run on a GPU, such as a missing Triton, C compiler or header; empty if it can."""
    try:
        starts, low, scale = torch.zeros(1, dtype=torch.int64, device=device), torch.zeros(1), torch.ones(1)
        FusedDropout.apply(  # type: ignore[no-untyped-call]
            torch.ones(1, 1, device=device), starts, low.to(starts), scale.to(device), 0, 0, 0, 0
        )
    except Exception as error:
        return first_line(error)
    return ""


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
