"""The sections on variants: scores, costs, further metrics, collapsed runs, padding and pitfalls."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.scores import per_token_mismatch
from headtohead.config.labels import listed
from headtohead.report.content import Report
from headtohead.report.figures.rows import MAX_ROWS
from headtohead.report.section import (
    Section,
    score,
    table,
    verdict_lines,
    with_interval,
)
from headtohead.storage.experiment import Pitfall, VariantRecord
from headtohead.storage.metrics import readable, show, show_count, show_p, stored, unpadded
from headtohead_judge.paired_tests import Interval, Summary, paired
from headtohead_judge.verdicts import judge

MAX_NAMES = 12
"""Maximum number of variants that a cell names."""

SCORES = (
    "Mean {metric} over seeds with its 95 % interval, and the costs of each variant, best first."
)
WITH_COLLAPSED = " Collapsed runs are included here, but not in the differences."
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


def score_section(report: Report) -> Section:
    """Return the scores of the variants with their costs, the figure of scores and further metrics.

    With more than `content.MAX_ROWS` variants, only the best and the baseline have a row, and a line has the number of
    the others. The further metrics are a part, left out without a table.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    analysis = report.analysis
    stacks = _stack_sizes(report)
    sizes = set[int]().union(*stacks.values())
    text = SCORES.format(metric=report.metric)
    if analysis.collapses:
        text += WITH_COLLAPSED
    if sizes - {1}:
        text += STACKED.format(runs=_range(sizes))
    caption = FIGURE
    if analysis.unranked:
        caption += UNRANKED_POINTS
    caption += report.shown(MAX_ROWS)
    lines = []
    unlisted = len(analysis.order) - len(report.listed)
    if unlisted:
        lines.append(f"{unlisted} more variants are in results.csv.")
    rows = _rows(report, stacks, shows_stacks=len(sizes) > 1)
    further = _further_metrics(report)
    return Section(
        "Scores and costs",
        text,
        hint="of every variant",
        figure="scores",
        caption=caption,
        frame=table(rows),
        lines=lines,
        parts=[further] if further.frame is not None else [],
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
    """Return a row per listed variant: its name with notes, score, number of seeds and costs.

    Args:
        report: The report.
        stacks: The sizes of the stacks of each listed variant, as `_stack_sizes` returns them.
        shows_stacks: Whether the cell of the speed, tokens/s, has these sizes on a second line.

    Raises:
        KeyError: If ``shows_stacks`` and ``stacks`` lacks a listed variant.
    """
    rows = []
    for slug in report.listed:
        row = {"variant": _title_with_notes(report, slug)}
        row[report.metric] = primary_score(report, slug)
        row["seeds"] = str(reported_summary(report, slug).n)
        stack = ""
        if shows_stacks:
            stack = f"\nstack of {_range(stacks[slug])}"
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
    """Return the cells of a variant by column: parameters, FLOPs, attention width, speed, memory and time.

    Speed, memory and time are means over seeds, a dash if they were not measured. MFU follows the speed on a line of
    its own if it was measured.

    Args:
        report: The report.
        slug: The variant.
        stack: A text that follows the speed; empty for none.

    Raises:
        KeyError: If the study has no variant ``slug``.
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
    memory = "–" if math.isnan(megabytes) else f"{megabytes:,.0f}"
    time = show(seconds, "system/wall_seconds")
    if seconds >= 100:
        time = f"{seconds:,.0f}"
    return {
        "parameters": show_count(counts.total) + _changed_width(frames.by_slug[slug]),
        "FLOPs per token": show_count(counts.flops_per_token),
        "attention width": str(counts.inner_width),
        "tokens/s": speed,
        "memory, MB": memory,
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
    """Return the means of the reported metrics other than the primary one; without a table if there are none.

    A metric that no run has is left out. A score of a variant that is not ranked, or that is not comparable with the
    baseline's, is a dash.
    """
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

    Variants without a collapsed run have no row, except the baseline, whose p is a dash.
    """
    metric = report.analysis.metric
    rows = []
    for slug, collapse in report.analysis.collapses.items():
        low, high = 100 * collapse.interval.low, 100 * collapse.interval.high
        row = {"variant": report.title(slug)}
        row["collapsed"] = f"{collapse.collapsed} of {collapse.runs}"
        row["95 % interval of the rate"] = f"{low:.0f} % to {high:.0f} %"
        row["rate against baseline: p"] = show_p(collapse.p)
        row[f"{report.metric}, all runs"] = primary_score(report, slug)
        row["without collapsed runs"] = score(collapse.healthy, metric)
        rows.append(row)
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
    """Return the scores in padded batches beside those without padding.

    None if no run was evaluated without padding, or if both scores are equal by construction for all variants. A
    variant that was not evaluated without padding has no row. The difference is paired over the seeds with both scores;
    without such a seed it is a dash.
    """
    if not report.has_unpadded:
        return None
    analysis, frames = report.analysis, report.analysis.frames
    metric = stored(analysis.metric)
    changes = {}
    for slug in report.listed:
        without_padding = frames.scores(slug, unpadded(metric))
        padded = frames.scores(slug, metric)
        if without_padding:
            seeds = sorted(without_padding.keys() & padded.keys())
            left = [padded[seed] for seed in seeds]
            right = [without_padding[seed] for seed in seeds]
            changes[slug] = paired(left, right)
    rows = []
    for slug, judgement in zip(changes, judge([*changes.values()]), strict=True):
        ends = judgement.interval or Interval(math.nan, math.nan)
        mean = changes[slug].mean
        row = {"variant": report.title(slug)}
        row["padded"] = reported(report, slug, metric)
        row["unpadded"] = reported(report, slug, unpadded(metric))
        row["padded − unpadded"] = with_interval(mean, ends.low, ends.high, metric, signed=True)
        row["test loss, padded"] = reported(report, slug, "test/loss")
        row["test loss, unpadded"] = reported(report, slug, unpadded("test/loss"))
        row["upper bound"] = analysis.upper_bound_verdicts.get(slug, "")
        rows.append(row)
    text = PADDING
    if analysis.upper_bound is not None:
        text += UPPER_BOUND.format(bound=analysis.upper_bound)
    return Section("With and without padding", text, frame=table(rows))


PITFALLS = "Settings that make a result of these variants less meaningful."


def pitfall_section(report: Report) -> Section | None:
    """Return a row per pitfall with its consequence and the variants that have it, or None without pitfalls.

    Beyond `MAX_NAMES` variants, the number of the others is stated.
    """
    titles: dict[Pitfall, list[str]] = {}
    variants = report.analysis.frames.by_slug.values()
    for variant in variants:
        for pitfall in variant.pitfalls:
            titles.setdefault(pitfall, []).append(variant.title)
    rows = []
    for pitfall, names in titles.items():
        affected = listed(names, MAX_NAMES)
        if len(names) == len(variants):
            affected = "every variant"
        row = {"pitfall": pitfall.name}
        row["consequence"] = pitfall.consequence
        row["field"] = pitfall.field
        row["variants"] = affected
        rows.append(row)
    if not rows:
        return None
    return Section("Pitfalls", PITFALLS, frame=table(rows))


def verdict_cell(report: Report, slug: str, contrast: ContrastResult | None) -> str:
    """Return the verdict on a variant in the primary metric with its notes, or ``baseline``.

    A dash without a contrast, and for a variant that is judged on another metric.
    """
    if slug == report.analysis.frames.baseline:
        return "baseline"
    if contrast is None or slug in report.analysis.judged_on:
        return "–"
    lines = verdict_lines(contrast)
    if contrast.notes:
        lines.append("; ".join(contrast.notes))
    return "\n".join(lines)


def variant_note(report: Report, slug: str) -> str:
    """Return a note on a variant, the first of these; else an empty text.

    The metric that it is judged on, why it is not ranked, which seeds are missing, or the variant that it is equal to.

    Raises:
        KeyError: If the study has no variant ``slug``.
    """
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

    Raises:
        KeyError: If the study has no variant ``slug``.
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
    """Return mean and interval of a variant in the metric that it is judged on; NaN without a score.

    Raises:
        KeyError: If the study has no variant ``slug``.
    """
    analysis = report.analysis
    metric = analysis.judged_on.get(slug, analysis.metric)
    return analysis.frames.summary(slug, metric)


def reported(report: Report, slug: str, metric: str) -> str:
    """Return a variant's mean of any metric with its interval; a dash if it is not ranked.

    A dash too for a loss that is not comparable with the baseline's.

    Raises:
        KeyError: If the study has no variant ``slug``.
    """
    frames = report.analysis.frames
    if slug in report.analysis.unranked or per_token_mismatch(
        frames, slug, frames.baseline, metric
    ):
        return "–"
    return score(frames.summary(slug, metric), metric)


def _range(numbers: Collection[int]) -> str:
    """Return the smallest and the largest number: ``2 to 8``, or ``2`` if they are equal; a dash without numbers."""
    if not numbers:
        return "–"
    smallest, largest = min(numbers), max(numbers)
    return str(smallest) if smallest == largest else f"{smallest} to {largest}"
