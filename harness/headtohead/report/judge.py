"""The judgement of a table of scores as lines, as Markdown and as JSON."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from headtohead.analysis.judge import Judged, JudgedVariant
from headtohead.report.blocks import Block, Column, DataTable, Paragraph, TableCell, TableRow
from headtohead.report.json_values import interval_record, number
from headtohead.statistics.paired_tests import CONFIDENCE, Interval, Summary
from headtohead.statistics.verdicts import EQUIVALENT
from headtohead.storage.metrics import counted, show_p

FORMAT = "headtohead-judge/1"
"""Name and version of the JSON format."""

MOST_DIGITS, MOST_WHOLE_DIGITS = 8, 15
"""Maximum number of digits after and before the point; other numbers have an exponent."""


def heading(judged: Judged) -> str:
    """Return metric, direction, baseline, pairing and margin as a line."""
    show = Numbers(judged)
    better = "higher" if judged.higher_is_better else "lower"
    paired = "paired by seed" if judged.is_paired else "unpaired"
    margin = f", margin {show(judged.margin)}" if judged.margin else ""
    mean = f"{show(judged.summary.mean)} (standard deviation {show(judged.summary.sd)}, {judged.summary.n} seeds)"
    return f"{judged.metric}, {better} is better{margin}; {paired}; baseline {judged.baseline}: {mean}"


def judged_blocks(judged: Judged) -> tuple[Block, ...]:
    """Return heading, table and looks as the blocks of a report."""
    line = look_line(judged)
    return (Paragraph(heading(judged)), judged_table(judged), *([Paragraph(line)] if line else []))


def judged_table(judged: Judged) -> DataTable:
    """Return a row per variant: mean, difference, intervals, p-values and verdict."""
    show = Numbers(judged)
    has_step = any(_differs(found.judgement.interval) for found in judged.variants)
    flip = "sign-flip p" if judged.is_paired else "permutation p"
    step = ("interval at the Holm step",) if has_step else ()
    headings = ("seeds", "mean", "difference", "95 % interval", *step, "Holm p", flip)
    columns = (Column("variant", "left"), *map(Column, headings), Column("verdict", "left"))
    rows = (_row(found, show, has_step) for found in judged.variants)
    return DataTable(columns, tuple(TableRow(tuple(map(TableCell, row))) for row in rows))


def look_line(judged: Judged) -> str | None:
    """Return the planned looks and how many seeds the next one needs, or None without a plan."""
    if judged.looks is None:
        return None
    planned = ", ".join(map(str, judged.looks.seeds))
    text = f"looks at {planned} seeds; each tests at {100 * judged.looks.level(0.05):.2g} % for 5 % over all looks"
    seeds = judged.summary.n
    if seeds not in judged.looks.seeds:
        text += f"; {seeds} seeds are no planned look"
    if judged.more_seeds:
        return f"{text}; the next look needs {counted(judged.more_seeds, 'more seed')} per variant"
    return f"{text}; there is no further look"


def answer_record(judged: Judged, exit_code: int) -> dict[str, Any]:
    """Return the judgement as JSON data."""
    return {
        "format": FORMAT,
        "metric": judged.metric,
        "higher_is_better": judged.higher_is_better,
        "margin": judged.margin,
        "paired": judged.is_paired,
        "baseline": {"variant": judged.baseline, **_summary(judged.summary)},
        "contrasts": [_contrast(found) for found in judged.variants],
        "looks": list(judged.looks.seeds) if judged.looks else None,
        "more_seeds": judged.more_seeds,
        "warnings": list(judged.warnings),
        "exit_code": exit_code,
    }


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
        is_plain = self.digits <= MOST_DIGITS and abs(value) < 10**MOST_WHOLE_DIGITS
        text = f"{abs(value):,.{self.digits}f}" if is_plain else f"{abs(value):.4g}"
        is_zero = not float(text.replace(",", ""))
        return text if is_zero else ("−" if value < 0 else "+" * signed) + text


def _row(found: JudgedVariant, show: Numbers, has_step: bool) -> tuple[str, ...]:
    difference, judgement = found.difference, found.judgement
    step = (_interval(judgement.interval, show, level=True),) if has_step else ()
    return (
        found.variant,
        str(found.summary.n),
        show(found.summary.mean),
        show(difference.mean, signed=True),
        _interval(Interval(CONFIDENCE, difference.low, difference.high), show),
        *step,
        show_p(judgement.holm_p),
        show_p(difference.sign_flip_p),
        judgement.verdict if judgement.verdict != EQUIVALENT else f"{EQUIVALENT} within {show(_margin(found))}",
    )


def _margin(found: JudgedVariant) -> float | None:
    return found.judgement.equivalence.margin if found.judgement.equivalence else None


def _interval(interval: Interval | None, show: Numbers, *, level: bool = False) -> str:
    if interval is None or not math.isfinite(interval.low):
        return "–"
    return f"{f'{interval.percent}: ' if level else ''}{show(interval.low)} to {show(interval.high)}"


def _differs(interval: Interval | None) -> bool:
    return interval is not None and not math.isclose(interval.level, CONFIDENCE)


def _summary(summary: Summary) -> dict[str, Any]:
    return {"seeds": summary.n, "mean": number(summary.mean), "standard_deviation": number(summary.sd)}


def _contrast(found: JudgedVariant) -> dict[str, Any]:
    difference, judgement = found.difference, found.judgement
    test = judgement.equivalence
    return {
        "variant": found.variant,
        **_summary(found.summary),
        "verdict": judgement.verdict,
        "difference": number(difference.mean),
        "interval": interval_record(Interval(CONFIDENCE, difference.low, difference.high)),
        "holm_interval": interval_record(judgement.interval),
        "p": number(difference.p),
        "holm_p": number(judgement.holm_p),
        "sign_flip_p": number(difference.sign_flip_p),
        "equivalence": {"holm_p": number(test.holm_p), "interval": interval_record(test.interval)} if test else None,
    }
