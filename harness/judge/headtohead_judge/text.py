"""The judgement of a table of scores as lines and as a table."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

import pandas as pd

from headtohead_judge.judging import Judged
from headtohead_judge.numbers import counted, decimals_of, show_p
from headtohead_judge.paired_tests import Interval

if TYPE_CHECKING:
    from headtohead_judge.decision import Decision
    from headtohead_judge.ledger import Ledger

MAX_DIGITS, MAX_WHOLE_DIGITS = 8, 15
"""Maximum number of digits after and before the point; other numbers have an exponent."""


class Numbers:
    """Formats scores with the decimals that the margin and two digits of the smallest standard error need."""

    def __init__(self, judged: Judged) -> None:
        errors = [found.difference.error for found in judged.variants]
        known = [error for error in errors if math.isfinite(error) and error > 0]
        digits = max(0, 1 - math.floor(math.log10(min(known)))) if known else 3
        if judged.margin:
            digits = max(digits, decimals_of(judged.margin))
        self.digits = digits

    def __call__(self, value: float | None, *, signed: bool = False) -> str:
        if value is None or not math.isfinite(value):
            return "–"
        is_plain = self.digits <= MAX_DIGITS and abs(value) < 10**MAX_WHOLE_DIGITS
        text = f"{abs(value):,.{self.digits}f}" if is_plain else f"{abs(value):.4g}"
        is_zero = not float(text.replace(",", ""))
        return text if is_zero else ("−" if value < 0 else "+" * signed) + text


def judged_frame(judged: Judged, accept: Collection[str]) -> pd.DataFrame:
    """Return a row per variant as texts: mean, difference, intervals, p-values, verdict and its exit code."""
    show, rows = Numbers(judged), []
    for found in judged.variants:
        difference, judgement, test = found.difference, found.judgement, found.judgement.size_test
        size = (
            {"interval of the size": _interval(test.interval if test else None, show)}
            if judged.margin
            else {}
        )
        paired_p = {"paired t p": show_p(difference.paired_p)} if judged.is_paired else {}
        rows.append(
            {
                "variant": found.variant,
                "seeds": str(found.summary.n),
                "mean": show(found.summary.mean),
                "difference": show(difference.mean, signed=True),
                "interval": _interval(judgement.interval, show),
                **size,
                "Holm p": show_p(judgement.holm_p),
                **paired_p,
                "sign-flip p" if judged.is_paired else "permutation p": show_p(
                    difference.sign_flip_p
                ),
                "verdict": judgement.verdict,
                "exit code": str(judgement.exit_code(accept)),
            }
        )
    return pd.DataFrame(rows)


def look_line(judged: Judged) -> str | None:
    """Return the planned looks and how many seeds the next one needs, or None without a plan."""
    if judged.looks is None:
        return None
    planned, seeds = ", ".join(map(str, judged.looks.seeds)), judged.summary.n
    text = f"looks at {planned} seeds; each tests at {100 * judged.looks.level(0.05):.2g} % for 5 % over all looks"
    if seeds not in judged.looks.seeds:
        text += f"; {seeds} seeds are no planned look"
    if judged.more_seeds:
        return f"{text}; the next look needs {counted(judged.more_seeds, 'more seed')} per variant"
    return f"{text}; there is no further look"


def decision_line(ledger: Ledger, decision: Decision) -> str:
    """Return the decision on a candidate, which is the last of the ledger."""
    compared = f"p {decision.p:.2g} is {'at most' if decision.kept else 'above'} the level {decision.level:.2g}"
    kept = "kept" if decision.kept else "not kept"
    incumbent = f"the incumbent is {ledger.incumbent}"
    return f"decision {len(ledger.decisions)}: {decision.candidate} is {kept}, as {compared}; {incumbent}"


def _interval(interval: Interval | None, show: Numbers) -> str:
    if interval is None or not math.isfinite(interval.low):
        return "–"
    return f"{interval.percent}: {show(interval.low)} to {show(interval.high)}"
