"""Invariants and pitfalls of registered entries: the checks behind ``h2h check``.

``examine`` evaluates every invariant for one entry. For a recipe it also measures the effect of each
pitfall on the recipe's own data, at the recipe's own sizes. Importing this package imports torch.
"""

from __future__ import annotations

from headtohead.tools.pitfalls.case import Case
from headtohead.tools.pitfalls.examination import Examination, InvariantResult, examine
from headtohead.tools.pitfalls.facts import Fact
from headtohead.tools.pitfalls.measurements import MEASUREMENTS, measure_pitfall

__all__ = ["MEASUREMENTS", "Case", "Examination", "Fact", "InvariantResult", "examine", "measure_pitfall"]
