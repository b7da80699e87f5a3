"""Training on CUDA: settings of the process, batches without synchronisation, and captured steps.

``model/cuda.py`` has the layouts and attention kernels, which are a part of the model; ``model/precision.py`` sets
tf32.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Capture = Callable[[Callable[[], None]], Callable[[], None]]
"""Captures the device operations of a call without executing them, and returns a replay function."""

PARTS = 8
"""Numbers of target tokens are rounded up to multiples of 1 / ``PARTS`` of a batch, so that fewer shapes occur."""


def configure() -> None:
    """Set what torch leaves open on CUDA; call it before the first operation of a process.

    Scaled-dot-product attention uses the efficient kernel where ``attention_kernel`` names it. cuDNN's has had faults
    with masks, and flash attention supports none. Sums of bfloat16 products are float32.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def wait(device: torch.device) -> None:
    """Wait for the operations of a GPU; CPU operations are synchronous."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def copied(rows: Tensor, device: torch.device) -> Tensor:
    """Return rows on the device, without waiting for it."""
    if device.type == "cuda":
        rows = rows.contiguous().pin_memory()  # otherwise the copy waits for the device
    return rows.to(device, non_blocking=True)


def rounded(num_target_tokens: int, shape: tuple[int, int]) -> int:
    """Return a number of target tokens rounded up; on a GPU, fewer shapes save more time than fewer positions.

    ``shape`` is ``(batch, target time)``.

    >>> rounded(70, (10, 10)), rounded(99, (10, 10)), rounded(1, (1, 3))
    (78, 100, 1)
    """
    most = shape[0] * shape[1]
    part = -(-most // PARTS)
    return min(most, -(-num_target_tokens // part) * part)


def cuda_capture(device: torch.device) -> Capture:
    """Return a capture function for a GPU. Its graphs share memory, as they run one after another."""
    pool = torch.cuda.graph_pool_handle()
    stream = torch.cuda.Stream(device)

    def capture(work: Callable[[], None]) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        # torch.cuda.graph leaves its own stream current if ending the capture raises.
        with (
            torch.cuda.stream(torch.cuda.current_stream(device)),
            torch.cuda.graph(graph, pool=pool, stream=stream),
        ):
            work()
        return graph.replay

    return capture
