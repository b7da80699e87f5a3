"""The table below the answer: a row for each main contrast with its deciding intervals."""

from __future__ import annotations

import math

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.study import Analysis
from headtohead.analysis.wording import contrast_name, leveled
from headtohead.report.answer import largest_first, ranks_pairs, settings_text
from headtohead.storage.metrics import readable, show
from headtohead_judge.paired_tests import Interval
from headtohead_judge.verdicts import IDENTICAL

MAX_ROWS = 12
"""Maximum number of contrasts with a row; the tables of the contrasts have all."""

MIN_PERCENT = 2
"""Smallest difference in parameters that is shown, in percent."""

NOT_SHOWN = "{number} more in the tables"
PARAMETERS = "{change} % non-embedding parameters"
AGREEMENT = {
    "agrees": "agrees with the expected result{steps}",
    "disagrees": "disagrees with the expected result{steps}",
    "undecided": "does not decide on the expected result{steps}",
}
LATE_MARGIN = "margin set after results existed"


def differences(analysis: Analysis) -> list[dict[str, str]]:
    """Return a row of texts per main contrast: name, difference, direction and size with an interval each.

    The largest absolute differences come first; contrasts without a test count as 0. With more than MAX_ROWS contrasts,
    a further row has the number of the others. The column of sizes is missing if no contrast has a size; a contrast
    without a size has a dash.

    There are no rows if the answer is about pairs of two axes, or if no main contrast has a test.
    """
    contrasts = analysis.main_contrasts
    if ranks_pairs(analysis) or all(contrast.paired is None for contrast in contrasts):
        return []
    size_column = _size_column(analysis)
    rows = []
    for contrast in largest_first(contrasts)[:MAX_ROWS]:
        row = {
            "contrast": _name_with_notes(analysis, contrast),
            "difference": contrast.difference_text,
            "direction": _verdict(contrast.direction_name, contrast.judgement.interval, contrast),
        }
        if size_column:
            test = contrast.judgement.size_test
            row[size_column] = "–"
            if test and contrast.size:
                row[size_column] = _verdict(contrast.size, test.interval, contrast)
        rows.append(row)
    omitted = len(contrasts) - len(rows)
    if omitted:
        last = dict.fromkeys(rows[0], "")
        last["contrast"] = NOT_SHOWN.format(number=omitted)
        rows.append(last)
    return rows


def _size_column(analysis: Analysis) -> str:
    """Return the heading of the sizes, with the margin if all contrasts have the same; empty without sizes."""
    margins = set()
    for contrast in analysis.main_contrasts:
        test = contrast.judgement.size_test
        if contrast.size and test:
            margins.add(show(test.margin, contrast.metric, like=test.margin))
    if len(margins) == 1:
        return f"size (margin {margins.pop()})"
    return "size" if margins else ""


def _verdict(word: str, interval: Interval | None, contrast: ContrastResult) -> str:
    """Return a word of a verdict, and on a second line the interval that it rests on.

    The word alone without an interval, and if both sides of the contrast have the same score in every seed.
    """
    is_identical = contrast.direction == IDENTICAL
    if interval is None or is_identical or not math.isfinite(interval.low):
        return word
    return f"{word}\n{leveled(interval, contrast)}"


def _name_with_notes(analysis: Analysis, contrast: ContrastResult) -> str:
    """Return the name of a contrast, followed by a line on each of these that it has.

    The lines are on parameters, settings, the expected result, why there is no test, and a margin that was set late.
    The name has the metric if that is not the primary one.
    """
    name = contrast_name(analysis, contrast)
    if contrast.metric != analysis.metric:
        name += f" ({readable(contrast.metric)})"
    lines = [
        name,
        _parameters(analysis, contrast),
        settings_text(analysis, contrast),
        _agreement(analysis, contrast),
        contrast.reason,
    ]
    if contrast.size and contrast.late_margin:
        lines.append(LATE_MARGIN)
    return "\n".join(line for line in lines if line)


def _parameters(analysis: Analysis, contrast: ContrastResult) -> str:
    """Return how many more non-embedding parameters the left side has, in percent of the right side.

    The left side are the variants with positive weights, with the sum of their weighted counts; the right side those
    with negative weights. Empty below 2 %, and if the right side has no parameters.
    """
    by_slug = analysis.frames.by_slug
    left = 0.0
    right = 0.0
    for setting in contrast.contrast.settings:
        for side, weight in setting.items():
            count = by_slug[side.variant].counts.non_embedding
            if weight > 0:
                left += weight * count
            else:
                right -= weight * count
    if right == 0:
        return ""
    percent = 100 * (left / right - 1)
    if abs(percent) < MIN_PERCENT:
        return ""
    change = f"{percent:+.0f}".replace("-", "−")
    return PARAMETERS.format(change=change)


def _agreement(analysis: Analysis, contrast: ContrastResult) -> str:
    """Return whether a difference agrees with the expected result; empty without one."""
    if contrast.agreement is None:
        return ""
    template = AGREEMENT[contrast.agreement.verdict]
    return template.format(steps=analysis.after_steps(contrast))
