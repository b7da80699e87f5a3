"""Exit codes of a worker process."""

OK = 0
FAILED = 1
INPUT = 73
"""A `HeadToHeadError`; its message is the last line of the worker's log."""

DISK = 74
"""The disk is full or not writable. The runs keep their states."""

OOM = 75
BUSY = 76
"""Another live process holds a lease of the stack's runs."""
TIMEOUT = 77
DEVICE = 78
"""An error of the GPU, which may be that of an earlier operation; a new process continues from the resume point."""
