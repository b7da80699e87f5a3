"""Precision of matrix products with float32 weights: bfloat16 or tf32 factors, and the speed of bfloat16."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import torch

from headtohead.model.transformer import Transformer
from headtohead.schema.choices import PRECISIONS, PrecisionName

_SIZE = {"cpu": 384, "cuda": 4096}
"""Rows and columns of the measured products, which are large enough for the peak and small enough for a few ms."""


def matmul_precision(model: Transformer) -> AbstractContextManager[object]:
    """Return the context in which a model computes its products: autocast with ``precision: bfloat16``.

    Weights stay float32, and each is converted once within the context. Sums, norms and losses are float32. On CUDA,
    the call also sets whether float32 products of this process use tf32, until the call for another model. The
    backward pass outside the context has the same precision.
    """
    precision = model.config.train.precision
    device = model.target_embedding.weight.device
    if device.type == "cuda":
        torch.backends.cuda.matmul.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    factors = PRECISIONS[precision].factors
    if factors == PRECISIONS[precision].weights:
        return nullcontext()
    return torch.autocast(device.type, getattr(torch, factors))


@contextmanager
def one_thread() -> Iterator[None]:
    """Use a single thread within the context; for small tensors, more threads are slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def bfloat16_speed() -> float:
    """Return the speed of bfloat16 products relative to float32 on this processor, measured in about 0.1 s.

    It was 2.1 to 2.5 on an AMD processor with AVX512-BF16. It is far below 1 without AVX512-BF16 and AMX, where
    torch emulates bfloat16.
    """
    with one_thread():
        return _product_flops(torch.bfloat16, "cpu") / _product_flops(torch.float32, "cpu")


@cache
def peak_flops(device: str, precision: PrecisionName) -> float:
    """Return the FLOP/s of large square products, measured in about 30 ms with the threads of this process.

    Args:
        device: Type of the device, ``cpu`` or ``cuda``.
        precision: Value of ``train.precision``; for tf32 after a call of `matmul_precision`.
    """
    return _product_flops(getattr(torch, PRECISIONS[precision].factors), device)


def _product_flops(dtype: torch.dtype, device: str) -> float:
    """Return the FLOP/s of a product, at the best of the repetitions that fit into 30 ms, at least ten.

    The best one counts because the process may be paused in the others. The first repetition, which prepares the
    kernel, is not timed.

    Args:
        dtype: Type of the factors.
        device: ``"cpu"`` or ``"cuda"``; another one is a `KeyError`.
    """
    size = _SIZE[device]
    left = torch.ones(1, size, size, dtype=dtype, device=device)
    right = torch.ones_like(left)
    best = float("inf")
    end = float("inf")
    for repetition in range(1000):
        started = time.perf_counter()
        torch.bmm(left, right)
        if device == "cuda":
            torch.cuda.synchronize()
        stopped = time.perf_counter()
        if repetition == 0:
            end = stopped + 0.03
            continue
        best = min(best, stopped - started)
        if stopped > end and repetition >= 10:
            break
    return 2 * size**3 / best


def describe_bfloat16() -> str:
    """Return which precision is faster on this processor, and by what factor."""
    speed = bfloat16_speed()
    faster, factor = ("bfloat16", speed) if speed > 1 else ("float32", 1 / speed)
    return f"{faster} products are {factor:.1f} times as fast as {'float32' if speed > 1 else 'bfloat16'} products"
