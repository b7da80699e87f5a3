"""``Finding`` and ``Rule``: a sentence that qualifies the answer, and the function that decides whether it applies.

A rule is a function of an `Analysis` that yields a `Sentence` for everything it finds, usually none or one. Its
sentence is a template with named slots beside it. `warning`, `caution` and `note` make a rule of the function, with
the function's name and a severity; ``rules.RULES`` lists the rules in the order of their findings.

A rule raises a `HeadToHeadError` if a file of the study that it reads is damaged: when its sentences are read, since it
is a generator, not when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from headtohead.analysis.study import Analysis
from headtohead.config.clauses import capitalised, of_phrases
from headtohead.config.labels import listed

MAX_NAMED = 3
"""Maximum number of variants that a sentence names."""

Severity = Literal["warning", "caution", "note"]
"""A warning questions the results, a caution limits what they show, a note describes the study."""


@dataclass(frozen=True)
class Finding:
    """A sentence that qualifies the answer.

    Attributes:
        rule: The name of the rule.
        severity: ``warning``, ``caution`` or ``note``.
        variants: The slugs of the variants that it is about; empty if it is about the study.
        text: The sentence, with a capital first letter.
        limit: What limits the answer, as a clause of a few words; empty if the answer does not depend on it.
    """

    rule: str
    severity: Severity
    variants: tuple[str, ...]
    text: str
    limit: str = ""


class Sentence(NamedTuple):
    """What a rule found: a filled template, the slugs of the variants that it is about, and `Finding.limit`."""

    text: str
    variants: tuple[str, ...] = ()
    limit: str = ""


Check = Callable[[Analysis], Iterable[Sentence]]


@dataclass(frozen=True)
class Rule:
    """A check of a study, with the name and the severity of its findings."""

    name: str
    severity: Severity
    check: Check

    def findings(self, analysis: Analysis) -> list[Finding]:
        """Return the findings of this rule in a study."""
        findings = []
        for sentence in self.check(analysis):
            text = capitalised(sentence.text)
            finding = Finding(self.name, self.severity, sentence.variants, text, sentence.limit)
            findings.append(finding)
        return findings


def warning(check: Check) -> Rule:
    """Return the rule whose findings question the results."""
    return Rule(check.__name__, "warning", check)


def caution(check: Check) -> Rule:
    """Return the rule whose findings limit what the results show."""
    return Rule(check.__name__, "caution", check)


def note(check: Check) -> Rule:
    """Return the rule whose findings describe the study."""
    return Rule(check.__name__, "note", check)


def titles(analysis: Analysis, slugs: Sequence[str]) -> str:
    """Return the titles of variants as in a sentence: the first ``MAX_NAMED``, and the number of several others."""
    return listed([analysis.frames.by_slug[slug].title for slug in slugs], most=MAX_NAMED)


def of_titles(analysis: Analysis, slugs: Sequence[str]) -> str:
    """Return `titles` as they follow a noun: ``of rotary``, ``without positions``."""
    return of_phrases([analysis.frames.by_slug[slug].title for slug in slugs], most=MAX_NAMED)
