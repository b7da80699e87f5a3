"""Evaluate every invariant for every row of the pairwise array of the registry (``h2h check --all``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headtohead.model.precision import one_thread
from headtohead.plugins.registry import Registry
from headtohead.testing import INVARIANTS, Subject, tiny_config
from headtohead.testing.checks.examination import Result, evaluate_and_shrink, result_json
from headtohead.testing.checks.pairwise import Row, choices, incompatible_pairs, pairwise

OUTCOMES = ("violated", "known violation", "holds", "does not apply")
"""The outcomes of an invariant, the worst first."""


@dataclass
class Survey:
    """The verdicts on all rows of the array.

    Attributes:
        rows: The verdicts by row.
        incompatible: Attention, positional encoding and reason of every incompatible pair.
    """

    incompatible: list[tuple[str, str, str]]
    rows: list[tuple[Row, list[Result]]] = field(default_factory=list)

    @property
    def invariants(self) -> dict[str, Counter[str]]:
        """Number of rows by invariant and outcome."""
        counts: dict[str, Counter[str]] = {invariant.name: Counter() for invariant in INVARIANTS}
        for _, results in self.rows:
            for invariant, verdict in results:
                counts[invariant.name][verdict.outcome] += 1
        return counts

    @property
    def violations(self) -> list[tuple[str, Result]]:
        """Unexpected violations, each after the description of its row."""
        return [
            (" · ".join(row.values()), result)
            for row, results in self.rows
            for result in results
            if result[1].outcome == "violated"
        ]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; the outcome of a row is its worst one."""
        pairs: dict[tuple[str, str], Counter[str]] = {pair[:2]: Counter() for pair in self.incompatible}
        for row, results in self.rows:
            outcomes = {verdict.outcome for _, verdict in results}
            worst = next(outcome for outcome in OUTCOMES if outcome in outcomes)
            pairs.setdefault((row["attention"], row["positional"]), Counter())[worst] += 1
        reasons = {pair[:2]: pair[2] for pair in self.incompatible}
        return {
            "sound": not self.violations,
            "combinations": len(self.rows),
            "invariants": {name: dict(counts) for name, counts in self.invariants.items()},
            "pairs": [
                {
                    "attention": pair[0],
                    "positional": pair[1],
                    "outcomes": dict(outcomes),
                    "incompatible": reasons.get(pair),
                }
                for pair, outcomes in sorted(pairs.items())
            ],
            "violations": [{"variant": variant, **result_json(result)} for variant, result in self.violations],
        }


def survey(registry: Registry, progress: Callable[[int], None] = lambda combinations: None) -> Survey:
    """Evaluate every invariant for every row of the pairwise array; invariants that train stacks once for each style.

    Args:
        registry: The registry that defines the entries.
        progress: Called with the number of combinations evaluated so far.
    """
    result = Survey(incompatible_pairs(registry))
    trained: set[str] = set()
    with one_thread():
        for row in pairwise(registry):
            subject = Subject(tiny_config(**choices(row, registry)))
            chosen = [each for each in INVARIANTS if each.scope != "training" or row["attention"] not in trained]
            trained.add(row["attention"])
            result.rows.append((row, [(invariant, evaluate_and_shrink(invariant, subject)) for invariant in chosen]))
            progress(len(result.rows))
    return result
