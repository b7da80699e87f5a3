"""Reference points for scores of translations: lines beside the answer, and a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headtohead.analysis.reference_points import NAMES, ReferencePoints, decodes, scoring_metrics
from headtohead.analysis.study import Analysis
from headtohead.report.blocks import Block, Column, DataTable, Heading, Paragraph, Span, TableCell, TableRow
from headtohead.report.cells import score_cell
from headtohead.storage.metrics import readable, show

MOST_NAMED = 3
"""Maximum number of variants that a line beside the answer names."""


COMPARED = {"nearest_neighbour": "nearest-neighbour translation", "majority": "the most frequent target"}
"""The reference points that a model is expected to exceed."""


def neighbour_line(analysis: Analysis) -> str | None:
    """Return sentences with the variants that do not exceed nearest neighbour and most frequent target, or None."""
    sentences = []
    for key, name in COMPARED.items():
        compared = analysis.reference_comparisons(key)
        below = [comparison for comparison in compared if not comparison.beaten]
        if len(below) == len(compared) > 1:
            best = max(below, key=lambda comparison: comparison.score)
            score, reference = show(best.score, best.metric), show(best.reference, best.metric)
            sentences.append(
                f"No variant is better than {name}: {score} {readable(best.metric)} at most, against {reference}."
            )
        elif len(below) > MOST_NAMED:
            sentences.append(
                f"Not better than {name}: {len(below)} of {len(compared)} variants in {readable(below[0].metric)}."
            )
        elif below:
            named = [
                f"{analysis.frames.by_slug[found.slug].title} ({show(found.score, found.metric)} against "
                f"{show(found.reference, found.metric)} {readable(found.metric)})"
                for found in below
            ]
            sentences.append(f"Not better than {name}: {', '.join(named)}.")
    return " ".join(sentences) or None


def reference_fact(analysis: Analysis) -> str | None:
    """Return a sentence with the scores of the reference points of the baseline's data, or None."""
    points = analysis.reference_points.get(analysis.frames.baseline)
    metric = analysis.reference_metric
    if points is None or metric is None:
        return None
    scores = {name: show(values[metric], metric) for name, values in points.scores.items()}
    where = " on the baseline's test sentences" if _on_other_data(analysis, points) else ""
    majority = f", the most frequent target has {scores['majority']}" if "majority" in scores else ""
    return (
        f"Reference points{where}: nearest-neighbour translation has {scores['nearest_neighbour']} {readable(metric)}, "
        f"the vocabulary upper bound is {scores['vocabulary_bound']}{majority}."
    )


def reference_blocks(analysis: Analysis) -> list[Block]:
    """Return the section on the baseline's data; empty if nothing is translated."""
    frames = analysis.frames
    if not decodes(frames):
        return []
    heading = Heading(2, "Reference points", "references", "References")
    points = analysis.reference_points.get(frames.baseline)
    if points is None:
        return [
            heading,
            Paragraph(
                "Not computed. h2h run with the experiment file computes the reference points; it does not retrain "
                "finished runs.",
                "note",
            ),
        ]
    on_other_data = _on_other_data(analysis, points)
    comparable = [slug for slug in analysis.ranked if slug not in on_other_data]
    beside = (
        "beside the best variant and the baseline" if comparable[:1] != [frames.baseline] else "beside the baseline"
    )
    blocks: list[Block] = [
        heading,
        Paragraph(
            f"Scores of translations without a model on {points.sentences:,} test sentences, {beside}. "
            "Vocabulary upper bound: the reference as the target vocabulary reproduces it. Nearest neighbour: the "
            "translation of the training sentence with the most similar source (cosine of TF-IDF vectors of words). "
            "Copied source: the source sentence itself."
            + " Most frequent target: that of the training data, for every sentence."
            * ("majority" in points.scores),
            "note",
        ),
        _table(analysis, points, [*comparable[:1], frames.baseline]),
    ]
    if on_other_data:
        slug = on_other_data[0]
        own = analysis.reference_points.get(slug)
        assert own is not None
        best = "the best variant with other data" if len(on_other_data) > 1 else "the variant with other data"
        blocks += [
            Paragraph(f"On the {own.sentences:,} test sentences of {best}:", "note"),
            _table(analysis, own, [slug]),
        ]
    return blocks


def _on_other_data(analysis: Analysis, points: ReferencePoints) -> list[str]:
    """Return the ranked variants whose data have other reference points than those of the baseline."""
    return [slug for slug in analysis.ranked if analysis.reference_points.get(slug) not in (points, None)]


def _table(analysis: Analysis, points: ReferencePoints, slugs: Sequence[str]) -> DataTable:
    """Return the scores of reference points and of variants on the same data, highest first.

    Metrics in which no model can score have no column.
    """
    frames, metrics = analysis.frames, scoring_metrics(points)
    metric = analysis.reference_metric
    first = metric if metric in metrics else next(iter(metrics), None)
    scored: list[tuple[float, TableRow]] = []
    for key, scores in points.scores.items():
        cells = (TableCell(show(scores[metric], metric)) for metric in metrics)
        scored.append((scores[first] if first else 0.0, TableRow((TableCell(NAMES[key]), *cells))))
    for slug in dict.fromkeys(slugs):
        if first and frames.summary(slug, first).n and slug not in analysis.withheld:
            title = TableCell(Span(frames.by_slug[slug].title, "strong"))
            cells = (score_cell(frames.summary(slug, metric), metric) for metric in metrics)
            scored.append((frames.summary(slug, first).mean, TableRow((title, *cells))))
    scored.sort(key=lambda row: -row[0])
    columns = (Column("", align="left"), *(Column(readable(metric)) for metric in metrics))
    return DataTable(columns, tuple(row for _, row in scored))


def reference_record(analysis: Analysis) -> dict[str, Any] | None:
    """Return the reference points of the baseline's data for ``answer.json``, or None."""
    points = analysis.reference_points.get(analysis.frames.baseline)
    if points is None:
        return None
    return {
        "sentences": points.sentences,
        "scores": {name: dict(scores) for name, scores in points.scores.items()},
        "not_better_than_nearest_neighbour": [
            entry.slug for entry in analysis.reference_comparisons("nearest_neighbour") if not entry.beaten
        ],
    }
