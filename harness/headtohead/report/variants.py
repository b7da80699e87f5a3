"""The sections on variants: scores, differences, costs, further metrics, padding and pitfalls."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.scores import loss_mismatch
from headtohead.analysis.wording import interval_caption
from headtohead.config.labels import listed
from headtohead.planning.variants import DATA_AXIS, SIZE_AXIS
from headtohead.report.content import Report
from headtohead.report.figures.rows import MAX_ROWS
from headtohead.report.section import (
    Section,
    judged_cells,
    replaced,
    score,
    table,
    verdict_lines,
    with_interval,
)
from headtohead.storage.experiment import Pitfall, VariantRecord
from headtohead.storage.metrics import readable, show, show_count, show_p, stored, unpadded
from headtohead_judge.paired_tests import Summary, paired
from headtohead_judge.verdicts import judge

MAX_NAMES = 12
"""Maximum number of variants that a cell names."""

SCORES = "Mean {metric} over seeds with its 95 % interval and the costs of each variant."
COMPARED_SCORES = (
    "Mean {metric} over seeds with its 95 % interval, the difference from the baseline{scope} paired by seed, and the "
    "costs of each variant. {intervals}{replaced}"
)
SAME_DATA = " on the same data"
SAME_SIZE = " of the same size"
STACKED = (
    " Tokens per second, memory and time are those of a stack of {runs} runs; compare them only between stacks of the "
    "same size on an equally busy machine. MFU is the used fraction of the device's peak. FLOPs are those of a forward "
    "pass per target token."
)
FIGURE = (
    "Every point is a seed, the tick the mean, the bar the 95 % interval. The vertical line is the baseline's mean, "
    "the band its standard deviation over seeds."
)
UNRANKED_POINTS = " Hollow points are variants that are not ranked."


def variant_section(report: Report) -> Section:
    """Return the scores of the variants with their differences and costs, the figure of scores and further metrics."""
    analysis = report.analysis
    stacks = _stack_sizes(report)
    sizes = set[int]().union(*stacks.values())
    text = _description(report)
    if sizes - {1}:
        text += STACKED.format(runs=_range(sizes))
    caption = FIGURE
    if analysis.unranked:
        caption += UNRANKED_POINTS
    unlisted = len(analysis.order) - len(report.listed)
    lines = [f"{unlisted} more variants are in results.csv."] if unlisted else []
    further = _further_metrics(report)
    return Section(
        "Variants",
        text,
        figure="scores",
        caption=caption + report.shown(MAX_ROWS),
        frame=table(_rows(report, stacks, shows_stacks=len(sizes) > 1)),
        lines=lines,
        parts=[further] if further.frame is not None else [],
    )


def _description(report: Report) -> str:
    """Return what the table compares; differences are within a data set and a size if these vary."""
    if len(report.analysis.frames.by_slug) == 1:
        return SCORES.format(metric=report.metric)
    scope = ""
    if DATA_AXIS in report.record.axes:
        scope += SAME_DATA
    if SIZE_AXIS in report.record.axes:
        scope += SAME_SIZE
    contrasts = report.analysis.families.variants.contrasts
    return COMPARED_SCORES.format(
        metric=report.metric,
        scope=scope,
        intervals=interval_caption(report.analysis, contrasts),
        replaced=replaced(contrasts),
    )


def _stack_sizes(report: Report) -> dict[str, set[int]]:
    """Return the numbers of runs that were trained together, by variant."""
    frames = report.analysis.frames
    sizes: dict[str, set[int]] = {}
    for slug in report.listed:
        sizes[slug] = set()
        for run in frames.rows(slug).index:
            record = frames.records.get(run)
            if record and record.execution:
                sizes[slug].add(len(record.execution.stack) or 1)
    return sizes


def _rows(
    report: Report, stacks: Mapping[str, Collection[int]], *, shows_stacks: bool
) -> list[dict[str, str]]:
    """Return a row per variant: its name with notes, score, difference, verdict, adjusted p and costs.

    A single variant has no difference.
    """
    frames, analysis = report.analysis.frames, report.analysis
    contrasts = {contrast.variant: contrast for contrast in analysis.families.variants.contrasts}
    rows = []
    for slug in report.listed:
        contrast = contrasts.get(slug)
        row = {
            "variant": _title_with_notes(report, slug),
            report.metric: primary_score(report, slug),
            "seeds": str(reported_summary(report, slug).n),
        }
        if len(frames.by_slug) > 1:
            cells = judged_cells(contrast) if contrast else {}
            row["against baseline"] = cells.get("difference", "–")
            row["verdict"] = verdict_cell(report, slug, contrast)
            row["p"] = cells.get("p", "–")
        stack = f"\nstack of {_range(stacks[slug])}" if shows_stacks else ""
        rows.append(row | _costs(report, slug, stack))
    return rows


def _title_with_notes(report: Report, slug: str) -> str:
    """Return the title of a variant, with lines on its rank and its pitfalls."""
    variant = report.analysis.frames.by_slug[slug]
    lines = [variant.title]
    note = variant_note(report, slug)
    if note:
        lines.append(note)
    if variant.pitfalls:
        names = ", ".join(pitfall.name for pitfall in variant.pitfalls)
        lines.append(f"pitfall: {names}")
    return "\n".join(lines)


def _costs(report: Report, slug: str, stack: str) -> dict[str, str]:
    """Return size, FLOPs, speed, memory and time of a variant; ``stack`` is a note on the speed.

    Speed, memory and time are means over seeds; what was not measured is a dash, and MFU is left out.
    """
    frames = report.analysis.frames
    counts = frames.by_slug[slug].counts
    tokens = frames.summary(slug, "system/tokens_per_second").mean
    used_fraction = frames.summary(slug, "system/mfu").mean
    megabytes = frames.summary(slug, "system/peak_memory_mb").mean
    seconds = frames.summary(slug, "system/wall_seconds").mean
    speed = show_count(tokens) + stack
    if not math.isnan(used_fraction):
        speed += f"\nMFU {100 * used_fraction:.0f} %"
    time = f"{seconds:,.0f}" if seconds >= 100 else show(seconds, "system/wall_seconds")
    return {
        "parameters": show_count(counts.total) + _changed_width(frames.by_slug[slug]),
        "FLOPs per token": show_count(counts.flops_per_token),
        "attention width": str(counts.inner_width),
        "tokens/s": speed,
        "memory, MB": "–" if math.isnan(megabytes) else f"{megabytes:,.0f}",
        "time, s": time,
    }


def _changed_width(variant: VariantRecord) -> str:
    """Return the width that matching gave a feed-forward network, with the configured one; empty if it is that."""
    if variant.d_ff == variant.d_ff_asked:
        return ""
    return f"\nd_ff {variant.d_ff}, configured {variant.d_ff_asked}"


MEANS = "Means with 95 % intervals over seeds, not tested."
BLANK_LOSSES = " Losses are blank if vocabulary or labels are not the baseline's."


def _further_metrics(report: Report) -> Section:
    """Return the reported metrics that are not the primary one; without a table if there are none."""
    metrics = []
    for metric in report.record.metrics.report:
        if metric in report.analysis.frames.runs and metric != report.analysis.metric:
            metrics.append(metric)
    if not metrics:
        return Section("Further metrics", MEANS)
    rows = []
    for slug in report.listed:
        row = {"variant": report.title(slug)}
        for metric in metrics:
            row[readable(metric)] = reported(report, slug, metric)
        rows.append(row)
    text = MEANS
    if any("–" in row.values() for row in rows):
        text += BLANK_LOSSES
    return Section("Further metrics", text, frame=table(rows))


COLLAPSED = (
    "Runs whose final validation loss is far above their variant's median and above the other runs of every other "
    "variant. A contrast leaves out every seed in which a run of either side collapsed. A ranking of pairs leaves "
    "out the collapsed runs only. The interval of the rate is exact (Clopper and Pearson); its test is Fisher's, "
    "not adjusted."
)


def collapse_section(report: Report) -> Section | None:
    """Return how many runs of each variant collapsed, and scores with and without them; None without any.

    The baseline has a row even if none of its runs collapsed; its p is a dash.
    """
    metric = report.analysis.metric
    rows = []
    for slug, collapse in report.analysis.collapses.items():
        low, high = 100 * collapse.interval.low, 100 * collapse.interval.high
        rows.append(
            {
                "variant": report.title(slug),
                "collapsed": f"{collapse.collapsed} of {collapse.runs}",
                "95 % interval of the rate": f"{low:.0f} % to {high:.0f} %",
                "rate against baseline: p": show_p(collapse.p),
                f"{report.metric}, all runs": primary_score(report, slug),
                "without collapsed runs": score(collapse.without, metric),
            }
        )
    if not rows:
        return None
    return Section("Collapsed runs", COLLAPSED, frame=table(rows))


PADDING = (
    "The test sentences evaluated twice: in padded batches, and one sentence at a time, without padding. Variants "
    "of built-in entries with masks that hide all padding are equal by construction and evaluated once. The intervals "
    "of the differences are simultaneous at 95 % over the seeds."
)
UPPER_BOUND = " An order-invariant encoder cannot exceed {bound:.3f} without padding."


def padding_section(report: Report) -> Section | None:
    """Return the scores in padded batches beside those without padding, or None if they are equal by construction.

    Variants without scores without padding have no row. The difference is paired over the seeds with both scores.
    """
    if not report.has_unpadded:
        return None
    analysis, frames = report.analysis, report.analysis.frames
    metric = stored(analysis.metric)
    changes = {}
    for slug in report.listed:
        without = frames.scores(slug, unpadded(metric))
        padded = frames.scores(slug, metric)
        if without:
            seeds = sorted(without.keys() & padded.keys())
            changes[slug] = paired(
                [padded[seed] for seed in seeds], [without[seed] for seed in seeds]
            )
    rows = []
    for slug, judgement in zip(changes, judge([*changes.values()]), strict=True):
        low, high = math.nan, math.nan
        if judgement.interval:
            low, high = judgement.interval.low, judgement.interval.high
        rows.append(
            {
                "variant": report.title(slug),
                "padded": reported(report, slug, metric),
                "unpadded": reported(report, slug, unpadded(metric)),
                "padded − unpadded": with_interval(
                    changes[slug].mean, low, high, metric, signed=True
                ),
                "test loss, padded": reported(report, slug, "test/loss"),
                "test loss, unpadded": reported(report, slug, unpadded("test/loss")),
                "upper bound": analysis.upper_bound_verdicts.get(slug, ""),
            }
        )
    text = PADDING
    if analysis.upper_bound is not None:
        text += UPPER_BOUND.format(bound=analysis.upper_bound)
    return Section("With and without padding", text, frame=table(rows))


PITFALLS = "Settings that make a result of these variants less meaningful."


def pitfall_section(report: Report) -> Section | None:
    """Return the pitfalls of all variants with their consequences, or None without pitfalls."""
    titles: dict[Pitfall, list[str]] = {}
    variants = report.analysis.frames.by_slug.values()
    for variant in variants:
        for pitfall in variant.pitfalls:
            titles.setdefault(pitfall, []).append(variant.title)
    rows = []
    for pitfall, names in titles.items():
        is_everywhere = len(names) == len(variants)
        rows.append(
            {
                "pitfall": pitfall.name,
                "consequence": pitfall.consequence,
                "field": pitfall.field,
                "variants": "every variant" if is_everywhere else listed(names, MAX_NAMES),
            }
        )
    if not rows:
        return None
    return Section("Pitfalls", PITFALLS, frame=table(rows))


def verdict_cell(report: Report, slug: str, contrast: ContrastResult | None) -> str:
    """Return the verdict on a variant in the primary metric with its notes, or a dash if it is not judged on it."""
    if slug == report.analysis.frames.baseline:
        return "baseline"
    if contrast is None or slug in report.analysis.judged_on:
        return "–"
    lines = verdict_lines(contrast)
    if contrast.notes:
        lines.append("; ".join(contrast.notes))
    return "\n".join(lines)


def variant_note(report: Report, slug: str) -> str:
    """Return why a variant has no rank or a partial one, or the variant that it is equal to; else an empty text."""
    analysis = report.analysis
    if slug in analysis.judged_on:
        return f"judged on {readable(analysis.judged_on[slug])}"
    if analysis.unranked.get(slug):
        return f"not ranked: {analysis.unranked[slug]}"
    if analysis.missing_seeds.get(slug):
        return analysis.missing_seeds[slug]
    equal = analysis.frames.by_slug[slug].equal_to
    return f"equal to {report.title(equal)}" if equal else ""


def primary_score(report: Report, slug: str) -> str:
    """Return a variant's primary score with its interval, or a dash if the variant is not ranked.

    It is the score in the metric that the variant is judged on, with its name if that is not the primary metric.
    """
    analysis = report.analysis
    if slug in analysis.unranked:
        return "–"
    metric = analysis.judged_on.get(slug, analysis.metric)
    text = score(reported_summary(report, slug), metric)
    if metric == analysis.metric:
        return text
    return f"{text}\n{readable(metric)}"


def reported_summary(report: Report, slug: str) -> Summary:
    """Return mean and interval of a variant in the metric that it is judged on; NaN without a score."""
    analysis = report.analysis
    metric = analysis.judged_on.get(slug, analysis.metric)
    return analysis.frames.summary(slug, metric)


def reported(report: Report, slug: str, metric: str) -> str:
    """Return a variant's mean of any metric; a dash if it is not ranked, or not comparable with the baseline."""
    frames = report.analysis.frames
    if slug in report.analysis.unranked or loss_mismatch(frames, slug, frames.baseline, metric):
        return "–"
    return score(frames.summary(slug, metric), metric)


def _range(numbers: Collection[int]) -> str:
    """Return the smallest and the largest number; a dash without numbers."""
    if not numbers:
        return "–"
    smallest, largest = min(numbers), max(numbers)
    return str(smallest) if smallest == largest else f"{smallest} to {largest}"
