"""Evidence: the measurement of one pitfall."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headtohead.tools.pitfalls.case import Case, NotMeasuredError
from headtohead.tools.pitfalls.fact import Fact

Measure = Callable[[Case], Iterator[Fact]]


@dataclass(frozen=True)
class Evidence:
    """The measurement of one pitfall.

    Attributes:
        pitfall: Name of the pitfall.
        measure: Yields facts.
    """

    pitfall: str
    measure: Measure

    def of(self, case: Case) -> list[Fact]:
        """Return the measured facts, or a note that the data is missing."""
        found: list[Fact] = []
        try:
            found.extend(self.measure(case))
        except NotMeasuredError as missing:
            found.append(Fact(self.pitfall, f"not measured: {missing}", measured=False))
        return found


def shows(pitfall: str) -> Callable[[Measure], Evidence]:
    """Return a decorator that makes evidence of a function that measures a pitfall."""

    def make(measure: Measure) -> Evidence:
        return Evidence(pitfall, measure)

    return make
