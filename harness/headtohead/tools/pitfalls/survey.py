"""Evaluate every invariant for every compatible combination of the registry (``h2h check --all``).

All of attention × positional × masking, the three fills taking turns; each entry in every role by
itself, and in all of them. A positional encoding that has no meaning in an encoder is asked in the
decoder alone. Only what trains stacks is asked of fewer: of each attention with each
positional once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from headtohead.errors import HeadToHeadError
from headtohead.model.operations import one_thread
from headtohead.plugins.registry import Registry
from headtohead.schema.config import RunConfig
from headtohead.schema.roles import ROLES
from headtohead.testing import INVARIANTS, Subject
from headtohead.testing.invariants import TRAINING
from headtohead.testing.invariants.parity import FILLS
from headtohead.testing.smallest import smallest
from headtohead.testing.subject import chosen_names
from headtohead.tools.pitfalls.examination import Finding, ask, finding
from headtohead.tools.pitfalls.surroundings import by_role, defined, refusal_of

FAMILIES = ("attention", "positional", "masking")


@dataclass(frozen=True)
class Combination:
    """Names by family, and the fill; ``where`` says which role is meant, if not those of a name."""

    attention: str
    positional: str
    masking: str
    fill: str
    where: str = ""
    choices: dict[str, Any] = field(default_factory=dict)


@dataclass
class Survey:
    """The findings over all combinations."""

    outcomes: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    """By attention and positional: number of combinations that are sound, broken, or known violation."""
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    """By attention and positional, why no combination of them is compatible."""
    invariants: dict[str, Counter[str]] = field(default_factory=lambda: {one.name: Counter() for one in INVARIANTS})
    """Outcomes by invariant."""
    breaches: list[tuple[str, Finding]] = field(default_factory=list)
    """Unexpected violations, with the variant in words."""
    named: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of known violations by invariant and choice."""
    asked: int = 0
    """Number of compatible combinations."""

    @property
    def is_sound(self) -> bool:
        """Whether there are no unexpected violations."""
        return not self.breaches

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        pairs = sorted({*self.outcomes, *self.refused})
        return {
            "sound": self.is_sound,
            "combinations": self.asked,
            "invariants": {name: dict(counts) for name, counts in self.invariants.items()},
            "pairs": [
                {
                    "attention": attention,
                    "positional": positional,
                    "outcomes": dict(self.outcomes.get((attention, positional), {})),
                    "refused": self.refused.get((attention, positional)),
                }
                for attention, positional in pairs
            ],
            "broken": [{"variant": what, **one.to_json()} for what, one in self.breaches],
            "broken_as_named": [
                {"invariant": name, "because": choice, "combinations": count}
                for (name, choice), count in sorted(self.named.items())
            ],
        }


def combinations(registry: Registry) -> Iterator[Combination]:
    """Yield every combination, compatible or not, in a fixed order."""
    names = [sorted(registry.entries[family]) for family in FAMILIES]
    turn = 0
    for attention in names[0]:
        for positional in names[1]:
            for masking in names[2]:
                chosen = dict(zip(FAMILIES, (attention, positional, masking), strict=True))
                fill = FILLS[turn % len(FILLS)]
                turn += 1
                yield Combination(attention, positional, masking, fill, "", chosen | {"fill": fill})
    plain = {"attention": "split-heads", "positional": "sinusoidal", "masking": "padding-causal"}
    for family, entries in zip(FAMILIES, names, strict=True):
        for name in entries:
            for where, roles in by_role(family, name, registry):
                fill = FILLS[turn % len(FILLS)]
                turn += 1
                chosen = {**plain, family: name}
                yield Combination(
                    chosen["attention"],
                    chosen["positional"],
                    chosen["masking"],
                    fill,
                    f"{family} in {where}",
                    {family: roles, "fill": fill},
                )


def survey(registry: Registry, progress: Callable[[int], None] = lambda asked: None) -> Survey:
    """Evaluate every invariant for every compatible combination.

    Args:
        registry: Whose entries are combined.
        progress: Called with the number of combinations that were asked so far.
    """
    found = Survey()
    trained: set[tuple[str, str]] = set()
    with one_thread():
        for one in combinations(registry):
            _survey(found, one, registry, trained)
            progress(found.asked)
    return found


def _survey(found: Survey, one: Combination, registry: Registry, trained: set[tuple[str, str]]) -> None:
    pair = (one.attention, one.positional)
    config, reason = _config(one.choices, registry)
    if config is None and not one.where:
        alone = dict.fromkeys(ROLES, "none") | {"decoder": one.positional}
        config, _ = _config(one.choices | {"positional": alone}, registry)
    if config is None:
        if not one.where:
            found.refused.setdefault(pair, reason or "")
        return
    found.asked += 1
    subject = Subject(config)
    asked = [each for each in INVARIANTS if each.name not in TRAINING or pair not in trained]
    trained.add(pair)
    worst = "holds"
    for invariant in asked:
        verdict = ask(invariant, subject)
        if verdict.state == "broken" and verdict.because is None:
            verdict = smallest(invariant, subject, verdict)
            what = f"{chosen_names(config)} · fill {one.fill}"
            found.breaches.append((what, finding(invariant, verdict)))
            worst = "broken"
        told = finding(invariant, verdict)
        found.invariants[invariant.name][told.outcome] += 1
        if told.outcome == "known violation":
            found.named[invariant.name, told.because or ""] += 1
            worst = worst if worst == "broken" else "known violation"
    found.outcomes.setdefault(pair, Counter())[worst] += 1


def _config(choices: dict[str, Any], registry: Registry) -> tuple[RunConfig | None, str | None]:
    """Return the small configuration of some choices, or why it is incompatible."""
    try:
        config = defined(choices, registry)
        return config, refusal_of(choices, registry) if config is None else None
    except HeadToHeadError as error:
        return None, str(error)
