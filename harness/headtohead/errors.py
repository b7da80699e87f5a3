"""The error for problems that the user can fix, and helpers for its message."""

from __future__ import annotations

import difflib
import errno
import itertools
import re
import traceback
from collections.abc import Collection, Iterable
from pathlib import Path

from headtohead.synonyms import hint, synonyms

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_UNWRITABLE = frozenset(
    {errno.EROFS, errno.EACCES, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ETIMEDOUT}
)

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

MAX_NAMES = 40
"""Maximum number of known names that an error lists."""

MAX_CANDIDATES = 50
"""Maximum number of similar names whose edits are counted for a suggestion."""

MAX_FILES = 10_000
"""Maximum number of files that are compared with a missing file."""


class HeadToHeadError(Exception):
    """A problem that the user can fix: invalid input, a missing file, a full disk.

    The message is a single line: what is wrong with the value, then what to do. The command line prints it without
    a traceback and exits with code 2.
    """


class DiskError(OSError):
    """The disk is full or not writable; raised by `files.disk_errors` around writes of headtohead itself."""


class UndefinedError(HeadToHeadError):
    """Incompatible settings: a plan excludes the variant with this message as the reason."""


class ReadsError(HeadToHeadError):
    """An entry reads what it does not declare, or what it declares to read is missing; the message has the remedy."""


class Interrupted(KeyboardInterrupt):
    """An interruption that the command has already reported."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `suggestion`, or if there is none, a list of the known names; of many names, the first are listed."""
    names = sorted(set(known))
    more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
    listed = f"; known: {', '.join(names[:MAX_NAMES])}{more}" if names else ""
    return suggestion(name, names) or listed


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


def similar(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the known name that `_closest` returns, else an empty text.

    It is for names that users choose, such as those of experiments and runs.
    """
    close = _closest(name, known)
    return f"; did you mean '{close}'?" if close else ""


def _closest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar, or an empty text if none is similar.

    Names with a single typing error come first, then those with the most characters in common; a name of equal
    rank needs fewer edits. Case is ignored.
    """
    typed = name.lower()
    by_lower = {each.lower(): each for each in known}
    candidates = difflib.get_close_matches(typed, by_lower, n=MAX_CANDIDATES, cutoff=0.6)

    def rank(candidate: str) -> tuple[bool, float, int, str]:
        edits = edit_distance(typed, candidate)
        in_common = difflib.SequenceMatcher(None, candidate, typed).ratio()
        return edits > 1, -in_common, edits, candidate

    for candidate in sorted(candidates, key=rank):
        # An equal prefix such as "test/" does not make two names similar.
        last_part = candidate.rpartition("/")[2]
        if difflib.get_close_matches(typed.rpartition("/")[2], [last_part], cutoff=0.5):
            return by_lower[candidate]
    return ""


def edit_distance(first: str, second: str) -> int:
    """Return the number of edits between two texts.

    An edit inserts, deletes or replaces a character, or swaps two neighbours. No character is edited twice: the optimal
    string alignment of Damerau 1964, doi:10.1145/363958.363994.

    >>> edit_distance("bsae", "base"), edit_distance("bsae", "same")
    (1, 2)
    """
    before: list[int] = []
    row = list(range(len(second) + 1))
    for i, left in enumerate(first, 1):
        earlier, before = before, row
        row = [i]
        for j, right in enumerate(second, 1):
            replaced = before[j - 1] + (left != right)
            row.append(min(replaced, before[j] + 1, row[j - 1] + 1))
            is_swapped = i > 1 and j > 1 and left == second[j - 2] and right == first[i - 2]
            if is_swapped:
                row[j] = min(row[j], earlier[j - 2] + 1)
    return row[-1]


def similar_file(path: Path, *endings: str) -> str:
    """Return ``"; did you mean 'x.yaml'?"`` for a missing file, else an empty text.

    The suggestion has a similar name and is in the nearest folder that exists, or in a folder of it. It has one of the
    ``endings``, by default that of the missing file.
    """
    if path.is_symlink():
        return f"; it is a link to '{path.readlink()}', which does not exist"
    folder = next((parent for parent in path.parents if parent.is_dir()), Path())
    files = itertools.islice(
        (file for pattern in ("*", "*/*") for file in folder.glob(pattern)), MAX_FILES
    )
    nearest_last = sorted(files, key=lambda file: (len(file.parts), file), reverse=True)
    by_stem = {
        file.stem: file for file in nearest_last if file.suffix in (endings or (path.suffix,))
    }
    close = by_stem.get(_closest(path.stem, by_stem))
    return f"; did you mean '{close}'?" if close else ""


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
    if isinstance(
        error, SyntaxError
    ):  # its text has file and line, and its frames are those of the import
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
    folder in the place of a file or a file in the place of a folder. ``of_plugin`` states that the code of a plugin may
    have raised the error. Unwritable then requires a `DiskError`, since a plugin's timeout or missing permission, such
    as that of a download, is an error of the plugin.
    """
    while error is not None:
        number = disk_errno(error)
        if (
            number in _FULL
            or isinstance(error, DiskError)
            or (number is not None and not of_plugin)
        ):
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
    return (
        type(error).__name__ == "OutOfMemoryError" or _OUT_OF_MEMORY.search(str(error)) is not None
    )


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
