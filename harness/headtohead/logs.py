"""Logging of the package to standard error and to a file, in this process and in the workers that it starts."""

from __future__ import annotations

import logging
import os
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path

from headtohead.errors import HeadToHeadError
from headtohead.escaping import VisibleFormatter

LEVEL = "H2H_LOG_LEVEL"
"""Environment variable that passes the level to workers."""
FILE = "H2H_LOG_FILE"
"""Environment variable that passes the log file to workers."""

FORMAT = "%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s"
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
_settings: dict[str, str] = {}


def configure(verbosity: int, file: Path | None) -> None:
    """Send the package's log to standard error and to a file, instead of what an earlier call has set.

    Standard error gets warnings, with ``verbosity`` 1 also information, with 2 also details. The file gets information
    too, and details with 2; a file that cannot be written is an error.
    """
    level = _LEVELS[min(verbosity, 2)]
    _settings.clear()
    if verbosity or file is not None:
        _settings[LEVEL] = str(level)
    if file is not None:
        _settings[FILE] = str(file.resolve())
    _set_handlers(level, file)


def environment() -> Mapping[str, str]:
    """Return the variables that a worker's environment needs for `configure_worker`."""
    return _settings


def configure_worker() -> None:
    """Log as the parent does; standard error of a worker is its file worker.log."""
    if LEVEL not in os.environ:
        return
    # A full disk must not add lines to worker.log, whose last line is the reason.
    logging.raiseExceptions = False
    file = os.environ.get(FILE)
    _set_handlers(int(os.environ[LEVEL]), Path(file) if file else None)


def traceback_file(error: BaseException) -> str | None:
    """Return the log file, which has the traceback of the command's error, else a new temporary file with it.

    None if no temporary file can be written.
    """
    if FILE in _settings:
        return _settings[FILE]
    try:
        handle, path = tempfile.mkstemp(prefix="h2h-error-", suffix=".log")
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return None
    return path


def _set_handlers(level: int, file: Path | None) -> None:
    logger = logging.getLogger("headtohead")
    for handler in [*logger.handlers]:
        logger.removeHandler(handler)
        handler.close()
    logger.setLevel(level if file is None else min(level, logging.INFO))
    if file is None and level == logging.WARNING:
        return  # Python prints warnings if a logger has no handler
    to_standard_error = logging.StreamHandler()
    to_standard_error.setLevel(level)
    handlers: list[logging.Handler] = [to_standard_error]
    if file is not None:
        try:
            handlers.append(logging.FileHandler(file, encoding="utf-8", errors="backslashreplace"))
        except OSError as error:
            raise HeadToHeadError(
                f"cannot write the log file '{file}' ({error.strerror}); choose another file with --log-file"
            ) from error
    for handler in handlers:
        handler.setFormatter(VisibleFormatter(FORMAT))
        logger.addHandler(handler)
