"""``answer.json``, for programs; docs/reference/answer-file.md describes the fields.

Fields may be added without a new version. A field that is removed, renamed or changes its meaning increments the
version in ``format``. Numbers that are not finite are null; an infinite number of steps is the text ``inf``.
"""

from __future__ import annotations

from typing import Any

from headtohead.analysis.change import change_of, pairs_of, setting_of
from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.findings import rules
from headtohead.analysis.scores import Collapse
from headtohead.analysis.sentences import sentence
from headtohead.analysis.size_prediction import Prediction, SizePredictions
from headtohead.analysis.study import Analysis, LooksStatus
from headtohead.escaping import json_text
from headtohead.report.content import Report
from headtohead.report.folder import ANSWER_FORMAT
from headtohead.report.setup import setup_line
from headtohead_judge.answer import plain, summary_fields, test_fields
from headtohead_judge.contrast import Contrast

VERSION = 5


def answer_file(report: Report) -> str:
    """Return the text of ``answer.json``; NaN is null, and an infinite number is the text ``inf``.

    The margin, the looks, the size predictions and the reference points are null if the study has none. Scores are
    those of ranked variants.

    Raises:
        HeadToHeadError: If a file of the study is damaged, such as the stored values per example of a run.
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
        "limits": list(rules.limits(report.remarks)),
        "differences": [] if frame is None else frame.to_dict("records"),
        "stale": list(report.stale),
        "remarks": [vars(remark) for remark in report.remarks],
        "setup": setup_line(analysis),
        "metric": analysis.metric,
        "margin": margin.value if margin else None,
        "looks": _looks(analysis, analysis.looks) if analysis.looks else None,
        "incomplete": dict(analysis.incomplete),
        "scores": {slug: analysis.summaries[slug].mean for slug in analysis.ranked},
        "settings": {slug: setting_of(analysis, slug) for slug in analysis.frames.by_slug},
        "collapses": collapses,
        "contrasts": _contrasts(analysis),
        "size_predictions": _size_predictions(report.size_predictions),
        "training": _training(analysis),
        "reference_points": _reference_points(analysis),
    }
    return json_text(plain(answer), indent=2) + "\n"


def _size_predictions(predicted: SizePredictions | None) -> dict[str, Any] | None:
    """Return the JSON data of the effects at the largest size with their predictions; None without any."""
    if predicted is None:
        return None
    changes = []
    for change in predicted.changes:
        by_line, by_same_effect = map(_prediction, change.predictions)
        changes.append(
            {
                "change": change.name,
                "pairs": [list(pair) for pair in change.pairs],
                "seeds": change.seeds,
                "measured": change.measured,
                "by_line": by_line,
                "by_same_effect": by_same_effect,
            }
        )
    return {"sizes": list(predicted.sizes), "changes": changes, "omitted": list(predicted.omitted)}


def _prediction(prediction: Prediction) -> dict[str, Any]:
    """Return the JSON data of a predicted effect."""
    return {
        "effect": prediction.effect,
        "interval": {"low": prediction.low, "high": prediction.high},
        "sources": [vars(source) for source in prediction.error.sources],
    }


def _looks(analysis: Analysis, status: LooksStatus) -> dict[str, Any]:
    """Return the JSON data of the looks.

    ``stopped`` is None while seeds of a look lack a result, or if a further look follows. Else it is why the study
    stopped: ``at_most`` if the last look leaves main contrasts undecided, else ``not_ranked`` if some have no test,
    else ``decided``. ``undecided`` are names of main contrasts.
    """
    stopped: str | None = "decided"
    if not status.complete or status.next_seeds is not None:
        stopped = None
    elif status.undecided:
        stopped = "at_most"
    elif status.untested:
        stopped = "not_ranked"
    return {
        "planned": status.looks.seeds,
        "taken": status.taken,
        "level": status.alpha_per_look,
        "stopped": stopped,
        "undecided": status.undecided,
        "set_after_results": analysis.late_looks,
    }


def _collapse(collapse: Collapse) -> dict[str, Any]:
    """Return the data of the collapsed runs of a variant. ``p`` of the baseline is NaN; `answer_file` writes null."""
    return {
        "collapsed": collapse.collapsed,
        "runs": collapse.runs,
        "p": collapse.p,
        "interval": vars(collapse.interval),
        "all_runs": summary_fields(collapse.all_runs),
        "without": summary_fields(collapse.healthy),
    }


def _contrasts(analysis: Analysis) -> list[dict[str, Any]]:
    """Return the JSON data of the contrasts of all families, in the order of the families.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    contrasts = []
    for name, family in analysis.families._asdict().items():
        for contrast in family.contrasts:
            fields = {"family": name, "main": contrast in analysis.main_contrasts}
            contrasts.append(fields | _contrast(analysis, contrast))
    return contrasts


def _contrast(analysis: Analysis, contrast: ContrastResult) -> dict[str, Any]:
    """Return the JSON data of a contrast.

    ``change`` is None unless the contrast measures a single one; ``expected`` and ``agreement`` are None without an
    expected result. Numbers of a contrast without a test are NaN or None.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    fields: dict[str, Any] = {
        "name": contrast.name,
        "sentence": sentence(analysis, contrast),
        "metric": contrast.metric,
        "reason": contrast.reason,
        "seeds": contrast.seeds,
    }
    fields |= _sides(contrast.contrast)
    change = change_of(analysis.frames, contrast)
    fields["change"] = change.fields if change else None
    fields |= test_fields(contrast.paired, contrast.judgement)
    fields["margin"] = contrast.judgement.margin
    fields["expected"] = contrast.expected or None
    fields["agreement"] = None
    if contrast.agreement:
        fields["agreement"] = str(contrast.agreement)
    return fields


def _sides(contrast: Contrast) -> dict[str, Any]:
    """Return the fields on the sides of a contrast: the pairs of variants, and the scores that are compared.

    The left metric is the metric of the contrast, in another field. The right metric and lengths are None if they equal
    those of the left side. Metrics and lengths are those of the first pair.
    """
    pairs = list(pairs_of(contrast))
    left, right = pairs[0]
    fields: dict[str, Any] = {
        "pairs": [(of_left.variant, of_right.variant) for of_left, of_right in pairs],
        "against_metric": None,
        "lengths": left.lengths,
        "against_lengths": None,
    }
    if right.metric != left.metric:
        fields["against_metric"] = right.metric
    if right.lengths != left.lengths:
        fields["against_lengths"] = right.lengths
    return fields


def _training(analysis: Analysis) -> dict[str, Any]:
    """Return whether the runs trained far enough: the trend of each variant with runs, and contrasts in steps.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
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
    """Return the scores without training on the baseline's test set, and the variants without a higher score.

    None if the baseline's data have no reference points. Compared are the variants of `Analysis.reference_comparisons`.

    Raises:
        HeadToHeadError: If the file of the reference points is damaged.
    """
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
