"""An invariant: a name, a promise in one sentence, and the function that checks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from headtohead.testing.consequences import consequences
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
        """Check one variant; what a choice of it is known to break is blamed on that choice."""
        verdict = self.check(subject)
        if verdict.state != "broken":
            return verdict
        return replace(verdict, because=consequences(subject.config).get(self.name))


def invariant(name: str) -> Callable[[Check], Invariant]:
    """Make an invariant of a function, whose docstring's first line is the promise."""

    def make(check: Check) -> Invariant:
        assert check.__doc__ is not None
        return Invariant(name, check.__doc__.strip().splitlines()[0], check)

    return make
