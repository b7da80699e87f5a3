"""Ctrl-C in the command line: one line and exit code 130, whenever it comes.

While a command runs, Ctrl-C raises KeyboardInterrupt, so that the command can end its workers. Before and after it,
while packages are imported and exit handlers run, Ctrl-C ends the process at once.
"""

import os
import signal

EXIT_CODE = 130
"""Exit code after Ctrl-C, as in shells."""

MESSAGE = "h2h: interrupted"

_is_started = False
_was_raised = False


def start() -> None:
    """End this process at Ctrl-C, unless its parent has chosen that Ctrl-C is ignored, as ``nohup`` does."""
    global _is_started
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _is_started = True
        signal.signal(signal.SIGINT, _exit)


def raise_interrupts() -> None:
    """Raise KeyboardInterrupt at Ctrl-C from now on."""
    if _is_started:
        signal.signal(signal.SIGINT, _raise)


def was_raised() -> bool:
    """Return whether a Ctrl-C was raised; the import of a C extension can turn it into another exception."""
    return _was_raised


def exit_at_interrupts() -> None:
    """End the process at Ctrl-C from now on, if `start` was called."""
    if _is_started:
        signal.signal(signal.SIGINT, _exit)


def _raise(number: int, frame: object) -> None:
    global _was_raised
    _was_raised = True
    raise KeyboardInterrupt


def _exit(number: int, frame: object) -> None:
    exit_now()


def exit_now() -> None:
    """Print the line and end the process, without exit handlers."""
    try:
        os.write(2, f"{MESSAGE}\n".encode())
    finally:
        os._exit(EXIT_CODE)
