"""The error for problems that the user can fix, and helpers for its message."""

from __future__ import annotations

import difflib
import errno
import re
import traceback
from collections.abc import Collection, Iterable
from pathlib import Path

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_UNWRITABLE = frozenset({errno.EROFS, errno.EACCES, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ETIMEDOUT})

_LIMITS = {
    "free memory or raise ulimit -v": r"MemoryError|[Oo]ut of memory|not enough memory|failed to map segment|"
    r"annot allocate memory",
    "raise ulimit -n": r"Too many open files",
    "raise ulimit -u, or ulimit -v for the memory of a thread": r"can't start new thread|"
    r"BlockingIOError: .*Resource temporarily unavailable",
}
"""Remedies, and patterns of the errors of Python, torch, the loader and the system that they remove."""


MOST_NAMES = 40
"""Maximum number of known names that an error lists."""


class HeadToHeadError(Exception):
    """A problem that the user can fix: invalid input, a missing file, a full disk.

    The message is a single line: what is wrong with the value, then what to do. The command line prints it without
    a traceback and exits with code 2.
    """


class DiskError(OSError):
    """The disk is full or not writable; raised by `files.disk_errors` around writes of headtohead itself."""


class UndefinedError(HeadToHeadError):
    """Incompatible settings: a plan excludes the variant with this message as the reason."""


class PluginError(HeadToHeadError):
    """The code of a plugin raised an error, which is the cause of this one."""


class Interrupted(KeyboardInterrupt):
    """An interruption that the command has already reported."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest known name, else a list of the known names.

    The result is a suffix for a message that quotes the unknown name. Of many names, the first are listed.
    """
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    # An equal prefix such as "test/" does not make two names similar.
    if close and difflib.get_close_matches(name.rpartition("/")[2], [close[0].rpartition("/")[2]], cutoff=0.5):
        return f"; did you mean '{close[0]}'?"
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return f"; known: {', '.join(names[:MOST_NAMES])}{more}" if names else ""


def describe(error: BaseException, *packages: Collection[str]) -> str:
    """Return type, message and location of an error as a line: ``KeyError: 'a' (mine.py:12)``.

    Args:
        error: An error with its traceback.
        packages: Collections of top-level modules, such as those of plugins. The location is the innermost frame
            of the first collection that has a frame in the traceback, else of headtohead.
    """
    frames = [
        (frame.f_globals.get("__name__", "").partition(".")[0], frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):  # its text has file and line, and its frames are those of the import
        return " ".join(text.split())
    for modules in (*packages, ["headtohead"]):
        inside = [(frame, line) for package, frame, line in frames if package in modules]
        if inside:
            frame, line = inside[-1]
            text += f" ({shown_path(frame.f_code.co_filename)}:{line})"
            break
    return " ".join(text.split())


def first_line(error: Exception) -> str:
    """Return the type of an error and the first line of its message.

    >>> first_line(RuntimeError("kernel raised:\\nno C compiler\\nat line 3"))
    'RuntimeError: kernel raised: no C compiler'
    """
    lines = str(error).strip().splitlines()
    first = lines[:2] if lines and lines[0].endswith(":") else lines[:1]
    return ": ".join([type(error).__name__, " ".join(first)]) if first else type(error).__name__


def shown_path(path: Path | str) -> str:
    """Return a path for messages: relative if it is inside the working directory."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def is_disk_error(error: BaseException | None, *, of_plugin: bool = False) -> bool:
    """Return whether an error or one of its causes is a full or unwritable disk.

    Full: no space left, an exceeded quota, or a file above the size limit. Unwritable: no permission, a timeout, or a
    folder in the place of a file or a file in the place of a folder.

    Args:
        error: The error.
        of_plugin: Whether the code of a plugin may have raised it. Unwritable then requires a `DiskError`, since a
            plugin's timeout or missing permission, such as that of a download, is an error of the plugin.
    """
    while error is not None:
        number = disk_errno(error)
        if number in _FULL or isinstance(error, DiskError) or (number is not None and not of_plugin):
            return True
        error = error.__cause__
    return False


def disk_errno(error: BaseException) -> int | None:
    """Return the number of an error of a full or unwritable disk, None for other errors."""
    number = error.errno if isinstance(error, OSError) else None
    # safetensors reports errors of the operating system as text.
    match = re.search(r"\(os error (\d+)\)", str(error))
    if match and type(error).__name__ == "SafetensorError":
        number = int(match[1])
    return number if number in _FULL | _UNWRITABLE else None


def machine_limit(error: BaseException | None) -> str | None:
    """Return what to raise if an error or one of its causes is a limit of memory, open files or processes."""
    while error is not None:
        text = f"{type(error).__name__}: {error}"
        for remedy, pattern in _LIMITS.items():
            if re.search(pattern, text):
                return remedy
        error = error.__cause__
    return None
