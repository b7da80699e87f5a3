"""``answer.json`` and the answer of ``h2h judge``, for programs; docs/reference/answer-file.md describes the fields.

Fields may be added without a new version. A field that is removed, renamed or changes its meaning increments the
version in ``format``. Numbers that are not finite are null; an infinite number of steps is the text ``inf``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headtohead.escaping import json_text
from headtohead.report.folder import ANSWER_FORMAT
from headtohead.statistics.paired_tests import Difference, Interval, Summary
from headtohead.statistics.verdicts import Judgement

if TYPE_CHECKING:
    from headtohead.analysis.judge import Judged
    from headtohead.report.content import Report

JUDGE_FORMAT = "headtohead-judge"

PARTS = ("against_metric", "lengths", "against_lengths")
"""Fields of a declared contrast that compares two metrics, or source lengths."""


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
                "all_runs": _summary(found.all_runs),
                "without": _summary(found.without),
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
                **{field: getattr(contrast.declared, field, None) for field in PARTS},
                **_tests(contrast.paired, contrast.judgement),
                "direction": contrast.direction_name,
                "pairs": contrast.pairs,
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
    return json_text(_plain(answer), indent=2) + "\n"


def is_judge_file(content: bytes) -> bool:
    """Return whether a file is an answer of ``h2h judge``, of any version."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(answer, dict) and str(answer.get("format")).startswith(f"{JUDGE_FORMAT}/")


def judge_file(judged: Judged, exit_code: int) -> dict[str, Any]:
    """Return the judgement of a table of scores as JSON data."""
    return {
        "format": f"{JUDGE_FORMAT}/2",
        "metric": judged.metric,
        "higher_is_better": judged.higher_is_better,
        "margin": judged.margin,
        "paired": judged.is_paired,
        "baseline": _plain({"variant": judged.baseline, **_summary(judged.summary)}),
        "contrasts": [
            _plain(
                {
                    "variant": found.variant,
                    **_summary(found.summary),
                    **_tests(found.difference, found.judgement),
                }
            )
            for found in judged.variants
        ],
        "looks": list(judged.looks.seeds) if judged.looks else None,
        "more_seeds": judged.more_seeds,
        "warnings": list(judged.warnings),
        "exit_code": exit_code,
    }


def _tests(difference: Difference | None, judgement: Judgement) -> dict[str, Any]:
    test = judgement.size_test
    return {
        "direction": judgement.direction,
        "size": judgement.size,
        "difference": difference and difference.mean,
        "interval": _interval(judgement.interval),
        "size_interval": test and _interval(test.interval),
        "p": difference and difference.p,
        "holm_p": judgement.holm_p,
        "paired_p": difference and difference.paired_p,
        "sign_flip_p": difference and difference.sign_flip_p,
        "size_p": test and test.holm_p,
    }


def _summary(summary: Summary) -> dict[str, Any]:
    return {"seeds": summary.n, "mean": summary.mean, "standard_deviation": summary.sd}


def _interval(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None or not math.isfinite(interval.low) else vars(interval)


def _plain(value: Any) -> Any:
    """Return JSON data: NaN as None, infinity as the text ``inf``."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if math.isinf(value) else None
    return value
