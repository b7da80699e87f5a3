"""The table below the answer: a row for each main contrast with its interval and its verdict."""

from __future__ import annotations

from collections.abc import Sequence

from headtohead.analysis.averages import settings_text
from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.study import Analysis
from headtohead.report.answer import largest_first, ranks_pairs
from headtohead.report.section import judged_cells
from headtohead.storage.metrics import readable

MAX_ROWS = 12
"""Maximum number of contrasts with a row; the tables of the families have the others."""

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
    """Return a row of texts for each of the `shown_contrasts`, and one with the number of the others, if there are any.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    contrasts = shown_contrasts(analysis)
    rows = [difference_row(analysis, contrast) for contrast in contrasts]
    omitted = len(analysis.main_contrasts) - len(rows)
    if rows and omitted:
        last = dict.fromkeys(rows[0], "")
        last["contrast"] = MORE.format(number=omitted)
        rows.append(last)
    return rows


def difference_row(analysis: Analysis, contrast: ContrastResult) -> dict[str, str]:
    """Return the texts of a contrast: name with notes, difference with its interval, verdict, adjusted p and seeds.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    return {"contrast": _name_with_notes(analysis, contrast), **judged_cells(contrast)}


def shown_contrasts(analysis: Analysis) -> list[ContrastResult]:
    """Return the main contrasts that the figure below the answer shows. The tables below it leave them out.

    They are the first ``MAX_ROWS`` in the order of `largest_first`. Of these, between two configurations, the total
    difference comes first, and contrasts of the same change are neighbours. Empty if the answer is about pairs of two
    axes, or if no main contrast has a test.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    contrasts = analysis.main_contrasts
    if ranks_pairs(analysis) or all(contrast.paired is None for contrast in contrasts):
        return []
    largest = largest_first(analysis, contrasts)[:MAX_ROWS]
    is_between = analysis.families.added.contrasts or analysis.families.taken.contrasts
    return _by_change(largest) if is_between else largest


def _by_change(contrasts: Sequence[ContrastResult]) -> list[ContrastResult]:
    """Return the total difference, then both contrasts of each change, the changes in the order of ``contrasts``."""
    axes = list(dict.fromkeys(contrast.axis for contrast in contrasts))

    def rank(contrast: ContrastResult) -> tuple[bool, int, str]:
        is_change = contrast.axis is not None
        return is_change, axes.index(contrast.axis), contrast.family

    return sorted(contrasts, key=rank)


def _name_with_notes(analysis: Analysis, contrast: ContrastResult) -> str:
    """Return the name of a contrast, followed by a line on each of these that it has.

    The lines are on parameters, settings, the expected result, and why there is no test. The name has the metric if
    that is not the primary one.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    name = contrast.name
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

    The left side are the variants with positive weights, the right side those with negative weights; their counts are
    weighted and added over all settings. The percentage is negative for fewer parameters. Empty below ``MIN_PERCENT``,
    and if the right side has no parameters.
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
