"""Layouts and attention kernels that the model uses on CUDA; ``training/cuda.py`` has the settings of a process.

They are a part of the model's computation, and ``model`` cannot import ``training``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor

ALIGNED = 8
"""Row strides of masks and logits are multiples of this many numbers: 16 bytes in bfloat16, the widest load."""

MAX_SENTENCES = 2**16 - 1
"""Most sentences over all members in a call of the efficient kernel, which uses them as a grid dimension."""

WORDS_PER_CHECK = 8
"""Decoded words between two checks whether all sentences have ended; a check waits for the GPU."""

_FORCED = ContextVar("cuda layout", default=False)


def on_cuda(x: Tensor) -> bool:
    """Return whether a tensor is on CUDA, or the CUDA layout is forced."""
    return x.is_cuda or _FORCED.get()


@contextmanager
def cuda_layout() -> Iterator[None]:
    """Force the layouts, kernels and checks of CUDA on any device, for tests and for counting on ``meta``."""
    token = _FORCED.set(True)
    try:
        yield
    finally:
        _FORCED.reset(token)


class AttentionKernel(NamedTuple):
    """The kernel of an attention, ``"efficient"`` or ``"math"``, and the reason."""

    name: str
    why: str


def attention_kernel(
    dtype: torch.dtype,
    key_width: int,
    value_width: int,
    sentences: int = 1,
    drops_weights: bool = False,
) -> AttentionKernel:
    """Return the kernel of an attention on CUDA, from the conditions of torch's memory-efficient kernel.

    Math is two batched products with a softmax over the keys between them. cuDNN and flash attention are disabled
    (``training/cuda.py``). The first condition that does not hold is the reason for math.

    Args:
        dtype: Type of queries, keys and values.
        key_width: Width of queries and keys of a head.
        value_width: Width of the values of a head.
        sentences: Sentences over all members, at most `MAX_SENTENCES` for the efficient kernel.
        drops_weights: Whether dropout acts on the weights, which the efficient kernel does not return.

    >>> attention_kernel(torch.float32, 32, 32).name
    'efficient'
    >>> attention_kernel(torch.float32, 10, 10)
    AttentionKernel(name='math', why='head width 10 is not a multiple of 4')
    """
    multiple = {torch.float32: 4, torch.bfloat16: 8}.get(dtype)
    if drops_weights:
        return AttentionKernel("math", "dropout acts on the weights")
    if multiple is None:
        return AttentionKernel(
            "math", f"the efficient kernel does not support {str(dtype).removeprefix('torch.')}"
        )
    for width in (key_width, value_width):
        if width % multiple or not width:
            return AttentionKernel("math", f"head width {width} is not a multiple of {multiple}")
    if sentences > MAX_SENTENCES:
        return AttentionKernel("math", f"{sentences:,} sentences are more than {MAX_SENTENCES:,}")
    return AttentionKernel("efficient", f"head width is a multiple of {multiple}")


def kernel_dtype(x: Tensor) -> torch.dtype:
    """Return the type in which the attention kernel gets ``x``: that of autocast, if enabled."""
    device = "cuda" if x.is_meta else x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def aligned_mask(mask: Tensor) -> Tensor:
    """Return an additive mask ``[.., query, key]`` with the same shape and values, and strides that are aligned.

    The efficient kernel needs a last stride of 1 and others that are multiples of `ALIGNED`; torch copies any other
    mask in every layer. A mask with such strides is returned itself, else a view of a copy with padded rows.
    """
    is_aligned = not any(stride % ALIGNED for stride in mask.stride()[:-1])
    if mask.stride(-1) == 1 and is_aligned:
        return mask
    keys = mask.shape[-1]
    padding = -keys % ALIGNED  # to the next multiple
    padded = mask.new_zeros(*mask.shape[:-1], keys + padding)
    padded[..., :keys] = mask
    return padded[..., :keys]
