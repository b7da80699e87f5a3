"""What is wrong with a configuration, shown with numbers.

``examine`` asks one entry every invariant. Of a recipe it also measures, on the recipe's own data
and at its own sizes, what the choices that are named as faults do: one file per kind of fault.
Importing this package imports torch.
"""

from __future__ import annotations

from headtohead.evidence.case import Case
from headtohead.evidence.every import EVIDENCE
from headtohead.evidence.examination import Examination, Finding, examine
from headtohead.evidence.fact import Fact
from headtohead.evidence.targets import targets

__all__ = ["EVIDENCE", "Case", "Examination", "Fact", "Finding", "examine", "targets"]
