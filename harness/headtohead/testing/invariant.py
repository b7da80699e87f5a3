"""An invariant: a name, a statement in one sentence, and the function that checks it.

Some settings are known to violate an invariant, since published or taught code uses them. A verdict
names the setting, and the violation is not an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Literal

from headtohead.model.quirks import quirks_of
from headtohead.plugins.families import COMPONENTS
from headtohead.plugins.registry import find_attention, find_entry, find_positional
from headtohead.schema.run_config import RunConfig
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, worst

Check = Callable[[Subject], Verdict]
Scope = Literal["combination", "entry", "training"]


@dataclass(frozen=True)
class Invariant:
    """A statement that is exactly true of every variant within its domain, or of every dataset.

    Attributes:
        name: In lower case with hyphens, for example ``"cached-decoding"``.
        check: Returns the verdict on a subject; the first line of its docstring is the statement.
        scope: ``"entry"`` if the verdict on an entry does not depend on the entries of other families, ``"training"``
            if the check also trains stacks, which costs as much as all other checks together.
    """

    name: str
    check: Callable[[Any], Verdict]
    scope: Scope = "combination"

    @property
    def statement(self) -> str:
        """The property in one sentence."""
        return str(self.check.__doc__).strip().splitlines()[0]

    def __call__(self, subject: Any) -> Verdict:
        """Check one variant or dataset."""
        return self.check(subject)


def invariant(name: str, scope: Scope = "combination") -> Callable[[Check], Invariant]:
    """Return a decorator that turns a check of a variant into an invariant."""

    def make(check: Check) -> Invariant:
        @wraps(check)
        def with_cause(subject: Subject) -> Verdict:
            verdict = check(subject)
            if verdict.state != "violated":
                return verdict
            return replace(verdict, cause=known_violations(subject.config).get(name))

        return Invariant(name, with_cause, scope)

    return make


def role_invariant(
    name: str, scope: Scope = "combination"
) -> Callable[[Callable[[Subject, str], Verdict]], Invariant]:
    """Return a decorator that turns a check of one attention role into an invariant of all roles."""

    def make(check: Callable[[Subject, str], Verdict]) -> Invariant:
        def every_role(subject: Subject) -> Verdict:
            verdicts = [check(subject, role).in_role(role) for role in subject.roles]
            return worst(*verdicts)

        every_role.__doc__ = check.__doc__
        return invariant(name, scope)(every_role)

    return make


def known_violations(config: RunConfig) -> dict[str, str]:
    """Return the invariants that a configuration may violate, each with the setting that causes it."""
    causes: dict[str, str] = {}
    for quirk in quirks_of(config):
        for violated, option in quirk.violations_by_option(quirk.options).items():
            causes[violated] = f"quirks.{quirk.entry_name}.{option}"
    for role in config.roles:
        positional = config.entry("positional", role).name
        if find_positional(positional).by_row:
            cause = f"positional.{role}, which counts rows of the batch"
            causes["batch-of-one"] = cause
            if role == "encoder":
                causes["source-order"] = cause
                causes["source-mirror"] = cause
        attention = config.entry("attention", role).name
        for violated in find_attention(attention).known_violations:
            causes[violated] = f"attention.{role}: {attention}"
    for family in COMPONENTS:
        for role, chosen in config.entries(family).items():
            entry = find_entry(family, chosen.name).entry
            for violated, option in entry.violations_by_option(chosen.options).items():
                causes[violated] = f"{family}.{role}.{option}"
    return causes
