"""Selection of the kernel that the fused attention path uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headtohead.model import attention

KERNELS = ("short", "long")
"""Batched matrix products, used for short sequences on a CPU, and ``scaled_dot_product_attention``."""


@contextmanager
def force_kernel(kernel: str) -> Iterator[None]:
    """Use one of ``KERNELS`` on the fused path, whatever the sequence lengths."""
    before = attention.MAX_SHORT_SCORES, attention.MAX_SHORT_SCORES_BFLOAT16, attention.MIN_SHORT_HEADS
    longest = 2**62 if kernel == "short" else -1
    attention.MAX_SHORT_SCORES, attention.MAX_SHORT_SCORES_BFLOAT16, attention.MIN_SHORT_HEADS = longest, longest, 0
    try:
        yield
    finally:
        attention.MAX_SHORT_SCORES, attention.MAX_SHORT_SCORES_BFLOAT16, attention.MIN_SHORT_HEADS = before
