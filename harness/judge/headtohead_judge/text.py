"""The judgement of a table of scores, and the status of a ledger, as lines and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from headtohead_judge.decision import Decision
from headtohead_judge.judging import Judged
from headtohead_judge.ledger import Ledger
from headtohead_judge.listing import first_of
from headtohead_judge.numbers import SMALLEST_SHOWN_P, counted, decimals_of, show_p
from headtohead_judge.paired_tests import ALPHA, Difference, Interval
from headtohead_judge.sameness import Sameness
from headtohead_judge.verdicts import BETTER, Judgement, possible_text

MAX_DIGITS = 8
MAX_WHOLE_DIGITS = 15
"""Maximum number of digits after and before the point; other numbers have an exponent."""

EFFECTS = (0.5, 1.0, 2.0)
"""Improvements for which the status of a ledger states the seeds, in standard deviations of the differences."""


class Numbers:
    """Formats scores with the decimals that the margin and two digits of the smallest standard error need.

    A difference without a standard error has at least three decimals and two digits.
    """

    def __init__(self, judged: Judged | Sameness) -> None:
        self.digits = 0
        for variant in judged.variants:
            error = variant.difference.error
            size = abs(variant.difference.mean)
            if math.isfinite(error) and error > 0:
                decimals = _decimals_of_two_digits(error)
            elif math.isfinite(size) and size > 0:
                decimals = max(3, _decimals_of_two_digits(size))
            else:
                decimals = 3
            self.digits = max(self.digits, decimals)
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


def _decimals_of_two_digits(value: float) -> int:
    """Return the number of decimals that show two digits of a positive number."""
    return max(0, 1 - math.floor(math.log10(value)))


def judged_rows(judged: Judged) -> list[dict[str, str]]:
    """Return a row per variant as texts: mean, difference, interval, adjusted p and verdict.

    The number of seeds is in the rows if it is not that of the baseline, which the heading has, for every variant.
    """
    show = Numbers(judged)
    has_seeds = any(variant.summary.n != judged.summary.n for variant in judged.variants)
    rows = []
    for variant in judged.variants:
        judgement = variant.judgement
        row = {"variant": variant.variant}
        if has_seeds:
            row["seeds"] = str(variant.summary.n)
        row |= {
            "mean": show(variant.summary.mean),
            "difference": show(variant.difference.mean, signed=True),
            "95 % interval": _interval(judgement.interval, show),
            "adjusted p": show_p(judgement.adjusted_p),
            "verdict": _verdict(judgement, judged.higher_is_better, show),
        }
        rows.append(row)
    return rows


EXIT_LINES = {
    0: "exit code 0: every variant is {accepted}",
    1: "exit code 1: every variant is worse",
    3: "exit code 3: not every variant is {accepted}",
}
"""The last line of a judgement without a ledger, by the exit code of the command."""

WORSE_CANDIDATE = "exit code 1: a candidate is worse"


def exit_line(judged: Judged, code: int, accept: Sequence[str]) -> str:
    """Return the line on the exit code of a judgement, and the verdicts that are accepted."""
    if code == 1 and judged.is_chosen:
        return WORSE_CANDIDATE
    return EXIT_LINES[code].format(accepted=" or ".join(accept))


SHARED_TEST = "test: paired t-test; variance of {variants} variants, {degrees} degrees of freedom"
PLAIN_TEST = "test: paired t-test, {degrees} degrees of freedom"
WELCH_TEST = "test: Welch's t-test of separate seeds, {degrees} degrees of freedom"
SEEDS_ALONE = ", without the variance of test examples"
PLAIN_P = "; the plain paired t-test, {degrees} degrees of freedom, uncorrected: {ps}"


def method_lines(judged: Judged) -> list[str]:
    """Return the line on the test, on the variance that variants share, and on the p of the plain paired t-test.

    There is none if no variant has a t-test, as between two looks.
    """
    tested = []
    for variant in judged.variants:
        if variant.judgement.interval is not None and variant.difference.kind == "varied":
            tested.append(variant)
    if not tested:
        return []
    degrees = {f"{variant.difference.degrees:.3g}" for variant in tested}
    ordered = sorted(degrees, key=float)
    span = ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"
    if not judged.is_paired:
        return [WELCH_TEST.format(degrees=span) + SEEDS_ALONE]
    if not judged.sharing:
        return [PLAIN_TEST.format(degrees=span) + SEEDS_ALONE]
    line = SHARED_TEST.format(variants=judged.sharing, degrees=ordered[-1])
    ps = first_of([f"{variant.variant} {_p_with_sign(variant.difference)}" for variant in tested])
    return [line + SEEDS_ALONE + PLAIN_P.format(degrees=judged.summary.n - 1, ps=ps)]


def _p_with_sign(difference: Difference) -> str:
    """Return the p of the plain paired t-test, such as ``p < 0.001`` or ``p = 0.032``."""
    p = show_p(difference.paired_p)
    return f"p {p}" if p.startswith("<") else f"p = {p}"


def _verdict(judgement: Judgement, higher_is_better: bool, show: Numbers) -> str:
    """Return the verdict, and how large a difference that was not shown can be."""
    possible = possible_text(judgement, higher_is_better, show)
    return f"{judgement.verdict}; could be {possible}" if possible else judgement.verdict


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


P_LINE = "p: one-sided paired t-test, {degrees:.3g} degrees of freedom, standard deviation {deviation} {source}"
OWN_VARIANCE = "of these differences alone"
MODERATED = (
    "(that of these differences, {unmoderated} with {unmoderated_degrees} degrees, moderated towards earlier "
    "decisions)"
)
DECIMALS_ERROR = ", widened because the decimals of the scores leave an error of up to {error:.2g}"
MIN_ERROR = 0.01
"""Smallest error that the decimals leave, in standard errors, that the line on the test has."""

BETTER_NOT_KEPT = "better is the verdict of a two-sided test of this table alone, at 5 %"


def p_line(decision: Decision) -> str:
    """Return the line on the test of a decision: its variance, and where it comes from."""
    source = OWN_VARIANCE
    if decision.test_degrees > decision.degrees:
        unmoderated = f"{math.sqrt(decision.variance):.3g}"
        source = MODERATED.format(unmoderated=unmoderated, unmoderated_degrees=decision.degrees)
    deviation = f"{math.sqrt(decision.test_variance):.3g}"
    line = P_LINE.format(degrees=decision.test_degrees, deviation=deviation, source=source)
    standard_error = math.sqrt(decision.test_variance / len(decision.scores))
    if decision.decimals_error > MIN_ERROR * standard_error:
        line += DECIMALS_ERROR.format(error=decision.decimals_error)
    return line


def decision_lines(ledger: Ledger, decision: Decision, judged: Judged) -> list[str]:
    """Return the lines on the decision on a candidate, which is the last of the ledger."""
    lines = [_decision_line(ledger, decision), p_line(decision)]
    (candidate,) = judged.variants
    if candidate.judgement.direction == BETTER and not decision.kept:
        lines[0] += f"; {BETTER_NOT_KEPT}"
    return lines


def _decision_line(ledger: Ledger, decision: Decision) -> str:
    """Return the line on what was decided and why."""
    start = f"decision {len(ledger.decisions)}: {decision.candidate}"
    incumbent = f"the incumbent is {ledger.incumbent}"
    p = f"the one-sided p = {decision.p:.2g}"
    if decision.p < SMALLEST_SHOWN_P <= decision.level:
        p = f"the one-sided p {show_p(decision.p)}"
    level = f"the level {decision.level:.2g} of the chain"
    if decision.kept:
        return f"{start} is kept, as {p} is at most {level}; {incumbent}"
    return f"{start} is not kept, as {p} is above {level}; {incumbent}"


def status_fields(ledger: Ledger) -> dict[str, Any]:
    """Return the incumbent, the level of the next decision, and the seeds that it needs, as JSON data."""
    return {
        "incumbent": ledger.incumbent,
        "incumbent_seeds": ledger.incumbent_seeds,
        "decisions": len(ledger.decisions),
        "kept": len(ledger.kept),
        "level": ledger.level,
        "wealth": ledger.wealth,
        "standard_deviation": ledger.deviation,
        "seeds": {str(effect): ledger.seeds(effect) for effect in EFFECTS},
    }


REMAINING_ALPHA = (
    "the sum of the levels of all later decisions if no change is kept; "
    f"a kept change adds at most {ALPHA}"
)


def status_lines(ledger: Ledger) -> list[str]:
    """Return the `status_fields` as lines."""
    incumbent = "none yet; --baseline of the first decision names it"
    if ledger.incumbent:
        incumbent = (
            f"{ledger.incumbent}, with scores of {counted(len(ledger.incumbent_seeds), 'seed')}"
        )
    lines = [
        f"incumbent: {incumbent}",
        f"decisions: {len(ledger.decisions)}, {len(ledger.kept)} kept",
        f"remaining alpha: {ledger.wealth:.2g}, {REMAINING_ALPHA}",
        f"next decision: a one-sided test at the level {ledger.level:.2g}; for 80 % power, each side needs",
    ]
    for effect in EFFECTS:
        size = f" ({effect * ledger.deviation:.2g})" if ledger.deviation else ""
        seeds = ledger.seeds(effect) or "more than 1,000"
        lines.append(
            f"  {seeds} seeds for an improvement of {effect} standard deviations of the differences{size}"
        )
    return lines


def _interval(interval: Interval | None, show: Numbers) -> str:
    if interval is None or not math.isfinite(interval.low):
        return "–"
    return f"{show(interval.low)} to {show(interval.high)}"
