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
    """Return the table of variants as ``latex``, ``csv`` or ``markdown``; numbers in CSV are exact."""
    analysis, best = report.analysis, report.analysis.best.slugs
    contrasts = {contrast.left: contrast for contrast in analysis.families.variants.contrasts}
    exact, shown = [], []
    for slug in analysis.order:
        variant, summary, contrast = analysis.frames.by_slug[slug], analysis.summaries[slug], contrasts.get(slug)
        paired, judgement = (contrast.paired, contrast.judgement) if contrast else (None, None)
        step = judgement.interval if judgement else None
        scored = summary if slug not in analysis.withheld else None
        verdict = "baseline" if slug == analysis.frames.baseline else contrast.verdict if contrast else ""
        exact.append(
            {
                "variant": spreadsheet_text(slug),
                "title": spreadsheet_text(variant.title),
                "metric": analysis.metric,
                "seeds": summary.n,
                **{name: getattr(scored, name, math.nan) for name in ("mean", "low", "high", "sd")},
                **{f"difference{end}": getattr(paired, end[1:] or "mean", math.nan) for end in ("", "_low", "_high")},
                **{f"holm_{name}": getattr(step, name, math.nan) for name in ("level", "low", "high")},
                "holm_p": getattr(judgement, "holm_p", math.nan),
                "verdict": verdict,
                "best": str(slug in best).lower(),
                "parameters": variant.counts.total,
            }
        )
        shown.append(
            {
                "variant": variant.title,
                "seeds": str(summary.n),
                report.metric: (Bold if slug in best else str)(primary_score(report, slug)),
                "difference": difference(paired, analysis.metric),
                "p (Holm)": show_p(getattr(judgement, "holm_p", None)),
                "verdict": verdict or "–",
                "parameters": show_count(variant.counts.total),
            }
        )
    if form == "csv":
        return str(pd.DataFrame(exact).to_csv(index=False))
    frame, notes, question = pd.DataFrame(shown, dtype=object), _notes(report), report.record.question
    if form == "latex":
        return latex_table(frame, caption=question, label=report.record.name, notes=notes)
    return "\n\n".join([f"**{markdown_escape(question)}**", markdown_table(frame), *map(markdown_escape, notes)]) + "\n"


def _notes(report: Report) -> list[str]:
    """Return the notes: metric, seeds, tests, correction, margin, meaning of bold, set-up."""
    analysis, frames, level = report.analysis, report.analysis.frames, f"{100 * ALPHA:g} %"
    direction = "higher" if higher_is_better(analysis.metric) else "lower"
    varied = "training seeds, draws of the data and test sentences" if frames.has_draws else "training seeds"
    margin = frames.record.margins.get(analysis.metric) if analysis.margin(analysis.metric) else None
    looks, best = analysis.looks, analysis.best
    notes = [
        f"Mean {report.metric} ({direction} is better) over seeds {', '.join(map(str, frames.seeds))}, with 95 % "
        f"t-intervals that include the variation of {varied}.",
        f"Differences are from the baseline {report.title(frames.baseline)}, paired by seed. Better and worse: "
        f"t-test with moderated variance at {level} after Holm's correction (number of contrasts: "
        f"{analysis.families.variants.tested}).",
    ]
    if looks:
        notes.append(
            f"Seeds were added: looks were planned at {', '.join(map(str, looks.looks.seeds))} seeds and taken at "
            f"{', '.join(map(str, looks.taken))}; each tests at {100 * looks.level:.2g} % for {level} over all looks. "
            "The p-values are adjusted for the looks, the intervals of this table are not."
        )
    notes.append(
        f"Within: two one-sided t-tests within the margin of {show(margin.value, analysis.metric)} at "
        f"{level}, adjusted by Holm.{' The margin was set after results existed.' * margin.late}"
        if margin
        else "Without a margin, there is no verdict on the size; undetected does not show equality."
    )
    notes.append(
        f"No score is bold, because {best.reason}."
        if best.reason
        else "Bold: the best mean and the variants that are equal or equivalent to it; every other variant is "
        f"significantly worse than another variant (multiple comparisons with the best, {level})."
    )
    notes += [f"{report.title(slug)}: {note}." for slug in analysis.order if (note := variant_note(report, slug))]
    return [*notes, setup_line(analysis), *(remark.text for remark in report.cautions)]
