"""Ctrl-C in the command line: one line and exit code 130, whenever it comes.

While a command runs, Ctrl-C raises KeyboardInterrupt, so that the command can end its workers. Before and after it,
while packages are imported and exit handlers run, Ctrl-C ends the process at once.

Libraries, and finalisers that Python runs, can discard an exception of their caller. A KeyboardInterrupt that is
discarded while a command runs sends its signal again, so that the command ends nevertheless.
"""

import os
import signal

EXIT_CODE = 130
"""Exit code after Ctrl-C, as in shells."""

MESSAGE = "h2h: interrupted"

REPEAT_SECONDS = 0.05
"""Time from a discarded KeyboardInterrupt to the next signal, after the code that discards it."""

_is_started = False
_is_raising = False
_was_raised = False


class RepeatingInterrupt(KeyboardInterrupt):
    """Ctrl-C in a command; when Python frees it while the command still runs, its signal is sent again.

    Attributes:
        is_handled: Whether the command goes on after it (`headtohead.errors.go_on_after`).
    """

    is_handled = False

    def __del__(self) -> None:
        if _is_raising and not self.is_handled:
            _send_later()


def start() -> None:
    """End this process at Ctrl-C, unless its parent has chosen that Ctrl-C is ignored, as ``nohup`` does."""
    global _is_started
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _is_started = True
        signal.signal(signal.SIGINT, _exit)


def raise_interrupts() -> None:
    """Raise KeyboardInterrupt at Ctrl-C from now on."""
    global _is_raising
    if _is_started:
        _is_raising = True
        signal.signal(signal.SIGINT, _raise)


def was_raised() -> bool:
    """Return whether a Ctrl-C was raised; imports and plugins can turn it into another exception."""
    return _was_raised


def exit_at_interrupts() -> None:
    """End the process at Ctrl-C from now on, if `start` was called."""
    global _is_raising
    _is_raising = False
    if _is_started:
        signal.signal(signal.SIGINT, _exit)


def _raise(number: int, frame: object) -> None:
    global _was_raised
    _was_raised = True
    raise RepeatingInterrupt


def _send_later() -> None:
    """Send SIGINT to the main thread, from another thread: an exception in a finaliser would be discarded too."""
    import threading

    main_thread = threading.main_thread().ident
    timer = threading.Timer(
        REPEAT_SECONDS, lambda: signal.pthread_kill(main_thread or 0, signal.SIGINT)
    )
    timer.daemon = True
    timer.start()


def _exit(number: int, frame: object) -> None:
    exit_now()


def exit_now() -> None:
    """Print the line and end the process, without exit handlers."""
    try:
        os.write(2, f"{MESSAGE}\n".encode())
    finally:
        os._exit(EXIT_CODE)
