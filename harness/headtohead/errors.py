"""Errors of headtohead and helpers for their messages; those that the judge needs too come from its package."""

from __future__ import annotations

import errno
import itertools
import re
import traceback
from collections.abc import Collection, Iterable
from pathlib import Path

from headtohead.synonyms import hint, synonyms
from headtohead_judge.errors import MAX_NAMES as MAX_NAMES
from headtohead_judge.errors import DiskError as DiskError
from headtohead_judge.errors import HeadToHeadError as HeadToHeadError
from headtohead_judge.errors import closest, known_names
from headtohead_judge.errors import edit_distance as edit_distance
from headtohead_judge.errors import is_disk_error as is_disk_error
from headtohead_judge.errors import similar as similar

_OUT_OF_MEMORY = re.compile(
    r"out of memory|not enough memory|allocate memory|_STATUS_\w*ALLOC\w*_FAILED|"
    r"Storage size calculation overflowed",  # a tensor of more than 2**63 bytes
    re.IGNORECASE,
)
"""Messages of out-of-memory errors that torch raises as plain RuntimeError."""

_MORE_MEMORY = "free memory or raise ulimit -v"

_LIMITS = {
    # Further errors of the loader and of native code without memory.
    _MORE_MEMORY: re.compile(
        r"failed to map segment|annot allocate memory|SystemError: error return without exception set"
    ),
    "raise ulimit -n": re.compile(r"Too many open files"),
    "raise ulimit -u, or ulimit -v for the memory of a thread": re.compile(
        r"can't start new thread|BlockingIOError: .*Resource temporarily unavailable"
    ),
}
"""Remedies, and patterns of the errors of Python, torch, the loader and the system that they remove.

The patterns are compiled at import, because without memory they cannot be.
"""

MAX_FILES = 10_000
"""Maximum number of files that are compared with a missing file."""


class UndefinedError(HeadToHeadError):
    """Incompatible settings: a plan excludes the variant with this message as the reason."""


class ReadsError(HeadToHeadError):
    """An entry reads what it does not declare, or what it declares to read is missing; the message has the remedy."""


class PluginError(HeadToHeadError):
    """The code of a plugin has raised an error; the message has the entry, the error and the command that tests it."""


def go_on_after(interrupt: KeyboardInterrupt) -> None:
    """Mark a Ctrl-C as handled, so that `headtohead.cli.interruption` does not send it again."""
    interrupt.is_handled = True  # type: ignore[attr-defined]


class Interrupted(KeyboardInterrupt):
    """An interruption that the command has already reported."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `suggestion`, or if there is none, a list of the known names; of many names, the first are listed."""
    names = sorted(set(known))
    return suggestion(name, names) or known_names(names)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for a synonym or the closest known name, else an empty text.

    The result is a suffix for a message that quotes the unknown name. For a name of another tool that no name here
    replaces, it is what exists instead.
    """
    names = sorted(set(known))
    prefix, slash, last = name.rpartition("/")
    for other in synonyms(last):
        for replacement in (f"{prefix}{slash}{other}", other):
            if replacement in names:
                return f"; did you mean '{replacement}'?"
    if not slash and hint(name):
        return f"; {hint(name)}"
    return similar(name, names)


def similar_file(path: Path, *endings: str) -> str:
    """Return ``"; did you mean 'x.yaml'?"`` for a missing file, else an empty text.

    The suggestion has a similar name and is in the nearest folder that exists, or in a folder of it. It has one of the
    ``endings``, by default that of the missing file.
    """
    if path.is_symlink():
        return f"; it is a link to '{path.readlink()}', which does not exist"
    folder = next((parent for parent in path.parents if parent.is_dir()), Path())
    candidates = itertools.chain(folder.glob("*"), folder.glob("*/*"))
    files = itertools.islice(candidates, MAX_FILES)
    nearest_last = sorted(files, key=lambda file: (len(file.parts), file), reverse=True)
    by_stem: dict[str, Path] = {}
    for file in nearest_last:
        if file.suffix in (endings or (path.suffix,)):
            by_stem[file.stem] = file
    stem = closest(path.stem, by_stem)
    if stem not in by_stem:
        return ""
    return f"; did you mean '{by_stem[stem]}'?"


def describe(error: BaseException, *packages: Collection[str]) -> str:
    """Return type, message and location of an error as a line: ``KeyError: 'a' (mine.py:12)``.

    Args:
        error: An error with its traceback.
        packages: Collections of top-level modules, such as those of plugins. The location is the innermost frame
            of the first collection that has a frame in the traceback, else of headtohead.
    """
    text = f"{type(error).__name__}: {error}"
    # The text of a SyntaxError has file and line, and its frames are those of the import.
    if not isinstance(error, SyntaxError):
        locations: dict[str, str] = {}  # the innermost of each package
        for frame, line in traceback.walk_tb(error.__traceback__):
            package, _, _ = frame.f_globals.get("__name__", "").partition(".")
            locations.pop(package, None)
            locations[package] = f" ({shown_path(frame.f_code.co_filename)}:{line})"
        for modules in (*packages, ["headtohead"]):
            inside = [location for package, location in locations.items() if package in modules]
            if inside:
                text += inside[-1]
                break
    return " ".join(text.split())


def first_line(error: Exception) -> str:
    """Return the type of an error and the first line of its message.

    >>> first_line(RuntimeError("kernel raised:\\nno C compiler\\nat line 3"))
    'RuntimeError: kernel raised: no C compiler'
    """
    name = type(error).__name__
    lines = str(error).strip().splitlines()
    if not lines:
        return name
    if lines[0].endswith(":"):
        return f"{name}: {' '.join(lines[:2])}"
    return f"{name}: {lines[0]}"


def shown_path(path: Path | str) -> str:
    """Return a path for messages: relative if it is inside the working directory."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that a GPU or the host is out of memory.

    The type `torch.OutOfMemoryError` is recognised by its name, because this module does not load torch.
    """
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    if type(error).__name__ == "OutOfMemoryError":
        return True
    return _OUT_OF_MEMORY.search(str(error)) is not None


def machine_limit(error: BaseException | None) -> str | None:
    """Return what to raise if an error or one of its causes is a limit of memory, open files or processes."""
    while error is not None:
        if is_out_of_memory(error):
            return _MORE_MEMORY
        text = f"{type(error).__name__}: {error}"
        for remedy, pattern in _LIMITS.items():
            if pattern.search(text):
                return remedy
        error = error.__cause__
    return None
