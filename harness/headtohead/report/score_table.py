"""The table of variants for a paper: scores, differences and verdicts, with notes that state the tests."""

from __future__ import annotations

import math

import pandas as pd

from headtohead.escaping import markdown_escape, spreadsheet_text
from headtohead.report.content import Report
from headtohead.report.render import latex_table, markdown_table
from headtohead.report.section import Bold, difference
from headtohead.report.setup import setup_line
from headtohead.report.variants import primary_score, variant_note
from headtohead.statistics.paired_tests import ALPHA
from headtohead.storage.metrics import higher_is_better, show, show_count, show_p

FORMATS = ("latex", "csv", "markdown")


def score_table(report: Report, form: str) -> str:
    """Return the table of variants as ``latex``, ``csv`` or ``markdown``."""
    if form == "csv":
        exact = exact_scores(report)
        texts = exact.select_dtypes(exclude="number").columns
        exact[texts] = exact[texts].map(spreadsheet_text)
        return str(exact.to_csv(index=False))
    analysis, best, notes = report.analysis, report.analysis.best, _notes(report)
    contrasts = {contrast.left: contrast for contrast in analysis.variants.contrasts}
    rows = []
    for slug in analysis.order:
        contrast = contrasts.get(slug)
        rows.append(
            {
                "variant": report.title(slug),
                "seeds": str(analysis.summaries[slug].n),
                report.metric: (Bold if slug in best.slugs else str)(primary_score(report, slug)),
                "difference": difference(contrast.paired if contrast else None, analysis.metric),
                "p (Holm)": show_p(contrast.judgement.holm_p if contrast else None),
                "verdict": "baseline" if slug == analysis.frames.baseline else contrast.verdict if contrast else "–",
                "parameters": show_count(analysis.frames.by_slug[slug].counts.total),
            }
        )
    frame = pd.DataFrame(rows, dtype=object)
    if form == "latex":
        return latex_table(frame, caption=report.record.question, label=report.record.name, notes=notes)
    parts = [f"**{markdown_escape(report.record.question)}**", markdown_table(frame), *map(markdown_escape, notes)]
    return "\n\n".join(parts) + "\n"


def exact_scores(report: Report) -> pd.DataFrame:
    """Return the table with exact numbers; missing numbers are NaN."""
    analysis, best = report.analysis, report.analysis.best.slugs
    contrasts, rows = {contrast.left: contrast for contrast in analysis.variants.contrasts}, []
    for slug in analysis.order:
        variant, summary, contrast = analysis.frames.by_slug[slug], analysis.summaries[slug], contrasts.get(slug)
        paired, judgement = (contrast.paired, contrast.judgement) if contrast else (None, None)
        step = judgement.interval if judgement else None
        scored = summary if slug not in analysis.withheld else None
        is_baseline = slug == analysis.frames.baseline
        rows.append(
            {
                "variant": slug,
                "title": variant.title,
                "metric": analysis.metric,
                "seeds": summary.n,
                **{name: getattr(scored, name, math.nan) for name in ("mean", "low", "high", "sd")},
                "difference": getattr(paired, "mean", math.nan),
                "difference_low": getattr(paired, "low", math.nan),
                "difference_high": getattr(paired, "high", math.nan),
                "holm_level": getattr(step, "level", math.nan),
                "holm_low": getattr(step, "low", math.nan),
                "holm_high": getattr(step, "high", math.nan),
                "holm_p": getattr(judgement, "holm_p", math.nan),
                "verdict": "baseline" if is_baseline else contrast.verdict if contrast else "",
                "best": str(slug in best).lower(),
                "parameters": variant.counts.total,
            }
        )
    return pd.DataFrame(rows)


def _notes(report: Report) -> list[str]:
    """Return the notes: metric, seeds, tests, correction, margin, meaning of bold, set-up."""
    analysis, frames, level = report.analysis, report.analysis.frames, f"{100 * ALPHA:g} %"
    direction = "higher" if higher_is_better(analysis.metric) else "lower"
    varied = "training seeds, draws of the data and test sentences" if frames.has_draws else "training seeds"
    margin, looks = frames.record.margins.get(analysis.metric), analysis.looks
    best = analysis.best
    notes = [
        f"Mean {report.metric} ({direction} is better) over seeds {', '.join(map(str, frames.seeds))}, with 95 % "
        f"t-intervals that include the variation of {varied}.",
        f"Differences are from the baseline {report.title(frames.baseline)}, paired by seed. Better and worse: paired "
        f"t-test at {level} after Holm's correction (number of contrasts: {analysis.variants.tested}).",
    ]
    if looks:
        notes.append(
            f"Seeds were added: looks were planned at {', '.join(map(str, looks.looks.seeds))} seeds and taken at "
            f"{', '.join(map(str, looks.taken))}; each tests at {100 * looks.level:.2g} % for {level} over all looks. "
            "The p-values are adjusted for the looks, the intervals of this table are not."
        )
    if margin is None:
        notes.append("Without a margin, no variant is equivalent; inconclusive does not show equality.")
    else:
        late = " The margin was set after results existed." * margin.late
        notes.append(
            f"Equivalent: two one-sided paired t-tests within the margin of {show(margin.value, analysis.metric)} at "
            f"{level}, adjusted by Holm.{late}"
        )
    notes.append(
        f"No score is bold, because {best.reason}."
        if best.reason
        else "Bold: the best mean and the variants that are equal or equivalent to it; every other variant is "
        f"significantly worse than another variant (multiple comparisons with the best, {level})."
    )
    notes += [f"{report.title(slug)}: {note}." for slug in analysis.order if (note := variant_note(report, slug))]
    return [*notes, setup_line(analysis), *(remark.text for remark in report.cautions)]
