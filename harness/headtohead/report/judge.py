"""The judgement of a table of scores as lines and as a table."""

from __future__ import annotations

import math
from collections.abc import Collection
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from headtohead.analysis.judge import Judged
from headtohead.errors import HeadToHeadError
from headtohead.files import replace
from headtohead.statistics.paired_tests import Interval
from headtohead.statistics.verdicts import BETTER, WORSE
from headtohead.storage.metrics import counted, show_p

if TYPE_CHECKING:
    from headtohead.analysis.ledger import Decision, Ledger

MAX_DIGITS, MAX_WHOLE_DIGITS = 8, 15
"""Maximum number of digits after and before the point; other numbers have an exponent."""

MAX_ROWS = 48
"""Maximum number of rows of the figure."""


class Numbers:
    """Formats scores with the decimals that the margin and two digits of the smallest standard error need."""

    def __init__(self, judged: Judged) -> None:
        errors = [found.difference.error for found in judged.variants]
        known = [error for error in errors if math.isfinite(error) and error > 0]
        digits = max(0, 1 - math.floor(math.log10(min(known)))) if known else 3
        if judged.margin:
            digits = max(digits, -int(Decimal(repr(float(judged.margin))).normalize().as_tuple().exponent))
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
        size = {"interval of the size": _interval(test.interval if test else None, show)} if judged.margin else {}
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
                "sign-flip p" if judged.is_paired else "permutation p": show_p(difference.sign_flip_p),
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


def write_figure(judged: Judged, path: Path) -> None:
    """Write the differences from the baseline, best first, to an SVG, PDF or PNG file.

    With more than ``MAX_ROWS`` variants, the largest differences are drawn.

    Raises:
        HeadToHeadError: If the ending of the name is none of these.
    """
    from headtohead.figures.rows import Row, difference_figure
    from headtohead.figures.style import FORMATS, to_bytes

    form = path.suffix.lower().removeprefix(".")
    if form not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        raise HeadToHeadError(f"--figure {path}: unknown ending '{path.suffix}'; use {known}")
    show = Numbers(judged)
    sign = -1 if judged.higher_is_better else 1
    largest = sorted(judged.variants, key=lambda found: -abs(found.difference.mean))[:MAX_ROWS]
    rows = [
        Row(
            name=f"{found.variant} against {judged.baseline}",
            note=f"{show(found.difference.mean, signed=True)}  {found.judgement.verdict}",
            mean=found.difference.mean,
            low=(found.judgement.interval or found.difference).low,
            high=(found.judgement.interval or found.difference).high,
            points=tuple((value, f"seed {seed}: {show(value, signed=True)}") for seed, value in found.by_seed.items()),
            is_strong=found.judgement.direction in (BETTER, WORSE),
        )
        for found in sorted(largest, key=lambda found: sign * found.difference.mean)
    ]
    figure = difference_figure(rows, f"difference in {judged.metric}{', paired by seed' * judged.is_paired}")
    content = to_bytes(figure, form, "judge")
    replace(path, lambda temporary: temporary.write_bytes(content))


def _interval(interval: Interval | None, show: Numbers) -> str:
    if interval is None or not math.isfinite(interval.low):
        return "–"
    return f"{interval.percent}: {show(interval.low)} to {show(interval.high)}"
