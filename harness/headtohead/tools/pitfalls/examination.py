"""One entry examined: every invariant, and what its named faults did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headtohead.data import PreparedData
from headtohead.errors import HeadToHeadError
from headtohead.model.operations import one_thread
from headtohead.planning.pitfalls import Fault, faults_of
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
"""How the reason of a finding begins where the entry raised an error."""

Outcome = Literal["holds", "broken", "broken as named", "does not apply"]


@dataclass(frozen=True)
class Finding:
    """What one invariant says.

    Attributes:
        invariant: Its name.
        promise: What it promises, in one sentence.
        outcome: ``broken as named`` is broken by a choice that is known to break it.
        number: The one that decided it, if there was one.
        reason: What the number is, or why the invariant does not apply.
        because: The choice that is known to break it, where it is broken as named.
        example: The smallest that shows the breach: what moved which number by how much.
        error: The error that the entry raised, with its location, if it raised one.
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
        """Return it as data; JSON has neither infinity nor NaN, so these become null."""
        number = self.number if self.number is not None and math.isfinite(self.number) else None
        return {**vars(self), "number": number}


@dataclass(frozen=True)
class Examination:
    """Everything that was found about one entry."""

    name: str
    findings: tuple[Finding, ...]
    faults: tuple[Fault, ...] = ()
    facts: tuple[Fact, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether nothing is broken but by a choice that is known to break it."""
        return all(one.outcome != "broken" for one in self.findings)

    def count(self, outcome: Outcome) -> int:
        """Return how many invariants came out so."""
        return sum(one.outcome == outcome for one in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return it as data."""
        return {
            "name": self.name,
            "sound": self.is_sound,
            "invariants": [one.to_json() for one in self.findings],
            "faults": [dict(vars(one)) for one in self.faults],
            "evidence": [{**vars(one), "numbers": dict(one.numbers)} for one in self.facts],
        }


Known = dict[tuple[str, str], Verdict]
"""Verdicts by configuration and invariant: neighbours in two families are asked once."""


def examine(
    one: Registered, registry: Registry, cache: Path, overrides: Sequence[str] = (), known: Known | None = None
) -> Examination:
    """Ask an entry every invariant; of a recipe, also measure what its faults did.

    Args:
        one: The entry.
        registry: Of this process.
        cache: Of data; nothing is downloaded.
        overrides: Laid over a recipe, for example ``"data.file=spa.txt"``.
        known: What was found of other entries of this registry; added to.

    Raises:
        HeadToHeadError: If no configuration can be made of the entry, or it is defined in none.
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
    faults = faults_of(config, registry)
    case = Case(config, registry, cache)
    subject = Subject(small(config), data=_few_pairs(case))
    findings = [finding(invariant, _example(invariant, subject, ask(invariant, subject))) for invariant in INVARIANTS]
    known = [EVIDENCE[fault.name] for fault in faults if fault.name in EVIDENCE]
    facts = [fact for evidence in known for fact in evidence.of(case)]
    return Examination(name, tuple(findings), faults, tuple(facts))


def _few_pairs(case: Case) -> PreparedData | None:
    """Return a recipe's own pairs for the steps of the check, unless they are many or not here."""
    few = case.has_data and len(case.data.splits["train"]) <= FEW
    return case.data if few else None


def _worst(invariant: Invariant, subjects: Sequence[tuple[str, Subject]], known: Known) -> Finding:
    """Return the first breach without a name and what stood beside it, else the first verdict.

    What a choice beside the entry is known to break is no finding about the entry. What an entry
    keeps or breaks by itself is asked in its roles alone, and what trains stacks once.
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
    """Ask an invariant; a plugin that raises has broken it."""
    try:
        return invariant(subject)
    except Exception as error:
        return Verdict("broken", None, f"{RAISED}{current().describe(error)}")


def _example(invariant: Invariant, subject: Subject, verdict: Verdict) -> Verdict:
    """Return a breach without a name at the smallest sizes that show it."""
    if verdict.state != "broken" or verdict.because is not None:
        return verdict
    return smallest(invariant, subject, verdict)


def finding(invariant: Invariant, verdict: Verdict, beside: str = "") -> Finding:
    """Return a verdict in the words of a report."""
    named = verdict.state == "broken" and verdict.because is not None
    return Finding(
        invariant.name,
        invariant.promise,
        "broken as named" if named else verdict.state,
        verdict.number,
        f"{verdict.reason} (beside {beside})" if beside else verdict.reason,
        verdict.because,
        verdict.shown,
        verdict.reason.removeprefix(RAISED) if verdict.reason.startswith(RAISED) else None,
    )
