"""Evidence: what is measured where a fault is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headtohead.tools.pitfalls.case import Case, NotMeasuredError
from headtohead.tools.pitfalls.fact import Fact

Measure = Callable[[Case], Iterator[Fact]]


@dataclass(frozen=True)
class Evidence:
    """How one fault is shown.

    Attributes:
        fault: Its name.
        measure: Yields facts.
    """

    fault: str
    measure: Measure

    def of(self, case: Case) -> list[Fact]:
        """Measure, as far as the data is at hand."""
        found: list[Fact] = []
        try:
            found.extend(self.measure(case))
        except NotMeasuredError as missing:
            found.append(Fact(self.fault, f"not measured: {missing}", measured=False))
        return found


def shows(fault: str) -> Callable[[Measure], Evidence]:
    """Make evidence for a fault of a function that measures it."""

    def make(measure: Measure) -> Evidence:
        return Evidence(fault, measure)

    return make
