"""``answer.json``, for programs; docs/reference/answer-file.md describes the fields.

Fields may be added without a new version. A field that is removed, renamed or changes its meaning increments the
version in ``format``. Numbers that are not finite are null; an infinite number of steps is the text ``inf``.
"""

from __future__ import annotations

from typing import Any

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.scores import Collapse
from headtohead.analysis.study import Analysis, LooksStatus
from headtohead.analysis.wording import contrast_name
from headtohead.escaping import json_text
from headtohead.report.content import Report
from headtohead.report.folder import ANSWER_FORMAT
from headtohead.report.setup import setup_line
from headtohead_judge.answer import plain, summary_fields, test_fields
from headtohead_judge.contrast import Contrast, Side, with_sign

VERSION = 4


def answer_file(report: Report) -> str:
    """Return the text of ``answer.json``; numbers that are NaN are null.

    The margin, the looks and the reference points are null if the study has none.

    Raises:
        HeadToHeadError: As `Report`.
    """
    analysis, record = report.analysis, report.record
    margin = record.margins.get(analysis.metric)
    frame = report.differences.frame
    collapses = {slug: _collapse(collapse) for slug, collapse in analysis.collapses.items()}
    answer = {
        "format": f"{ANSWER_FORMAT}{VERSION}",
        "experiment": record.name,
        "question": record.question,
        "answer": report.answer,
        "differences": [] if frame is None else frame.to_dict("records"),
        "stale": list(report.stale),
        "remarks": [vars(remark) for remark in report.remarks],
        "setup": setup_line(analysis),
        "metric": analysis.metric,
        "margin": margin.value if margin else None,
        "looks": _looks(analysis, analysis.looks) if analysis.looks else None,
        "incomplete": dict(analysis.incomplete),
        "scores": {slug: analysis.summaries[slug].mean for slug in analysis.ranked},
        "collapses": collapses,
        "contrasts": _contrasts(analysis),
        "training": _training(analysis),
        "reference_points": _reference_points(analysis),
    }
    return json_text(plain(answer), indent=2) + "\n"


def _looks(analysis: Analysis, status: LooksStatus) -> dict[str, Any]:
    """Return the JSON data of the looks.

    ``stopped`` is why the study stopped, and null while it goes on. ``undecided`` are names of main contrasts.
    """
    stopped: str | None = "decided"
    if not status.complete or status.next is not None:
        stopped = None
    elif status.undecided:
        stopped = "at_most"
    elif status.untested:
        stopped = "not_ranked"
    return {
        "planned": status.looks.seeds,
        "taken": status.taken,
        "level": status.level,
        "stopped": stopped,
        "undecided": status.undecided,
        "set_after_results": analysis.late_looks,
    }


def _collapse(collapse: Collapse) -> dict[str, Any]:
    """Return the JSON data of the collapsed runs of a variant; ``p`` of the baseline is NaN, written as null."""
    return {
        "collapsed": collapse.collapsed,
        "runs": collapse.runs,
        "p": collapse.p,
        "interval": vars(collapse.interval),
        "all_runs": summary_fields(collapse.all_runs),
        "without": summary_fields(collapse.without),
    }


def _contrasts(analysis: Analysis) -> list[dict[str, Any]]:
    """Return the contrasts of all families."""
    contrasts = []
    for name, family in analysis.families._asdict().items():
        for contrast in family.contrasts:
            fields = {"family": name, "main": contrast in analysis.main_contrasts}
            contrasts.append(fields | _contrast(analysis, contrast))
    return contrasts


def _contrast(analysis: Analysis, contrast: ContrastResult) -> dict[str, Any]:
    """Return the JSON data of a contrast; ``expected`` and ``agreement`` are null without an expected result."""
    fields: dict[str, Any] = {
        "label": contrast_name(analysis, contrast),
        "name": contrast.name,
        "metric": contrast.metric,
        "reason": contrast.reason,
        "seeds": contrast.seeds,
    }
    fields |= _sides(contrast.contrast)
    fields |= test_fields(contrast.paired, contrast.judgement)
    fields["margin"] = contrast.judgement.margin
    fields["expected"] = contrast.expected or None
    fields["agreement"] = None
    if contrast.agreement:
        fields["agreement"] = str(contrast.agreement)
    return fields


def _sides(contrast: Contrast) -> dict[str, Any]:
    """Return the compared variants, and how their metrics and lengths differ.

    In each setting, every variant with a positive weight is beside one with a negative weight; of the shorter side,
    variants are repeated. Both sides of every setting have a variant, because its weights add up to 0. The metric and
    the lengths of the right side are null if they are those of the left side.
    """
    pairs: list[tuple[Side, Side]] = []
    for setting in contrast.settings:
        positive = with_sign(setting, 1.0)
        negative = with_sign(setting, -1.0)
        for index in range(max(len(positive), len(negative))):
            pair = positive[index % len(positive)], negative[index % len(negative)]
            pairs.append(pair)
    side, against = contrast.sides[0], contrast.sides[-1]
    if pairs:
        side, against = pairs[0]
    fields: dict[str, Any] = {
        "pairs": [(first.variant, second.variant) for first, second in pairs],
        "against_metric": None,
        "lengths": side.lengths,
        "against_lengths": None,
    }
    if against.metric != side.metric:
        fields["against_metric"] = against.metric
    if against.lengths != side.lengths:
        fields["against_lengths"] = against.lengths
    return fields


def _training(analysis: Analysis) -> dict[str, Any]:
    """Return whether the runs trained far enough."""
    training = analysis.convergence
    gaps = []
    for gap in training.gaps:
        gaps.append(
            {
                "contrast": gap.contrast.name,
                "loss_difference": gap.difference,
                "baseline_steps": gap.steps,
            }
        )
    return {
        "still_learning": bool(training.still_learning),
        "decaying_schedules": list(training.decaying),
        "variants": {slug: vars(trend) for slug, trend in training.trends.items()},
        "gaps": gaps,
    }


def _reference_points(analysis: Analysis) -> dict[str, Any] | None:
    """Return the scores without training on the baseline's test set; null without any."""
    points = analysis.reference_points.get(analysis.frames.baseline)
    if points is None:
        return None
    compared = analysis.reference_comparisons("nearest_neighbour")
    not_better = [comparison.slug for comparison in compared if not comparison.beaten]
    return {
        "sentences": points.sentences,
        "scores": points.scores,
        "not_better_than_nearest_neighbour": not_better,
    }
