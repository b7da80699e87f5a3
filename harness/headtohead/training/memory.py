"""Errors of the memory and of the GPU of a training process, reuse of freed memory, and load of the machine."""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from contextlib import suppress
from importlib import import_module

import psutil
import torch

from headtohead.errors import is_out_of_memory

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
MAX_THRESHOLD = 2**30
"""Blocks of up to this many bytes are allocated from the heap."""


def is_device_error(error: BaseException) -> bool:
    """Return whether an error is one of the GPU. Later operations of the process on that GPU fail too."""
    return (
        isinstance(error, RuntimeError)
        and "CUDA error" in str(error)
        and not is_out_of_memory(error)
    )


def keep_freed_memory() -> bool:
    """Make glibc allocate large blocks from the heap and reuse freed memory.

    By default, blocks over 32 MiB are mapped and unmapped each time, and their pages are zeroed. For
    the logits of a large vocabulary, this takes a third of a training step on a CPU
    (benchmarks/results.md). Other C libraries are not changed.

    Returns:
        Whether glibc accepted the settings.
    """
    name = ctypes.util.find_library("c") if sys.platform == "linux" else None
    mallopt = getattr(ctypes.CDLL(name), "mallopt", None) if name else None
    if mallopt is None:
        return False
    return bool(
        mallopt(M_MMAP_THRESHOLD, MAX_THRESHOLD) and mallopt(M_TRIM_THRESHOLD, MAX_THRESHOLD)
    )


def machine_load(device: torch.device) -> dict[str, float]:
    """Return the load of the machine by the names of MLflow's system metrics: CPU since the last call, memory, GPU.

    The GPU's utilisation requires nvidia-ml-py and a driver that counts it, as it does not for a part of a GPU (MIG);
    without it, only the memory is measured.
    """
    memory = psutil.virtual_memory()
    load = {
        "system/cpu_utilization_percentage": psutil.cpu_percent(),
        "system/system_memory_usage_megabytes": memory.used / 1e6,
        "system/system_memory_usage_percentage": memory.percent,
    }
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        load["system/gpu_0_memory_usage_megabytes"] = (total - free) / 1e6
        load["system/gpu_0_memory_usage_percentage"] = 100 * (total - free) / total
        with suppress(ImportError):
            unmeasured = import_module("pynvml").NVMLError
            with suppress(
                unmeasured, RuntimeError
            ):  # a driver that does not count it, or no driver
                load["system/gpu_0_utilization_percentage"] = float(torch.cuda.utilization(device))
    return load
