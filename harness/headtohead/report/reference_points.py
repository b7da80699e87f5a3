"""Reference points for scores of translations: lines beside the answer, and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headtohead.analysis.reference_points import (
    METRICS,
    NAMES,
    ReferencePoints,
    decodes,
    neighbour_comparisons,
    reference_points,
    translation_metrics,
)
from headtohead.analysis.study import Analysis
from headtohead.report.blocks import Block, Column, DataTable, Heading, Paragraph, Span, TableCell, TableRow
from headtohead.report.cells import score_cell
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import readable, show

MOST_NAMED = 3
"""Maximum number of variants that a line beside the answer names."""


def neighbour_line(analysis: Analysis) -> str | None:
    """Return sentences with the variants that do not beat nearest-neighbour translation in each metric, or None."""
    none, some = [], []
    metrics = translation_metrics(analysis)
    for metric in metrics:
        compared = neighbour_comparisons(analysis, metric)
        below = [comparison for comparison in compared if not comparison.beaten]
        if len(below) == len(compared) > 1:
            best = max(below, key=lambda comparison: comparison.score)
            none.append(
                f"{show(best.score, metric)} {readable(metric)} at most, against {show(best.neighbour, metric)}"
            )
        elif len(below) > MOST_NAMED:
            some.append(f"{len(below)} of {len(compared)} variants in {readable(metric)}")
        else:
            some += [
                f"{analysis.frames.by_slug[comparison.slug].title} ({show(comparison.score, metric)} against "
                f"{show(comparison.neighbour, metric)} {readable(metric)})"
                for comparison in below
            ]
    sentences = []
    if none:
        where = "" if len(none) == len(metrics) else " in this metric"
        sentences.append(f"No variant is better than nearest-neighbour translation{where}: {'; '.join(none)}.")
    if some:
        sentences.append(f"Not better than nearest-neighbour translation: {', '.join(some)}.")
    return " ".join(sentences) or None


def reference_fact(analysis: Analysis) -> str | None:
    """Return a sentence with the scores of the reference points of the baseline's data, or None."""
    points = reference_points(analysis.frames, analysis.frames.baseline)
    if points is None:
        return None
    metric, _ = translation_metrics(analysis)
    scores = {name: show(points.scores[name][metric], metric) for name in NAMES}
    where = " on the baseline's test sentences" if _on_other_data(analysis, points) else ""
    return (
        f"Reference points{where}: nearest-neighbour translation has {scores['nearest_neighbour']} {readable(metric)}, "
        f"the vocabulary upper bound is {scores['vocabulary_bound']}."
    )


def reference_blocks(analysis: Analysis) -> list[Block]:
    """Return the section on the baseline's data; empty if nothing is translated."""
    frames = analysis.frames
    if not decodes(frames):
        return []
    heading = Heading(2, "Reference points", "references", "References")
    points = reference_points(frames, frames.baseline)
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
            "Copied source: the source sentence itself.",
            "note",
        ),
        _table(analysis, points, [*comparable[:1], frames.baseline]),
    ]
    if on_other_data:
        slug = on_other_data[0]
        own = reference_points(frames, slug)
        assert own is not None
        best = "the best variant with other data" if len(on_other_data) > 1 else "the variant with other data"
        blocks += [
            Paragraph(f"On the {own.sentences:,} test sentences of {best}:", "note"),
            _table(analysis, own, [slug]),
        ]
    return blocks


def _on_other_data(analysis: Analysis, points: ReferencePoints) -> list[str]:
    """Return the ranked variants whose data have other reference points than those of the baseline."""
    return [slug for slug in analysis.ranked if reference_points(analysis.frames, slug) not in (points, None)]


def _table(analysis: Analysis, points: ReferencePoints, slugs: Sequence[str]) -> DataTable:
    """Return the scores of reference points and of variants on the same data, highest BLEU first."""
    frames = analysis.frames
    scored = [(scores["test/bleu"], _point_row(NAMES[key], scores)) for key, scores in points.scores.items()]
    for slug in dict.fromkeys(slugs):
        if frames.summary(slug, "test/bleu").n and slug not in analysis.withheld:
            scored.append((frames.summary(slug, "test/bleu").mean, _variant_row(frames, slug)))
    scored.sort(key=lambda row: -row[0])
    columns = (Column("", align="left"), *(Column(readable(metric)) for metric in METRICS))
    return DataTable(columns, tuple(row for _, row in scored))


def _point_row(name: str, scores: Mapping[str, float]) -> TableRow:
    return TableRow((TableCell(name), *(TableCell(show(scores[metric], metric)) for metric in METRICS)))


def _variant_row(frames: Frames, slug: str) -> TableRow:
    title = TableCell(Span(frames.by_slug[slug].title, "strong"))
    return TableRow((title, *(score_cell(frames.summary(slug, metric), metric) for metric in METRICS)))


def reference_record(analysis: Analysis) -> dict[str, Any] | None:
    """Return the reference points of the baseline's data for ``answer.json``, or None."""
    points = reference_points(analysis.frames, analysis.frames.baseline)
    if points is None:
        return None
    compared = [entry for metric in translation_metrics(analysis) for entry in neighbour_comparisons(analysis, metric)]
    return {
        "sentences": points.sentences,
        "scores": {name: dict(scores) for name, scores in points.scores.items()},
        "not_better_than_nearest_neighbour": list(dict.fromkeys(entry.slug for entry in compared if not entry.beaten)),
    }
