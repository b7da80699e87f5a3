"""The one error that a user can cause, and the nearest-name suggestion that goes with it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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
