"""Precision of matrix products with float32 weights: bfloat16 or tf32 factors, and the speed of bfloat16."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch

from headtohead.model.transformer import Transformer

_SIZE = 384
_SECONDS = 0.2


def products_of(model: Transformer) -> AbstractContextManager[object]:
    """Return the context in which a model computes its products: autocast with ``precision: bfloat16``.

    Weights stay float32, and each is converted once within the context. Sums, norms and losses are float32. On CUDA,
    the call also sets whether float32 products of this process use tf32, until the call for another model. The
    backward pass outside the context has the same precision.
    """
    precision, device = model.config.train.precision, model.target_embedding.weight.device
    if device.type == "cuda":
        torch.backends.cuda.matmul.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()


@cache
def bfloat16_speed() -> float:
    """Return the speed of bfloat16 products relative to float32 on this processor, measured in about half a second.

    It is about 4 with AVX512-BF16 or AMX instructions, and far below 1 without them, where torch emulates bfloat16.
    """
    return _rate(torch.bfloat16) / _rate(torch.float32)


def _rate(dtype: torch.dtype) -> float:
    """Return products per second of a core, at the best of the repetitions that fit into the time limit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        left, right = torch.ones(1, _SIZE, _SIZE, dtype=dtype), torch.ones(1, _SIZE, _SIZE, dtype=dtype)
        best, end = float("inf"), time.perf_counter() + _SECONDS
        for repetition in range(1000):
            started = time.perf_counter()
            torch.bmm(left, right)
            stopped = time.perf_counter()
            if repetition:  # the first includes the preparation of the kernel
                best = min(best, stopped - started)
                if stopped > end:
                    break
        return 1 / best
    finally:
        torch.set_num_threads(threads)


def describe_bfloat16() -> str:
    """Return which precision is faster on this processor, and by what factor."""
    speed = bfloat16_speed()
    faster, factor = ("bfloat16", speed) if speed > 1 else ("float32", 1 / speed)
    return f"{faster} products are {factor:.1f} times as fast as {'float32' if speed > 1 else 'bfloat16'} products"
