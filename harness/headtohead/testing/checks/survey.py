"""Evaluate every invariant for every compatible combination of the registry (``h2h check --all``).

The combinations are all of attention × positional × masking, with one of three mask values, and each entry in every
role and in each role alone. Every entry occurs with every mask value. A positional encoding that is incompatible with
the encoder is used in the decoder only. Invariants that train stacks are evaluated once for each pair of attention and
positional.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle, product
from typing import Any

from headtohead.errors import HeadToHeadError
from headtohead.model.operations import one_thread
from headtohead.plugins.registry import Registry
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import RunConfig
from headtohead.testing import INVARIANTS, Subject
from headtohead.testing.checks.configurations import compatible_config, role_variants
from headtohead.testing.checks.examination import InvariantResult, Outcome, evaluate, invariant_result, is_unexpected
from headtohead.testing.invariants import TRAINING
from headtohead.testing.invariants.parity import MASK_VALUES
from headtohead.testing.shrinking import shrink
from headtohead.testing.subject import variant_label

DEFAULTS = {"attention": "split-heads", "positional": "sinusoidal", "masking": "padding-causal"}
PairNames = tuple[str, str]
"""An attention and a positional encoding."""


@dataclass
class Survey:
    """The results of all combinations."""

    outcomes: dict[PairNames, Counter[str]] = field(default_factory=dict)
    """Number of combinations by pair, and by their worst outcome."""
    incompatible: dict[PairNames, str] = field(default_factory=dict)
    """The first reason why a combination of a pair is incompatible."""
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

    @property
    def incompatible_pairs(self) -> dict[PairNames, str]:
        """The reason of every pair without a compatible combination."""
        return {pair: reason for pair, reason in self.incompatible.items() if pair not in self.outcomes}

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
    """Evaluate every invariant for every compatible combination.

    Args:
        registry: The registry that defines the entries.
        progress: Called with the number of combinations evaluated so far.
    """
    result = Survey()
    trained: set[PairNames] = set()
    with one_thread():
        for pair, names, by_role in _combinations(registry):
            _evaluate_combination(result, pair, names, by_role, registry, trained)
            progress(result.combinations)
    return result


def _combinations(registry: Registry) -> Iterator[tuple[PairNames, dict[str, Any], bool]]:
    """Yield pair and entries of every combination in a fixed order, and whether an entry is set by role."""
    names = [sorted(registry.entries[family]) for family in DEFAULTS]
    for indices in product(*(range(len(entries)) for entries in names)):
        chosen = {family: entries[index] for family, entries, index in zip(DEFAULTS, names, indices, strict=True)}
        mask_value = MASK_VALUES[sum(indices) % len(MASK_VALUES)]
        yield (chosen["attention"], chosen["positional"]), chosen | {"mask_value": mask_value}, False
    mask_values = cycle(MASK_VALUES)
    for family, entries in zip(DEFAULTS, names, strict=True):
        for name in entries:
            chosen = DEFAULTS | {family: name}
            for _, roles in role_variants(family, name, registry):
                pair = chosen["attention"], chosen["positional"]
                yield pair, {family: roles, "mask_value": next(mask_values)}, True


def _evaluate_combination(
    result: Survey, pair: PairNames, names: dict[str, Any], by_role: bool, registry: Registry, trained: set[PairNames]
) -> None:
    config, reason = _small_config(names, registry)
    if config is None and not by_role:
        decoder_only = dict.fromkeys(ROLES, "none") | {"decoder": names["positional"]}
        config, _ = _small_config(names | {"positional": decoder_only}, registry)
    if config is None:
        if not by_role:
            result.incompatible.setdefault(pair, reason)
        return
    result.combinations += 1
    subject = Subject(config)
    worst: Outcome = "holds"
    for invariant in INVARIANTS:
        if invariant.name in TRAINING and pair in trained:
            continue
        verdict = evaluate(invariant, subject)
        if is_unexpected(verdict):
            verdict = shrink(invariant, subject, verdict)
            variant = f"{variant_label(config)} · mask value {names['mask_value']}"
            result.violations.append((variant, invariant_result(invariant, verdict)))
            worst = "violated"
        outcome = invariant_result(invariant, verdict).outcome
        result.invariants[invariant.name][outcome] += 1
        if outcome == "known violation":
            result.known_violations[invariant.name, verdict.cause or ""] += 1
            worst = worst if worst == "violated" else outcome
    trained.add(pair)
    result.outcomes.setdefault(pair, Counter())[worst] += 1


def _small_config(names: dict[str, Any], registry: Registry) -> tuple[RunConfig | None, str]:
    """Return the small configuration of a combination, or None with the reason of its incompatibility."""
    try:
        return compatible_config(names, registry)
    except HeadToHeadError as error:
        return None, str(error)
