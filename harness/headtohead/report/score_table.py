"""The table of variants for a paper: scores, differences and verdicts, with notes that state the tests."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from headtohead.analysis.best import BestVariants
from headtohead.analysis.contrasts import Contrast
from headtohead.escaping import spreadsheet_text
from headtohead.report.blocks import Block, Column, DataTable, Paragraph, Span, TableCell, TableRow
from headtohead.report.cells import difference_cell
from headtohead.report.content import ReportContent
from headtohead.report.latex import latex_table
from headtohead.report.markdown import markdown_page
from headtohead.report.setup import setup_line
from headtohead.report.variants import parameters, primary_score, variant_note
from headtohead.statistics.paired_tests import ALPHA
from headtohead.storage.metrics import higher_is_better, show, show_p

FORMATS = ("latex", "csv", "markdown")


def score_table(content: ReportContent, form: str) -> str:
    """Return the table of variants as ``latex``, ``csv`` or ``markdown``."""
    if form == "csv":
        return _csv(content)
    table, notes = _table(content), _notes(content)
    if form == "latex":
        return latex_table(table, caption=content.record.question, label=content.record.name, notes=notes)
    blocks: list[Block] = [Paragraph(content.record.question, "answer"), table, *map(Paragraph, notes)]
    return markdown_page(blocks)


def _best(content: ReportContent) -> BestVariants:
    return content.analysis.best


def _table(content: ReportContent) -> DataTable:
    best, contrasts = _best(content).slugs, _contrasts(content)
    rows = tuple(_row(content, slug, contrasts.get(slug), is_bold=slug in best) for slug in content.analysis.order)
    columns = (
        Column("variant", "left"),
        Column("seeds"),
        Column(content.metric),
        Column("difference"),
        Column("p (Holm)"),
        Column("verdict", "left"),
        Column("parameters"),
    )
    return DataTable(columns, rows)


def _row(content: ReportContent, slug: str, contrast: Contrast | None, *, is_bold: bool) -> TableRow:
    analysis = content.analysis
    score = primary_score(content, slug)
    if is_bold:
        score = TableCell(Span(str(score.text), "strong"), score.notes)
    is_baseline = slug == analysis.frames.baseline
    verdict = "baseline" if is_baseline else contrast.verdict if contrast else "–"
    cells = (
        TableCell(content.title(slug).text),
        TableCell(str(analysis.summaries[slug].n)),
        score,
        difference_cell(contrast),
        TableCell(show_p(contrast.judgement.holm_p if contrast else None)),
        TableCell(verdict),
        TableCell(parameters(content, slug)),
    )
    return TableRow(cells)


def _notes(content: ReportContent) -> list[str]:
    """Return the notes: metric, seeds, tests, correction, margin, meaning of bold, set-up."""
    analysis, frames = content.analysis, content.analysis.frames
    direction = "higher" if higher_is_better(analysis.metric) else "lower"
    varied = "training seeds, draws of the data and test sentences" if frames.has_draws else "training seeds"
    tested = analysis.variants.tested
    notes = [
        f"Mean {content.metric} ({direction} is better) over seeds {_seeds(frames.seeds)}, with 95 % t-intervals that "
        f"include the variation of {varied}.",
        f"Differences are from the baseline {content.title(frames.baseline).text}, paired by seed. Better and worse: "
        f"paired t-test at {100 * ALPHA:g} % after Holm's correction over {tested} contrast{'s' * (tested != 1)}.",
        _looks_note(content),
        _margin_note(content),
        _bold_note(_best(content)),
        *(
            f"{content.title(slug).text}: {note}."
            for slug in content.analysis.order
            if (note := variant_note(content, slug))
        ),
        setup_line(analysis),
        *content.cautions,
    ]
    return [note for note in notes if note]


def _looks_note(content: ReportContent) -> str:
    status = content.analysis.looks
    if status is None:
        return ""
    return (
        f"Seeds were added: looks were planned at {', '.join(map(str, status.looks.seeds))} seeds and taken at "
        f"{', '.join(map(str, status.taken))}; each tests at {100 * status.level:.2g} % for {100 * ALPHA:g} % over all "
        "looks. The p-values are adjusted for the looks, the intervals of this table are not."
    )


def _margin_note(content: ReportContent) -> str:
    analysis = content.analysis
    margin = analysis.frames.record.margins.get(analysis.metric)
    if margin is None:
        return "Without a margin, no variant is equivalent; inconclusive does not show equality."
    late = " The margin was set after results existed." if margin.late else ""
    return (
        f"Equivalent: two one-sided paired t-tests within the margin of {show(margin.value, analysis.metric)} at "
        f"{100 * ALPHA:g} %, adjusted by Holm.{late}"
    )


def _bold_note(best: BestVariants) -> str:
    if best.reason:
        return f"No score is bold, because {best.reason}."
    return (
        "Bold: the best mean and the variants that are equal or equivalent to it; every other variant is "
        "significantly worse than another variant (multiple comparisons with the best, 5 %)."
    )


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def _contrasts(content: ReportContent) -> dict[str, Contrast]:
    return {contrast.left: contrast for contrast in content.analysis.variants.contrasts}


def _csv(content: ReportContent) -> str:
    """Return the table with exact numbers; missing numbers are empty."""
    analysis, contrasts = content.analysis, _contrasts(content)
    best = _best(content).slugs
    rows = []
    for slug in content.analysis.order:
        variant, summary, contrast = analysis.frames.by_slug[slug], analysis.summaries[slug], contrasts.get(slug)
        paired, judgement = (contrast.paired, contrast.judgement) if contrast else (None, None)
        step = judgement.interval if judgement else None
        is_ranked = slug not in analysis.withheld
        row: dict[str, object] = {
            "variant": slug,
            "title": variant.title,
            "metric": analysis.metric,
            "seeds": summary.n,
            "mean": _number(summary.mean if is_ranked else None),
            "low": _number(summary.low if is_ranked else None),
            "high": _number(summary.high if is_ranked else None),
            "sd": _number(summary.sd if is_ranked else None),
            "difference": _number(paired.mean if paired else None),
            "difference_low": _number(paired.low if paired else None),
            "difference_high": _number(paired.high if paired else None),
            "holm_level": _number(step.level if step else None),
            "holm_low": _number(step.low if step else None),
            "holm_high": _number(step.high if step else None),
            "holm_p": _number(judgement.holm_p if judgement else None),
            "verdict": "baseline" if slug == analysis.frames.baseline else contrast.verdict if contrast else "",
            "best": str(slug in best).lower(),
            "parameters": variant.counts.total,
        }
        rows.append({name: spreadsheet_text(cell) if isinstance(cell, str) else cell for name, cell in row.items()})
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _number(value: float | None) -> float | str:
    return "" if value is None or not math.isfinite(value) else value
