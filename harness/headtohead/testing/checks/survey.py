"""Evaluate every invariant for every row of the pairwise array of the registry (``h2h check --all``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headtohead.model.operations import one_thread
from headtohead.plugins.registry import Registry
from headtohead.schema.run_config import RunConfig
from headtohead.testing import INVARIANTS, Invariant, Subject, tiny_config
from headtohead.testing.checks.examination import InvariantResult, Outcome, evaluate, invariant_result, is_unexpected
from headtohead.testing.checks.pairwise import Row, choices, incompatible_pairs, pairwise
from headtohead.testing.invariants import TRAINING
from headtohead.testing.shrinking import shrink
from headtohead.testing.subject import variant_label

PairNames = tuple[str, str]
"""An attention and a positional encoding."""


@dataclass
class Survey:
    """The results of all combinations of the array."""

    outcomes: dict[PairNames, Counter[str]] = field(default_factory=dict)
    """Number of combinations by pair, and by their worst outcome."""
    incompatible: dict[PairNames, str] = field(default_factory=dict)
    """The reason of every pair that is incompatible."""
    invariants: dict[str, Counter[str]] = field(
        default_factory=lambda: {invariant.name: Counter() for invariant in INVARIANTS}
    )
    """Number of combinations by invariant and outcome."""
    violations: list[tuple[str, InvariantResult]] = field(default_factory=list)
    """Unexpected violations, each after the description of its variant."""
    known_violations: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of known violations by invariant and by the setting that declares them."""
    combinations: int = 0
    """Number of compatible combinations."""

    @property
    def is_sound(self) -> bool:
        """Whether there are no unexpected violations."""
        return not self.violations

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "sound": self.is_sound,
            "combinations": self.combinations,
            "invariants": {name: dict(counts) for name, counts in self.invariants.items()},
            "pairs": [
                {
                    "attention": pair[0],
                    "positional": pair[1],
                    "outcomes": dict(self.outcomes.get(pair, {})),
                    "incompatible": self.incompatible.get(pair),
                }
                for pair in sorted({*self.outcomes, *self.incompatible})
            ],
            "violations": [{"variant": variant, **result.to_json()} for variant, result in self.violations],
            "known_violations": [
                {"invariant": name, "cause": setting, "combinations": count}
                for (name, setting), count in sorted(self.known_violations.items())
            ],
        }


def survey(registry: Registry, progress: Callable[[int], None] = lambda combinations: None) -> Survey:
    """Evaluate every invariant for every row of the pairwise array; invariants that train stacks once for each style.

    Args:
        registry: The registry that defines the entries.
        progress: Called with the number of combinations evaluated so far.
    """
    result = Survey(
        incompatible={(style, encoding): reason for style, encoding, reason in incompatible_pairs(registry)}
    )
    trained: set[str] = set()
    with one_thread():
        for row in pairwise(registry):
            config = tiny_config(**choices(row, registry))
            omitted = TRAINING if row["attention"] in trained else frozenset()
            trained.add(row["attention"])
            _evaluate(result, row, config, [invariant for invariant in INVARIANTS if invariant.name not in omitted])
            progress(result.combinations)
    return result


def _evaluate(result: Survey, row: Row, config: RunConfig, invariants: Sequence[Invariant]) -> None:
    result.combinations += 1
    subject = Subject(config)
    worst: Outcome = "holds"
    for invariant in invariants:
        verdict = evaluate(invariant, subject)
        if is_unexpected(verdict):
            verdict = shrink(invariant, subject, verdict)
            variant = f"{variant_label(config)} · mask value {row['mask_value']}"
            result.violations.append((variant, invariant_result(invariant, verdict)))
            worst = "violated"
        outcome = invariant_result(invariant, verdict).outcome
        result.invariants[invariant.name][outcome] += 1
        if outcome == "known violation":
            result.known_violations[invariant.name, verdict.cause or ""] += 1
            worst = worst if worst == "violated" else outcome
    result.outcomes.setdefault((row["attention"], row["positional"]), Counter())[worst] += 1
