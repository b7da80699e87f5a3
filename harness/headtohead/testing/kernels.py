"""The kernels that the fused path chooses between, each forced in turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headtohead.model import attention

KERNELS = ("short", "long")
"""Batched products for short sequences on a CPU, and ``scaled_dot_product_attention``."""


@contextmanager
def forced(kernel: str) -> Iterator[None]:
    """Let the fused path use one of ``KERNELS`` whatever the lengths are."""
    before = attention.SHORT, attention.MANY
    attention.SHORT, attention.MANY = (2**62 if kernel == "short" else -1), 0
    try:
        yield
    finally:
        attention.SHORT, attention.MANY = before
