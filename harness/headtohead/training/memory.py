"""Keeping freed memory in the process, where the C library would hand it back each time."""

from __future__ import annotations

import ctypes
import ctypes.util
import sys

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
LARGEST = 2**30
"""Blocks up to this many bytes are taken from the heap."""


def keep_freed_memory() -> bool:
    """Tell glibc to serve large blocks from the heap and to keep what is freed; say if it did.

    By default every block over 32 MiB is mapped and unmapped anew, and its pages are zeroed and
    faulted in again: for logits of a real vocabulary that is a third of a training step on a CPU
    (docs/performance.md). Other C libraries are left as they are.
    """
    name = ctypes.util.find_library("c") if sys.platform == "linux" else None
    mallopt = getattr(ctypes.CDLL(name), "mallopt", None) if name else None
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST) and mallopt(M_TRIM_THRESHOLD, LARGEST))
