"""How a worker process says why it ended."""

OK = 0
FAILED = 1
INPUT = 73
"""Something the user can mend; the last line of the worker's log says what."""

DISK = 74
"""The disk is full, or a folder cannot be written."""
OOM = 75
BUSY = 76
"""Another live process holds the stack."""
TIMEOUT = 77
