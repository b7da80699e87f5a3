"""``h2h``, and ``python -m headtohead.cli``: one command, and the end of the process."""

from __future__ import annotations

import atexit
import os
import sys
import threading

from headtohead.cli import main


def entry() -> None:
    """Run one command and end.

    Taking torch and its like apart object by object takes a second at the end of every command and
    frees nothing that the system does not free anyway. So exit handlers run, the streams are
    flushed, and the process is gone; where a thread is still at work, it is waited for as usual.
    """
    code: object = 0
    try:
        main(prog_name="h2h")
    except SystemExit as ended:
        code = ended.code
    waiting = [one for one in threading.enumerate() if not one.daemon and one is not threading.main_thread()]
    if waiting or not isinstance(code, int):
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
