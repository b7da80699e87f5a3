"""The error for problems that the user can fix, similar names for its message, and errors of a full disk."""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_UNWRITABLE = frozenset(
    {errno.EROFS, errno.EACCES, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ETIMEDOUT}
)

MAX_NAMES = 40
"""Maximum number of known names that an error lists."""

MAX_CANDIDATES = 50
"""Maximum number of similar names whose edits are counted for a suggestion."""


class HeadToHeadError(Exception):
    """A problem that the user can fix: invalid input, a missing file, a full disk.

    The message is a single line: what is wrong with the value, then what to do. The command line prints it without
    a traceback and exits with code 2.
    """


class MissingBaselineError(HeadToHeadError):
    """The scores do not have the baseline."""


class TooFewSeedsError(HeadToHeadError):
    """A variant has fewer seeds than the comparison needs."""


class DiskError(OSError):
    """The disk is full or not writable; raised by `files.disk_errors` around writes of our own files."""


def similar_or_known(name: str, known: Iterable[str]) -> str:
    """Return `similar`, or if there is no similar name, `known_names`."""
    names = sorted(set(known))
    return similar(name, names) or known_names(names)


def known_names(names: list[str]) -> str:
    """Return ``"; known: a, b"``, with the first `MAX_NAMES` names; empty without names."""
    if not names:
        return ""
    text = f"; known: {', '.join(names[:MAX_NAMES])}"
    if len(names) > MAX_NAMES:
        text += f" and {len(names) - MAX_NAMES:,} more"
    return text


def similar(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the known name that `closest` returns, else an empty text.

    It is for names that users choose, such as those of variants, experiments and runs.
    """
    close = closest(name, known)
    if not close:
        return ""
    return f"; did you mean '{close}'?"


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar, or an empty text if none is similar.

    Names with a single typing error come first, then those with the most characters in common; a name of equal
    rank needs fewer edits. Case is ignored.
    """
    typed = name.lower()
    by_lower = {known_name.lower(): known_name for known_name in known}
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
        earlier = before
        before = row
        row = [i]
        for j, right in enumerate(second, 1):
            replaced = before[j - 1] + (left != right)
            row.append(min(replaced, before[j] + 1, row[j - 1] + 1))
            is_swapped = i > 1 and j > 1 and left == second[j - 2] and right == first[i - 2]
            if is_swapped:
                row[j] = min(row[j], earlier[j - 2] + 1)
    return row[-1]


def disk_errno(error: BaseException) -> int | None:
    """Return the number of an error of a full or unwritable disk, None for other errors."""
    number = error.errno if isinstance(error, OSError) else None
    # safetensors reports errors of the operating system as text.
    match = re.search(r"\(os error (\d+)\)", str(error))
    if match and type(error).__name__ == "SafetensorError":
        number = int(match[1])
    return number if number in _FULL | _UNWRITABLE else None


def is_disk_error(error: BaseException | None, *, of_plugin: bool = False) -> bool:
    """Return whether an error or one of its causes is a full or unwritable disk.

    Full: no space left, an exceeded quota, or a file above the size limit. Unwritable: no permission, a timeout, or a
    folder in the place of a file or a file in the place of a folder. ``of_plugin`` states that the code of a plugin may
    have raised the error. Unwritable then requires a `DiskError`, since a plugin's timeout or missing permission, such
    as that of a download, is an error of the plugin.
    """
    while error is not None:
        number = disk_errno(error)
        if number in _FULL or isinstance(error, DiskError):
            return True
        if number is not None and not of_plugin:
            return True
        error = error.__cause__
    return False
