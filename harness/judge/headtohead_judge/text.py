"""The judgement of a table of scores, and the status of a ledger, as lines and tables."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from headtohead_judge.decision import Decision
from headtohead_judge.judging import Judged, JudgedVariant
from headtohead_judge.ledger import Ledger
from headtohead_judge.numbers import counted, decimals_of, show_p
from headtohead_judge.paired_tests import ALPHA, Interval
from headtohead_judge.verdicts import NOT_SHOWN, Judgement

MAX_DIGITS = 8
MAX_WHOLE_DIGITS = 15
"""Maximum number of digits after and before the point; other numbers have an exponent."""

EFFECTS = (0.5, 1.0, 2.0)
"""Improvements, in standard deviations of the differences, whose number of seeds the status of a ledger has."""


class Numbers:
    """Formats scores with the decimals that the margin and two digits of the smallest standard error need."""

    def __init__(self, judged: Judged) -> None:
        errors = []
        for variant in judged.variants:
            error = variant.difference.error
            if math.isfinite(error) and error > 0:
                errors.append(error)
        self.digits = 3
        if errors:
            self.digits = max(0, 1 - math.floor(math.log10(min(errors))))
        if judged.margin:
            self.digits = max(self.digits, decimals_of(judged.margin))

    def __call__(self, value: float | None, *, signed: bool = False) -> str:
        if value is None or not math.isfinite(value):
            return "–"
        if self.digits <= MAX_DIGITS and abs(value) < 10**MAX_WHOLE_DIGITS:
            text = f"{abs(value):,.{self.digits}f}"
        else:
            text = f"{abs(value):.4g}"
        is_zero = not float(text.replace(",", ""))
        if is_zero:
            return text
        if value < 0:
            return f"−{text}"
        return f"+{text}" if signed else text


def judged_rows(judged: Judged, accept: Collection[str]) -> list[dict[str, str]]:
    """Return a row per variant as texts: mean, difference, interval, adjusted p, verdict and its exit code."""
    show = Numbers(judged)
    return [_row(variant, show, accept) for variant in judged.variants]


def _row(variant: JudgedVariant, show: Numbers, accept: Collection[str]) -> dict[str, str]:
    judgement = variant.judgement
    return {
        "variant": variant.variant,
        "seeds": str(variant.summary.n),
        "mean": show(variant.summary.mean),
        "difference": show(variant.difference.mean, signed=True),
        "95 % interval": _interval(judgement.interval, show),
        "adjusted p": show_p(judgement.adjusted_p),
        "verdict": _verdict(judgement, show),
        "exit code": str(judgement.exit_code(accept)),
    }


def _verdict(judgement: Judgement, show: Numbers) -> str:
    """Return the verdict, and how large a difference that was not shown can be."""
    if judgement.direction != NOT_SHOWN:
        return judgement.verdict
    return f"{judgement.verdict}; could be up to {show(judgement.largest_possible)}"


def look_lines(judged: Judged) -> list[str]:
    """Return the line on the planned looks and how many seeds the next one needs; nothing without a plan."""
    if judged.looks is None:
        return []
    planned = ", ".join(map(str, judged.looks.seeds))
    percent = 100 * judged.looks.level(ALPHA)
    text = f"looks at {planned} seeds; each tests at {percent:.2g} % for 5 % over all looks"
    seeds = judged.summary.n
    if seeds not in judged.looks.seeds:
        text += f"; {seeds} seeds are no planned look"
    if judged.more_seeds:
        more = counted(judged.more_seeds, "more seed")
        return [f"{text}; the next look needs {more} per variant"]
    return [f"{text}; there is no further look"]


def decision_line(ledger: Ledger, decision: Decision) -> str:
    """Return the line on the decision on a candidate, which is the last of the ledger."""
    start = f"decision {len(ledger.decisions)}: {decision.candidate}"
    incumbent = f"the incumbent is {ledger.incumbent}"
    if decision.kept:
        return f"{start} is kept, as p {decision.p:.2g} is at most the level {decision.level:.2g}; {incumbent}"
    return f"{start} is not kept, as p {decision.p:.2g} is above the level {decision.level:.2g}; {incumbent}"


def status_fields(ledger: Ledger) -> dict[str, Any]:
    """Return the incumbent, the level of the next decision, and the seeds that it needs, as JSON data."""
    return {
        "incumbent": ledger.incumbent,
        "incumbent_seeds": [*ledger.scores],
        "decisions": len(ledger.decisions),
        "kept": len(ledger.kept),
        "level": ledger.level,
        "wealth": ledger.wealth,
        "standard_deviation": ledger.deviation,
        "seeds": {str(effect): ledger.seeds(effect) for effect in EFFECTS},
    }


def status_lines(ledger: Ledger) -> list[str]:
    """Return the `status_fields` as lines."""
    incumbent = f"none; {ledger.path} has no decision, and the first names it with --baseline"
    if ledger.incumbent:
        incumbent = f"{ledger.incumbent}, with scores of {len(ledger.scores)} seeds"
    lines = [
        f"incumbent: {incumbent}",
        f"decisions: {len(ledger.decisions)}, {len(ledger.kept)} kept",
        f"next decision: level {ledger.level:.2g} (one-sided) of the remaining {ledger.wealth:.2g}",
    ]
    for effect in EFFECTS:
        size = f" ({effect * ledger.deviation:.2g})" if ledger.deviation else ""
        seeds = ledger.seeds(effect) or "more than 1,000"
        lines.append(
            f"  an improvement of {effect} standard deviations of the differences{size}: {seeds} seeds for 80 % power"
        )
    return lines


def _interval(interval: Interval | None, show: Numbers) -> str:
    if interval is None or not math.isfinite(interval.low):
        return "–"
    return f"{show(interval.low)} to {show(interval.high)}"
