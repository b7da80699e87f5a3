"""The Triton kernel of ``dropout.py``; Triton's interpreter verifies it against the CPU bit for bit."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from headtohead.model import splitmix

BLOCK = 1024

GAMMA = tl.constexpr(splitmix.GAMMA)
FIRST, SECOND = tl.constexpr(splitmix.FIRST), tl.constexpr(splitmix.SECOND)


def dropout(x: Tensor, starts: Tensor, low: Tensor, scale: Tensor, *numbers: int) -> Tensor:
    """Return a new contiguous tensor with the shape of ``x [member · any, ...]`` and dropout; ``x`` is not changed.

    It has no gradient of its own: `FusedDropout` calls it for both passes. The arguments are not checked.

    Args:
        x: Activations, at least one; each member has as many.
        starts: First counter of each member, ``[member, 1]``, at least one member.
        low: Smallest number that is kept, ``[member]`` or ``[1]``.
        scale: Factor of the kept activations, ``[member]`` or ``[1]``.
        *numbers: Four: the counter of the first word relative to ``starts``; the index in this word of the first
            number; and the sizes of the last two axes of ``x``, queries and keys, if the numbers are those of
            ``x.transpose(-2, -1)``. Two zeros mean that they are in the order of ``x``.
    """
    start, lead, queries, keys = numbers
    is_transposed = keys > 0
    x = x.contiguous()
    out = torch.empty_like(x)
    members = starts.numel()
    count = x.numel() // members
    low_stride = int(low.numel() > 1)
    scale_stride = int(scale.numel() > 1)
    grid = (triton.cdiv(count, BLOCK), members)
    wide = tl.float64 if x.dtype == torch.float64 else tl.float32
    _kernel[grid](
        x,
        out,
        starts,
        low,
        scale,
        low_stride,
        scale_stride,
        start,
        lead,
        count,
        queries,
        max(keys, 1),  # the kernel divides by it
        is_transposed,
        wide,
        BLOCK,
    )
    return out


@triton.jit(do_not_specialize=["start", "lead", "count", "queries", "keys"])  # type: ignore[untyped-decorator]
def _kernel(  # noqa: PLR0913 - a kernel of Triton takes each pointer, size and stride as an argument
    x: tl.tensor,
    out: tl.tensor,
    starts: tl.tensor,
    low: tl.tensor,
    scale: tl.tensor,
    low_stride: tl.constexpr,
    scale_stride: tl.constexpr,
    start: tl.tensor,
    lead: tl.tensor,
    count: tl.tensor,
    queries: tl.tensor,
    keys: tl.tensor,
    is_transposed: tl.constexpr,
    wide: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Write a block of a member's activations with dropout into ``out``.

    The random number of an activation is 16 bits of SplitMix64 of a counter. A number below ``low`` gives 0; others
    multiply the activation by ``scale``. With ``is_transposed``, numbers are those of the transposed last two axes.
    """
    member = tl.program_id(1).to(tl.int64)
    index = tl.program_id(0) * block + tl.arange(0, block)
    inside = index < count
    number = index
    if is_transposed:
        cell = index % (queries * keys)
        number = index - cell + cell % keys * queries + cell // keys
    number += lead
    word = (
        (number // 4).to(tl.uint64) * GAMMA
        + tl.load(starts + member).to(tl.uint64)
        + start.to(tl.uint64)
    )
    word = (word ^ (word >> 30)) * FIRST
    word = (word ^ (word >> 27)) * SECOND
    word = word ^ (word >> 31)
    bits = (word >> (number % 4 * 16).to(tl.uint64)).to(tl.int16)
    kept = bits >= tl.load(low + member * low_stride)
    values = tl.load(x + member * count + index, mask=inside).to(wide)
    factor = tl.where(kept, tl.load(scale + member * scale_stride).to(wide), 0.0)
    tl.store(out + member * count + index, (values * factor).to(out.dtype.element_ty), mask=inside)
