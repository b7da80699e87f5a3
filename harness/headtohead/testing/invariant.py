"""An invariant: a name, a promise in one sentence, and the function that checks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict

Check = Callable[[Subject], Verdict]


@dataclass(frozen=True)
class Invariant:
    """Something that is exactly true of every variant within its domain."""

    name: str
    promise: str
    check: Check

    def __call__(self, subject: Subject) -> Verdict:
        """Check one variant."""
        return self.check(subject)


def invariant(name: str) -> Callable[[Check], Invariant]:
    """Make an invariant of a function, whose docstring's first line is the promise."""

    def make(check: Check) -> Invariant:
        assert check.__doc__ is not None
        return Invariant(name, check.__doc__.strip().splitlines()[0], check)

    return make
