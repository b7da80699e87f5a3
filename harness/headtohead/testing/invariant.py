"""An invariant: a name, a statement in one sentence, and the function that checks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from headtohead.testing.known_violations import known_violations
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict

Check = Callable[[Subject], Verdict]


@dataclass(frozen=True)
class Invariant:
    """A statement that is exactly true of every variant within its domain.

    Attributes:
        name: In lower case with hyphens, for example ``"cached-decoding"``.
        statement: One sentence, the first line of the check's docstring.
        check: Returns the verdict on a subject.
    """

    name: str
    statement: str
    check: Check

    def __call__(self, subject: Subject) -> Verdict:
        """Check one variant; a known violation names the setting that causes it."""
        verdict = self.check(subject)
        if verdict.state != "violated":
            return verdict
        return replace(verdict, cause=known_violations(subject.config).get(self.name))


def invariant(name: str) -> Callable[[Check], Invariant]:
    """Return a decorator that turns a check into an invariant.

    The first line of the check's docstring becomes the statement.
    """

    def make(check: Check) -> Invariant:
        assert check.__doc__ is not None
        return Invariant(name, check.__doc__.strip().splitlines()[0], check)

    return make
