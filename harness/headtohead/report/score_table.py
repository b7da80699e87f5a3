"""The LaTeX table of variants for a paper: scores, differences, verdicts, with notes that state the tests."""

from __future__ import annotations

import pandas as pd

from headtohead.report.content import Report
from headtohead.report.render import latex_table
from headtohead.report.section import Bold, difference, replaced
from headtohead.report.setup import setup_line
from headtohead.report.variants import primary_score, reported_summary, variant_note, verdict_cell
from headtohead.storage.metrics import higher_is_better, show, show_count, show_p
from headtohead_judge.paired_tests import ALPHA


def score_table(report: Report) -> str:
    """Return the table of variants as LaTeX."""
    analysis, best = report.analysis, report.analysis.best.slugs
    contrasts = {contrast.variant: contrast for contrast in analysis.families.variants.contrasts}
    shown = []
    for slug in analysis.order:
        variant, contrast = analysis.frames.by_slug[slug], contrasts.get(slug)
        paired, judgement = (contrast.paired, contrast.judgement) if contrast else (None, None)
        shown.append(
            {
                "variant": variant.title,
                "seeds": str(reported_summary(report, slug).n),
                report.metric: (Bold if slug in best else str)(primary_score(report, slug)),
                "difference": difference(
                    paired, analysis.metric, contrast.scale if contrast else 0
                ),
                "p (Holm)": show_p(getattr(judgement, "holm_p", None)),
                "verdict": verdict_cell(report, slug, contrast) or "–",
                "parameters": show_count(variant.counts.total),
            }
        )
    frame, record = pd.DataFrame(shown, dtype=object), report.record
    return latex_table(frame, caption=record.question, label=record.name, notes=_notes(report))


def _notes(report: Report) -> list[str]:
    """Return the notes: metric, seeds, tests, correction, margin, meaning of bold, set-up."""
    analysis, frames, level = report.analysis, report.analysis.frames, f"{100 * ALPHA:g} %"
    direction = "higher" if higher_is_better(analysis.metric) else "lower"
    margin = (
        frames.record.margins.get(analysis.metric) if analysis.margin(analysis.metric) else None
    )
    looks, best = analysis.looks, analysis.best
    notes = [
        f"Mean {report.metric} ({direction} is better) over seeds {', '.join(map(str, frames.seeds))}, with 95 % "
        f"t-intervals that include the variation of training seeds.",
        f"Differences are from the baseline {report.title(frames.baseline)}, paired by seed. Better and worse: "
        f"t-test with moderated variance at {level} after Holm's correction (number of contrasts: "
        f"{analysis.families.variants.tested}).{replaced(analysis.families.variants.contrasts)}",
    ]
    if looks:
        notes.append(
            f"Seeds were added: looks were planned at {', '.join(map(str, looks.looks.seeds))} seeds and taken at "
            f"{', '.join(map(str, looks.taken))}; each tests at {100 * looks.level:.2g} % for {level} over all looks. "
            "The p-values are adjusted for the looks, the intervals of this table are not."
        )
    notes.append(
        f"Within: two one-sided t-tests within the margin of {show(margin.value, analysis.metric, like=margin.value)} "
        f"at {level}, adjusted by Holm.{' The margin was set after results existed.' * margin.late}"
        if margin
        else "Without a margin, there is no verdict on the size; undetected does not show equality."
    )
    notes.append(
        f"No score is bold, because {best.reason}."
        if best.reason
        else "Bold: the best mean and the variants that are equal or equivalent to it; every other variant is "
        f"significantly worse than another variant (multiple comparisons with the best, {level})."
    )
    notes += [
        f"{report.title(slug)}: {note}."
        for slug in analysis.order
        if (note := variant_note(report, slug))
    ]
    return [*notes, setup_line(analysis), *(remark.text for remark in report.cautions)]
