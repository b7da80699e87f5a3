"""Entry point of ``h2h`` and ``python -m headtohead.cli``."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading

from headtohead import children
from headtohead.cli import main


def entry() -> None:
    """Run a command and exit without the interpreter's clean-up.

    The clean-up of torch and other large packages takes a second per command, and the operating system frees
    their memory anyway. Exit handlers still run and streams are flushed. If non-daemon threads are running, the
    interpreter exits normally and waits for them.
    """
    code: object = 0
    os.environ.update(children.SAFE_PATH)  # for processes that libraries start
    # matplotlib warns if the home folder cannot be written, and then uses a temporary folder.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        main(prog_name="h2h")
    except SystemExit as error:
        code = error.code
    main_thread = threading.main_thread()
    running = any(not thread.daemon and thread is not main_thread for thread in threading.enumerate())
    if running or not isinstance(code, int):
        sys.exit(code)  # type: ignore[arg-type]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(code)
    os._exit(code)


if __name__ == "__main__":
    entry()
