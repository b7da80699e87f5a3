"""``answer.json``, for programs; docs/reference/answer-file.md describes the fields.

Fields may be added without a new version. A field that is removed, renamed or changes its meaning increments the
version in ``format``. Numbers that are not finite are null; an infinite number of steps is the text ``inf``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headtohead.escaping import json_text
from headtohead.report.folder import ANSWER_FORMAT
from headtohead_judge.answer import plain, summary_fields, test_fields
from headtohead_judge.contrast import Contrast, with_sign

if TYPE_CHECKING:
    from headtohead.report.content import Report


def answer_file(report: Report) -> str:
    """Return the text of ``answer.json``."""
    from headtohead.analysis.wording import contrast_name
    from headtohead.report.setup import setup_line

    analysis, record = report.analysis, report.record
    margin, found = record.margins.get(analysis.metric), analysis.convergence
    points = analysis.reference_points.get(analysis.frames.baseline)
    compared = analysis.reference_comparisons("nearest_neighbour")
    status = analysis.looks
    reason = (
        "at_most"
        if status and status.undecided
        else "not_ranked"
        if status and status.untested
        else "decided"
    )
    answer = {
        "format": f"{ANSWER_FORMAT}3",
        "experiment": record.name,
        "question": record.question,
        "answer": report.answer,
        "differences": []
        if (frame := report.differences.frame) is None
        else frame.to_dict("records"),
        "stale": list(report.stale),
        "remarks": [vars(remark) for remark in report.remarks],
        "setup": setup_line(analysis),
        "metric": analysis.metric,
        "margin": margin.value if margin else None,
        "looks": status
        and {
            "planned": status.looks.seeds,
            "taken": status.taken,
            "level": status.level,
            "stopped": None if not status.complete or status.next is not None else reason,
            "undecided": status.undecided,
            "set_after_results": analysis.late_looks,
        },
        "incomplete": dict(analysis.incomplete),
        "scores": {slug: analysis.summaries[slug].mean for slug in analysis.ranked},
        "collapses": {
            slug: {
                **{name: getattr(found, name) for name in ("collapsed", "runs", "p")},
                "interval": vars(found.interval),
                "all_runs": summary_fields(found.all_runs),
                "without": summary_fields(found.without),
            }
            for slug, found in analysis.collapses.items()
        },
        "contrasts": [
            {
                "family": name,
                "main": contrast in analysis.main_contrasts,
                "label": contrast_name(analysis, contrast),
                **{
                    field: getattr(contrast, field)
                    for field in ("name", "metric", "reason", "seeds")
                },
                **_sides(contrast.contrast),
                **test_fields(contrast.paired, contrast.judgement),
                "direction": contrast.direction_name,
                "expected": contrast.expected or None,
                "agreement": contrast.agreement and str(contrast.agreement),
            }
            for name, family in analysis.families._asdict().items()
            for contrast in family.contrasts
        ],
        "training": {
            "still_learning": bool(found.still_learning),
            "decaying_schedules": list(found.decaying),
            "variants": {slug: vars(trend) for slug, trend in found.trends.items()},
            "gaps": [
                {
                    "contrast": gap.contrast.name,
                    "loss_difference": gap.difference,
                    "baseline_steps": gap.steps,
                }
                for gap in found.gaps
            ],
        },
        "reference_points": points
        and {
            "sentences": points.sentences,
            "scores": points.scores,
            "not_better_than_nearest_neighbour": [
                entry.slug for entry in compared if not entry.beaten
            ],
        },
    }
    return json_text(plain(answer), indent=2) + "\n"


def _sides(contrast: Contrast) -> dict[str, Any]:
    """Return the compared variants, and how their metrics and lengths differ.

    In each setting, a variant with a positive weight is beside one with a negative weight.
    """
    pairs = []
    for setting in contrast.settings:
        positive, negative = with_sign(setting, 1.0), with_sign(setting, -1.0)
        for side, against in zip(positive, negative, strict=True):
            pairs.append((side, against))
    side, against = pairs[0]
    return {
        "pairs": [(first.variant, second.variant) for first, second in pairs],
        "against_metric": against.metric if against.metric != side.metric else None,
        "lengths": side.lengths,
        "against_lengths": against.lengths if against.lengths != side.lengths else None,
    }
