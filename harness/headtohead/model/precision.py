"""Precision of matrix products with float32 weights: bfloat16 or tf32 factors, and the speed of bfloat16."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import torch

from headtohead.model.aligned import affine
from headtohead.model.transformer import Transformer
from headtohead.schema.choices import PRECISIONS, PrecisionName

PROBED_ROWS = 1024
"""Rows of the linear layer that `linear_speed` measures."""

MIN_PROBED_WIDTH = 128
"""Smallest width for which `faster_precision` measures: below, products are a small part of a training step."""

WORTHWHILE = 1.3
"""Smallest speed of linear layers for which `faster_precision` names bfloat16."""

_SIZE = {"cpu": 384, "cuda": 4096}
"""Rows and columns of the measured products, which are large enough for the peak and small enough for a few ms."""


def matmul_precision(model: Transformer) -> AbstractContextManager[object]:
    """Return the context in which a model computes its products: autocast with ``precision: bfloat16``, else no change.

    Under autocast, weights stay float32, and each is converted once within the context; sums, norms and losses are
    float32. On CUDA, the call also sets whether float32 products of this process use tf32, until the call for another
    model. The backward pass outside the context has the same precision.
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
    """Return the FLOP/s of a product, at the best of its repetitions (`_best_seconds`).

    The best one counts because the process may be paused in the others.

    Args:
        dtype: Type of the factors.
        device: ``"cpu"`` or ``"cuda"``; another one is a `KeyError`.
    """
    size = _SIZE[device]
    left = torch.ones(1, size, size, dtype=dtype, device=device)
    right = torch.ones_like(left)

    def multiply() -> None:
        torch.bmm(left, right)
        if device == "cuda":
            torch.cuda.synchronize()

    return 2 * size**3 / _best_seconds(multiply)


def _best_seconds(compute: Callable[[], object]) -> float:
    """Return the time of the fastest of the calls that fit into 30 ms, at least ten; a first call is not timed."""
    compute()
    best = float("inf")
    end = time.perf_counter() + 0.03
    for repetition in range(1000):
        started = time.perf_counter()
        compute()
        stopped = time.perf_counter()
        best = min(best, stopped - started)
        if stopped > end and repetition >= 9:
            break
    return best


@cache
def linear_speed(width: int) -> float:
    """Return the speed of linear layers of a width in bfloat16 relative to float32 on this processor.

    A layer has as many outputs as inputs. Its forward pass is measured with one thread in about 0.1 s, conversions of
    inputs and weights included.
    """
    x = torch.ones(1, PROBED_ROWS, width)
    weight = torch.ones(1, width, width)
    with one_thread(), torch.no_grad():
        exact = _best_seconds(lambda: affine(x, weight, None))
        with torch.autocast("cpu", torch.bfloat16):
            return exact / _best_seconds(lambda: affine(x, weight, None))


def faster_precision(width: int) -> str:
    """Return what ``precision: bfloat16`` gains for models of a width on this processor, or nothing if it gains little.

    Only linear layers are measured; norms, softmax, losses and updates take as long as in float32.
    """
    if width < MIN_PROBED_WIDTH or bfloat16_speed() < WORTHWHILE:
        return ""
    speed = linear_speed(width)
    if speed < WORTHWHILE:
        return ""
    return (
        f"linear layers of width {width} are {speed:.1f} times as fast in bfloat16 on this processor: "
        "--set train.precision=bfloat16"
    )


def describe_bfloat16() -> str:
    """Return which precision is faster on this processor, and by what factor."""
    speed = bfloat16_speed()
    faster, factor = ("bfloat16", speed) if speed > 1 else ("float32", 1 / speed)
    return f"{faster} products are {factor:.1f} times as fast as {'float32' if speed > 1 else 'bfloat16'} products"
