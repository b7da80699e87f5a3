"""The table below the answer: a row for each main contrast with its interval and its verdict."""

from __future__ import annotations

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.study import Analysis
from headtohead.analysis.wording import contrast_name
from headtohead.report.answer import largest_first, ranks_pairs, settings_text
from headtohead.report.section import judged_cells
from headtohead.storage.metrics import readable

MAX_ROWS = 12
"""Maximum number of contrasts with a row; the tables of the contrasts have all."""

MIN_PERCENT = 2
"""Smallest difference in parameters that is shown, in percent."""

MORE = "{number} more in the tables"
PARAMETERS = "{change} % non-embedding parameters"
AGREEMENT = {
    "agrees": "agrees with the expected result{steps}",
    "disagrees": "disagrees with the expected result{steps}",
    "undecided": "does not decide on the expected result{steps}",
}


def differences(analysis: Analysis) -> list[dict[str, str]]:
    """Return a row of texts per main contrast: name, difference with its interval, verdict, adjusted p and seeds.

    The largest absolute differences come first; contrasts without a test count as 0. With more than MAX_ROWS contrasts,
    a further row has the number of the others.

    There are no rows if the answer is about pairs of two axes, or if no main contrast has a test.

    Raises:
        HeadToHeadError: As `Analysis`.
    """
    contrasts = analysis.main_contrasts
    if ranks_pairs(analysis) or all(contrast.paired is None for contrast in contrasts):
        return []
    rows = []
    for contrast in largest_first(contrasts)[:MAX_ROWS]:
        rows.append({"contrast": _name_with_notes(analysis, contrast), **judged_cells(contrast)})
    omitted = len(contrasts) - len(rows)
    if omitted:
        last = dict.fromkeys(rows[0], "")
        last["contrast"] = MORE.format(number=omitted)
        rows.append(last)
    return rows


def _name_with_notes(analysis: Analysis, contrast: ContrastResult) -> str:
    """Return the name of a contrast, followed by a line on each of these that it has.

    The lines are on parameters, settings, the expected result, and why there is no test. The name has the metric if
    that is not the primary one.
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
