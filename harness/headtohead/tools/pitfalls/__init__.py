"""What is wrong with a configuration, shown with numbers.

``examine`` asks one entry every invariant. Of a recipe it also measures, on the recipe's own data
and at its own sizes, what the choices that are named as faults do: one file per kind of fault.
Importing this package imports torch.
"""

from __future__ import annotations

from headtohead.tools.pitfalls.case import Case
from headtohead.tools.pitfalls.every import EVIDENCE
from headtohead.tools.pitfalls.examination import Examination, Finding, examine
from headtohead.tools.pitfalls.fact import Fact
from headtohead.tools.pitfalls.targets import targets

__all__ = ["EVIDENCE", "Case", "Examination", "Fact", "Finding", "examine", "targets"]
