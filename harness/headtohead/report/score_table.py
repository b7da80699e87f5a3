"""The LaTeX table of variants for a paper: scores, differences, verdicts, with notes that state the tests."""

from __future__ import annotations

import pandas as pd

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.wording import interval_caption
from headtohead.report.content import Report
from headtohead.report.render import latex_table
from headtohead.report.section import Bold, judged_cells, replaced
from headtohead.report.setup import complete_setup
from headtohead.report.variants import primary_score, reported_summary, variant_note, verdict_cell
from headtohead.storage.metrics import higher_is_better, show, show_count

MEANS = (
    "Mean {metric} ({direction} is better) over seeds {seeds}, with 95 % t-intervals that include the variation of "
    "training seeds."
)
DIFFERENCES = "Differences are from the baseline {baseline}. {intervals} Better and worse: the interval excludes 0."
LOOKS = (
    "Seeds were added: looks were planned at {planned} seeds and taken at {taken}. The intervals and p-values of the "
    "differences are those of all looks together."
)
WITHIN = (
    "Equivalent, or by less than the margin: the interval lies within the margin of {margin}. By more: it excludes "
    "every smaller difference."
)
LATE_MARGIN = " The margin was set after results existed."
NO_MARGIN = "Without a margin, no difference shown is not a sign of equality."
BOLD = (
    "Bold: the best mean and the variants that are equal or equivalent to it; every other variant is worse than "
    "another variant (multiple comparisons with the best, simultaneous 95 % intervals)."
)
NO_BOLD = "No score is bold, because {reason}."


def score_table(report: Report) -> str:
    r"""Return the LaTeX table of all variants in the order of the report; it needs ``\usepackage{booktabs}``.

    Its caption is the question, its label the name of the study.

    Raises:
        HeadToHeadError: If a file of the study is damaged, such as the stored values per example of a run.
    """
    contrasts = {
        contrast.variant: contrast for contrast in report.analysis.families.variants.contrasts
    }
    rows = []
    for slug in report.analysis.order:
        contrast = contrasts.get(slug)
        rows.append(_row(report, slug, contrast))
    return latex_table(
        pd.DataFrame(rows, dtype=object),
        caption=report.record.question,
        label=report.record.name,
        notes=_notes(report),
    )


def _row(report: Report, slug: str, contrast: ContrastResult | None) -> dict[str, str]:
    """Return the cells of a variant by column; the score is bold if the variant is one of the best.

    Score and number of seeds are those in the metric that the variant is judged on; the score of a variant that is not
    ranked is a dash.

    Args:
        report: The report.
        slug: The variant.
        contrast: Its contrast against the baseline. None for the baseline, and for a variant without such a contrast:
            difference and p-value are dashes.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
        KeyError: If the study has no variant ``slug``.
    """
    analysis = report.analysis
    variant = analysis.frames.by_slug[slug]
    cell = primary_score(report, slug)
    if slug in analysis.best.slugs:
        cell = Bold(cell)
    row = {"variant": variant.title}
    row["seeds"] = str(reported_summary(report, slug).n)
    row[report.metric] = cell
    row["difference"] = "–"
    row["adjusted p"] = "–"
    if contrast:
        cells = judged_cells(contrast)
        row["difference"] = cells["difference"]
        row["adjusted p"] = cells["p"]
    row["verdict"] = verdict_cell(report, slug, contrast)
    row["parameters"] = show_count(variant.counts.total)
    return row


def _notes(report: Report) -> list[str]:
    """Return the notes: metric and seeds, tests, looks, margin, meaning of bold, notes on variants, set-up, cautions.

    Looks have a note only in a study with sequential seeds. If no variant is bold, a note says why. The last notes are
    `Report.cautions`.

    Raises:
        HeadToHeadError: If a file of the study is damaged, such as the stored values per example of a run.
    """
    analysis = report.analysis
    frames = analysis.frames
    family = analysis.families.variants
    means = MEANS.format(
        metric=report.metric,
        direction="higher" if higher_is_better(analysis.metric) else "lower",
        seeds=", ".join(map(str, frames.seeds)),
    )
    differences = DIFFERENCES.format(
        baseline=report.title(frames.baseline),
        intervals=interval_caption(analysis, family.contrasts),
    )
    notes = [means, differences + replaced(family.contrasts)]
    looks = analysis.looks
    if looks:
        planned = ", ".join(map(str, looks.looks.seeds))
        taken = ", ".join(map(str, looks.taken))
        notes.append(LOOKS.format(planned=planned, taken=taken))
    notes.append(_margin_note(report))
    reason = analysis.best.reason
    notes.append(NO_BOLD.format(reason=reason) if reason else BOLD)
    for slug in analysis.order:
        note = variant_note(report, slug)
        if note:
            notes.append(f"{report.title(slug)}: {note}.")
    notes.append(complete_setup(analysis))
    notes += [remark.text for remark in report.cautions]
    return notes


def _margin_note(report: Report) -> str:
    """Return the note on the words about the margin, or that there is no margin.

    A margin that no verdict uses counts as none.
    """
    analysis = report.analysis
    margin = report.record.margins.get(analysis.metric)
    contrasts = analysis.families.variants.contrasts
    is_used = any(contrast.judgement.margin for contrast in contrasts)
    if margin is None or not is_used:
        return NO_MARGIN
    note = WITHIN.format(margin=show(margin.value, analysis.metric, like=margin.value))
    if margin.late:
        note += LATE_MARGIN
    return note
