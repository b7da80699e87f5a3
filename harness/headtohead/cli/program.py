"""Run of a command from its first import to the exit of the process."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
import threading

from headtohead import children, logs
from headtohead.cli.group import main
from headtohead.errors import describe
from headtohead_judge.output import echo

YOUNG_OBJECTS = 50_000
"""New objects from which the garbage collector runs; Python's 700 costs a tenth of a second per second of imports."""

INTERNAL_ERROR = 70
"""Exit code of an unexpected error (EX_SOFTWARE of sysexits.h); no command returns it otherwise."""


def run_program() -> None:
    """Run a command and exit without the interpreter's clean-up.

    The clean-up of torch and other large packages takes a second per command, and the operating system frees
    their memory anyway. Exit handlers still run and streams are flushed. If non-daemon threads are running, the
    interpreter exits normally and waits for them.
    """
    code: object = 0
    gc.set_threshold(YOUNG_OBJECTS)
    sys.unraisablehook = _hide_interrupt
    os.environ.update(children.SAFE_PATH)  # for processes that libraries start
    # pydantic searches every installed package for plugins, which takes as long as all models of an experiment file.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    # matplotlib warns if the home folder cannot be written, and then uses a temporary folder.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        main(prog_name="h2h")
    except SystemExit as error:
        code = error.code
    except Exception as error:
        code = INTERNAL_ERROR
        file = logs.traceback_file(error)
        where = "--log-file FILE keeps the traceback"
        if file:
            where = f"the traceback is in '{file}'"
        echo(f"h2h: internal error: {describe(error)}; {where}", err=True)
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    has_running = any(not thread.daemon for thread in others)
    if has_running or not isinstance(code, int):
        sys.exit(code)  # type: ignore[arg-type]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # closed by the shell
                stream.flush()
    except BrokenPipeError:
        pass
    except OSError:
        sys.exit(code)
    os._exit(code)


def _hide_interrupt(discarded: sys.UnraisableHookArgs) -> None:
    """Print no traceback of a Ctrl-C that a finaliser has discarded: it is repeated (`headtohead.cli.interruption`)."""
    if not isinstance(discarded.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(discarded)
