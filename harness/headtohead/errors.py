"""The one error that a user can cause, and the nearest-name suggestion that goes with it."""

from __future__ import annotations

import difflib
import errno
import re
import traceback
from collections.abc import Collection, Iterable
from pathlib import Path

_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES})


class HeadToHeadError(Exception):
    """Something the user can mend: bad input, a missing file, a full disk.

    The text is one line: what is wrong, with the value, and what to type instead. The command line
    prints it without a traceback and exits with code 2.
    """


class UndefinedError(HeadToHeadError):
    """Choices that have no meaning together: a plan leaves the variant out and gives the reason."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest known name, else the list of known names.

    The result is meant to be appended to a message that already quotes the unknown name.
    """
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(names)}" if names else ""


def describe(error: BaseException, *packages: Collection[str]) -> str:
    """Return type, message and location of an error in one line: ``KeyError: 'a' (mine.py:12)``.

    Args:
        error: With its traceback.
        packages: Names of top-level modules, such as those of plugins. The location is the
            innermost frame in the first collection that has a frame, else in headtohead.
    """
    frames = [
        (frame.f_globals.get("__name__", "").partition(".")[0], frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    text = f"{type(error).__name__}: {error}"
    for wanted in (*packages, ["headtohead"]):
        inside = [(frame, line) for package, frame, line in frames if package in wanted]
        if inside:
            frame, line = inside[-1]
            text += f" ({shown_path(frame.f_code.co_filename)}:{line})"
            break
    return " ".join(text.split())


def shown_path(path: Path | str) -> str:
    """Return a path as a message shows it: relative where it lies in the working directory."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def is_disk_error(error: BaseException | None) -> bool:
    """Return whether an error, or what caused it, is a full or unwritable disk.

    Full means: no space left, a quota that is reached, or a file larger than allowed.
    """
    while error is not None:
        if _errno(error) in _DISK:
            return True
        error = error.__cause__
    return False


def _errno(error: BaseException) -> int | None:
    if isinstance(error, OSError):
        return error.errno
    # safetensors reports the error of the operating system as text.
    found = re.search(r"\(os error (\d+)\)", str(error))
    return int(found[1]) if found and type(error).__name__ == "SafetensorError" else None
