"""Exit codes of a worker process."""

import signal

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


def exit_name(code: int) -> str:
    """Return an exit code as text; a negative code is the name of a signal.

    >>> exit_name(-9), exit_name(1)
    ('SIGKILL', 'exit code 1')
    """
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
