"""The pitfalls of a configuration, with measurements.

``examine`` evaluates every invariant for one entry. For a recipe it also measures the effect of each
pitfall on the recipe's own data and at its own sizes, with one file per kind of pitfall. Importing
this package imports torch.
"""

from __future__ import annotations

from headtohead.tools.pitfalls.case import Case
from headtohead.tools.pitfalls.every import EVIDENCE
from headtohead.tools.pitfalls.examination import Examination, Finding, examine
from headtohead.tools.pitfalls.fact import Fact
from headtohead.tools.pitfalls.targets import targets

__all__ = ["EVIDENCE", "Case", "Examination", "Fact", "Finding", "examine", "targets"]
