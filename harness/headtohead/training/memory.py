"""Memory of a training process: what counts as too little, and keeping what was freed."""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import re
import sys

import torch

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
LARGEST = 2**30
"""Blocks up to this many bytes are taken from the heap."""

OUT_OF_MEMORY = re.compile(r"out of memory|not enough memory|allocate memory|_STATUS_\w*ALLOC\w*_FAILED", re.IGNORECASE)
"""Messages of errors that torch raises as plain RuntimeError: CUDA's, its libraries', the CPU's."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error is a lack of memory, on a GPU or the host, not a fault of a run."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(str(error)) is not None


def keep_freed_memory() -> bool:
    """Tell glibc to serve large blocks from the heap and to keep what is freed; say if it did.

    By default every block over 32 MiB is mapped and unmapped anew, and its pages are zeroed and
    faulted in again: for logits of a real vocabulary that is a third of a training step on a CPU
    (docs/internals/performance.md). Other C libraries are left as they are.
    """
    name = ctypes.util.find_library("c") if sys.platform == "linux" else None
    mallopt = getattr(ctypes.CDLL(name), "mallopt", None) if name else None
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST) and mallopt(M_TRIM_THRESHOLD, LARGEST))
