"""Exit codes of a worker process."""

import signal

OK = 0
FAILED = 1
INPUT = 73
"""Something the user can mend; the last line of the worker's log says what."""

DISK = 74
"""The disk is full, or a folder cannot be written: no fault of the runs, whose states stay."""

OOM = 75
BUSY = 76
"""Another live process holds the stack."""
TIMEOUT = 77


def exit_name(code: int) -> str:
    """Return an exit code in words: the signal's name where it is negative.

    >>> exit_name(-9), exit_name(1)
    ('SIGKILL', 'exit code 1')
    """
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
