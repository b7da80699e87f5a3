"""Examine one entry: the verdict of every invariant, and measurements of its pitfalls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headtohead.data import PreparedData
from headtohead.errors import HeadToHeadError
from headtohead.model.operations import one_thread
from headtohead.planning.pitfalls import Pitfall, find_pitfalls
from headtohead.plugins.registry import Registered, Registry, current
from headtohead.schema.config import RunConfig
from headtohead.testing import INVARIANTS, Invariant, Subject, Verdict
from headtohead.testing.invariants import OF_ONE_ENTRY, TRAINING
from headtohead.testing.smallest import smallest
from headtohead.tools.pitfalls.case import Case
from headtohead.tools.pitfalls.every import EVIDENCE
from headtohead.tools.pitfalls.fact import Fact
from headtohead.tools.pitfalls.small import small
from headtohead.tools.pitfalls.surroundings import PLAIN, is_by_role, surroundings
from headtohead.tools.pitfalls.targets import label, recipe_config

FEW = 100

RAISED = "raised "
"""Start of the reason of a finding where the entry raised an error."""

Outcome = Literal["holds", "broken", "known violation", "does not apply"]


@dataclass(frozen=True)
class Finding:
    """The verdict of one invariant on one entry.

    Attributes:
        invariant: Its name.
        promise: What the invariant requires, in one sentence.
        outcome: ``known violation`` marks a known violation.
        number: The measured number behind the outcome, if any.
        reason: Meaning of the number, or why the invariant does not apply.
        because: The setting with the known violation.
        example: The smallest example of the violation: which change moved which number by how much.
        error: The error raised by the entry, with its location, if any.
    """

    invariant: str
    promise: str
    outcome: Outcome
    number: float | None
    reason: str
    because: str | None = None
    example: str | None = None
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; infinity and NaN become null."""
        number = self.number if self.number is not None and math.isfinite(self.number) else None
        return {**vars(self), "number": number}


@dataclass(frozen=True)
class Examination:
    """All findings about one entry."""

    name: str
    findings: tuple[Finding, ...]
    pitfalls: tuple[Pitfall, ...] = ()
    facts: tuple[Fact, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether there are no unexpected violations."""
        return all(one.outcome != "broken" for one in self.findings)

    def count(self, outcome: Outcome) -> int:
        """Return the number of invariants with an outcome."""
        return sum(one.outcome == outcome for one in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "name": self.name,
            "sound": self.is_sound,
            "invariants": [one.to_json() for one in self.findings],
            "pitfalls": [dict(vars(one)) for one in self.pitfalls],
            "evidence": [{**vars(one), "numbers": dict(one.numbers)} for one in self.facts],
        }


Known = dict[tuple[str, str], Verdict]
"""Verdicts by configuration and invariant, shared between entries of several families."""


def examine(
    one: Registered, registry: Registry, cache: Path, overrides: Sequence[str] = (), known: Known | None = None
) -> Examination:
    """Evaluate every invariant for an entry; for a recipe, also measure its pitfalls.

    Args:
        one: The entry.
        registry: Of this process.
        cache: Of data; nothing is downloaded.
        overrides: Override fields of a recipe, for example ``"data.file=spa.txt"``.
        known: Verdicts of other entries of this registry; new verdicts are added.

    Raises:
        HeadToHeadError: If the entry is incompatible with every small configuration.
    """
    with one_thread():
        return _examine(one, registry, cache, overrides, {} if known is None else known)


def _examine(one: Registered, registry: Registry, cache: Path, overrides: Sequence[str], known: Known) -> Examination:
    if one.family == "recipe":
        return _recipe(label(one), recipe_config(one.name, registry, overrides), registry, cache)
    subjects = [(beside, Subject(config)) for beside, config in surroundings(one, registry)]
    if not subjects:
        raise HeadToHeadError(f"{label(one)} is defined in none of the small configurations")
    findings = [_worst(invariant, subjects, known) for invariant in INVARIANTS]
    return Examination(label(one), tuple(findings))


def _recipe(name: str, config: RunConfig, registry: Registry, cache: Path) -> Examination:
    pitfalls = find_pitfalls(config, registry)
    case = Case(config, registry, cache)
    subject = Subject(small(config), data=_few_pairs(case))
    findings = [finding(invariant, _example(invariant, subject, ask(invariant, subject))) for invariant in INVARIANTS]
    known = [EVIDENCE[pitfall.name] for pitfall in pitfalls if pitfall.name in EVIDENCE]
    facts = [fact for evidence in known for fact in evidence.of(case)]
    return Examination(name, tuple(findings), pitfalls, tuple(facts))


def _few_pairs(case: Case) -> PreparedData | None:
    """Return the recipe's own pairs for the steps of the check, unless there are many or none available."""
    few = case.has_data and len(case.data.splits["train"]) <= FEW
    return case.data if few else None


def _worst(invariant: Invariant, subjects: Sequence[tuple[str, Subject]], known: Known) -> Finding:
    """Return the first unexpected violation and its surroundings, else the first verdict.

    A known violation of another entry is no finding about this entry. Invariants of a single entry are
    evaluated per role only, and invariants that train stacks once.
    """
    first: Verdict | None = None
    asked = [one for one in subjects if invariant.name not in OF_ONE_ENTRY or is_by_role(one[0])]
    for beside, subject in (asked or subjects)[: 1 if invariant.name in TRAINING else None]:
        key = subject.config.model_dump_json(), invariant.name
        verdict = known[key] if key in known else ask(invariant, subject)
        known[key] = verdict
        if verdict.state == "broken" and verdict.because is None:
            shown = _example(invariant, subject, verdict)
            return finding(invariant, shown, "" if beside == PLAIN else beside)
        first = first or verdict
    assert first is not None
    return finding(invariant, first)


def ask(invariant: Invariant, subject: Subject) -> Verdict:
    """Return the verdict of an invariant; an error raised by a plugin is a violation."""
    try:
        return invariant(subject)
    except Exception as error:
        return Verdict("broken", None, f"{RAISED}{current().describe(error)}")


def _example(invariant: Invariant, subject: Subject, verdict: Verdict) -> Verdict:
    """Return an unexpected violation at the smallest sizes that show it."""
    if verdict.state != "broken" or verdict.because is not None:
        return verdict
    return smallest(invariant, subject, verdict)


def finding(invariant: Invariant, verdict: Verdict, beside: str = "") -> Finding:
    """Return the finding of a report for a verdict."""
    named = verdict.state == "broken" and verdict.because is not None
    return Finding(
        invariant.name,
        invariant.promise,
        "known violation" if named else verdict.state,
        verdict.number,
        f"{verdict.reason} (beside {beside})" if beside else verdict.reason,
        verdict.because,
        verdict.shown,
        verdict.reason.removeprefix(RAISED) if verdict.reason.startswith(RAISED) else None,
    )
