"""The sections on variants: scores, costs, tests, further metrics, padding and pitfalls."""

from __future__ import annotations

import math

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.scores import loss_mismatch
from headtohead.config.labels import listed
from headtohead.planning.variants import DATA_AXIS, SIZE_AXIS
from headtohead.report.content import Report
from headtohead.report.figures.rows import MAX_ROWS
from headtohead.report.section import Section, contrast_table, difference, replaced, score, table
from headtohead.storage.experiment import Pitfall
from headtohead.storage.metrics import counted, readable, show, show_count, show_p, stored, unpadded
from headtohead_judge.paired_tests import Summary, paired

MAX_NAMES = 12
"""Maximum number of variants that a cell names."""


def variant_section(report: Report) -> Section:
    """Return the scores of the variants with their costs, the figure of scores, the tests and further metrics."""
    analysis, frames = report.analysis, report.analysis.frames
    contrasts = {contrast.variant: contrast for contrast in analysis.families.variants.contrasts}
    tested = [contrasts[slug] for slug in report.listed if slug in contrasts]
    is_single = len(frames.by_slug) == 1
    metrics = [
        name
        for name in report.record.metrics.report
        if name in frames.runs and name != analysis.metric
    ]
    executions = {
        run: record.execution for run, record in frames.records.items() if record.execution
    }
    stacks = {
        slug: {
            len(executions[run].stack) or 1 for run in frames.rows(slug).index if run in executions
        }
        for slug in report.listed
    }
    sizes = set[int]().union(*stacks.values())
    rows = []
    for slug in report.listed:
        contrast, variant = contrasts.get(slug), frames.by_slug[slug]
        pitfalls = ", ".join(pitfall.name for pitfall in variant.pitfalls)
        notes = [variant_note(report, slug), f"pitfall: {pitfalls}" * bool(pitfalls)]
        costs = ("tokens_per_second", "mfu", "peak_memory_mb", "wall_seconds")
        tokens, mfu, memory, seconds = (
            frames.summary(slug, f"system/{name}").mean for name in costs
        )
        widened = f"\nd_ff {variant.d_ff}, configured {variant.d_ff_asked}" * (
            variant.d_ff != variant.d_ff_asked
        )
        stack = f"\nstack of {_range(stacks[slug])}" * (len(sizes) > 1)
        against = {
            "against baseline": difference(contrast.paired, analysis.metric, contrast.scale)
            if contrast
            else "–",
            "verdict": verdict_cell(report, slug, contrast),
        }
        rows.append(
            {
                "variant": "\n".join(filter(None, [variant.title, *notes])),
                report.metric: primary_score(report, slug),
                "seeds": str(reported_summary(report, slug).n),
                **({} if is_single else against),
                "parameters": show_count(variant.counts.total) + widened,
                "FLOPs per token": show_count(variant.counts.flops_per_token),
                "attention width": f"{variant.counts.inner_width}",
                "tokens/s": show_count(tokens)
                + stack
                + ("" if math.isnan(mfu) else f"\nMFU {100 * mfu:.0f} %"),
                "memory, MB": "–" if math.isnan(memory) else f"{memory:,.0f}",
                "time, s": f"{seconds:,.0f}"
                if seconds >= 100
                else show(seconds, "system/wall_seconds"),
            }
        )
    further = table(
        {
            "variant": report.title(slug),
            **{readable(name): reported(report, slug, name) for name in metrics},
        }
        for slug in report.listed
    )
    has_blanks = further is not None and bool((further == "–").to_numpy().any())
    parts = [
        Section(
            "Tests",
            f"Holm's correction over {counted(analysis.families.variants.tested, 'contrast')} with the baseline."
            + replaced(tested),
            frame=contrast_table(
                tested, ({"variant": report.title(contrast.variant)} for contrast in tested)
            )
            if analysis.families.variants.tested
            else None,
        ),
        Section(
            "Further metrics",
            "Means with 95 % intervals over seeds, not tested."
            + " Losses are blank if vocabulary or labels are not the baseline's." * has_blanks,
            frame=further if metrics else None,
        ),
    ]
    by_data = " on the same data" * (DATA_AXIS in report.record.axes)
    by_data += " of the same size" * (SIZE_AXIS in report.record.axes)
    compared = "" if is_single else f", the difference from the baseline{by_data} paired by seed,"
    note = (
        f" Tokens per second, memory and time are those of a stack of {_range(sizes)} runs; compare them only between "
        "stacks of the same size on an equally busy machine. MFU is the used fraction of the device's peak. FLOPs are "
        "those of a forward pass per target token."
    )
    unlisted = len(analysis.order) - len(report.listed)
    return Section(
        "Variants",
        f"Mean {report.metric} over seeds with its 95 % interval{compared} and the costs of each variant."
        f"{note * bool(sizes - {1})}",
        figure="scores",
        caption="Every point is a seed, the tick the mean, the bar the 95 % interval. The vertical line is the "
        "baseline's mean, the band its standard deviation over seeds."
        + " Hollow points are variants that are not ranked." * bool(analysis.unranked)
        + report.shown(MAX_ROWS),
        frame=table(rows),
        lines=[f"{unlisted} more variants are in results.csv."] if unlisted else [],
        parts=[part for part in parts if part.frame is not None],
    )


def collapse_section(report: Report) -> Section | None:
    """Return how many runs of each variant collapsed, and scores with and without them; None without any."""
    metric = report.analysis.metric
    rows = [
        {
            "variant": report.title(slug),
            "collapsed": f"{found.collapsed} of {found.runs}",
            "95 % interval of the rate": f"{100 * found.interval.low:.0f} % to {100 * found.interval.high:.0f} %",
            "rate against baseline: p": show_p(found.p),
            f"{report.metric}, all runs": primary_score(report, slug),
            "without collapsed runs": score(found.without, metric),
        }
        for slug, found in report.analysis.collapses.items()
    ]
    if not rows:
        return None
    return Section(
        "Collapsed runs",
        "Runs whose final validation loss is far above their variant's median and above the other runs of every other "
        "variant. A contrast leaves out every seed in which a run of either side collapsed. A ranking of pairs leaves "
        "out the collapsed runs only. The interval of the rate is exact (Clopper and Pearson); its test is Fisher's, "
        "not adjusted.",
        frame=table(rows),
    )


def padding_section(report: Report) -> Section | None:
    """Return the scores in padded batches beside those without padding, or None if they are equal by construction."""
    analysis, frames, metric = (
        report.analysis,
        report.analysis.frames,
        stored(report.analysis.metric),
    )
    name = unpadded(metric)
    if not report.has_unpadded:
        return None
    rows = []
    for slug in report.listed:
        own, padded = frames.scores(slug, name), frames.scores(slug, metric)
        seeds = sorted(own.keys() & padded.keys())
        if own:
            change = paired([padded[seed] for seed in seeds], [own[seed] for seed in seeds])
            rows.append(
                {
                    "variant": report.title(slug),
                    "padded": reported(report, slug, metric),
                    "unpadded": reported(report, slug, name),
                    "padded − unpadded": difference(change, metric),
                    "test loss, padded": reported(report, slug, "test/loss"),
                    "test loss, unpadded": reported(report, slug, "test/loss_unpadded"),
                    "upper bound": analysis.upper_bound_verdicts.get(slug, ""),
                }
            )
    bound = analysis.upper_bound
    limit = (
        ""
        if bound is None
        else f" An order-invariant encoder cannot exceed {bound:.3f} without padding."
    )
    return Section(
        "With and without padding",
        "The test sentences evaluated twice: in padded batches, and one sentence at a time, without padding. Variants "
        f"of built-in entries with masks that hide all padding are equal by construction and evaluated once.{limit}",
        frame=table(rows),
    )


def pitfall_section(report: Report) -> Section | None:
    """Return the pitfalls of all variants with their consequences, or None without pitfalls."""
    titles: dict[Pitfall, list[str]] = {}
    variants = report.analysis.frames.by_slug.values()
    for variant in variants:
        for pitfall in variant.pitfalls:
            titles.setdefault(pitfall, []).append(variant.title)
    rows = [
        {
            "pitfall": pitfall.name,
            "consequence": pitfall.consequence,
            "field": pitfall.field,
            "variants": "every variant"
            if len(named) == len(variants)
            else listed(named, MAX_NAMES),
        }
        for pitfall, named in titles.items()
    ]
    text = "Settings that make a result of these variants less meaningful."
    return Section("Pitfalls", text, frame=table(rows)) if rows else None


def verdict_cell(report: Report, slug: str, contrast: ContrastResult | None) -> str:
    """Return the verdict on a variant in the primary metric, or a dash if it is not judged on it."""
    if slug == report.analysis.frames.baseline:
        return "baseline"
    if contrast is None or slug in report.analysis.judged_on:
        return "–"
    return contrast.verdict


def variant_note(report: Report, slug: str) -> str:
    """Return why a variant has no rank or a partial one, or the variant that it is equal to; else an empty text."""
    analysis = report.analysis
    if metric := analysis.judged_on.get(slug):
        return f"judged on {readable(metric)}"
    if unranked := analysis.unranked.get(slug, ""):
        return f"not ranked: {unranked}"
    equal = analysis.frames.by_slug[slug].equal_to
    return analysis.missing_seeds.get(slug, "") or (
        f"equal to {report.title(equal)}" if equal else ""
    )


def primary_score(report: Report, slug: str) -> str:
    """Return a variant's primary score with its interval, or a dash if the variant is not ranked.

    It is the score in the metric that the variant is judged on, with its name if that is not the primary metric.
    """
    analysis = report.analysis
    if slug in analysis.unranked:
        return "–"
    metric = analysis.judged_on.get(slug, analysis.metric)
    text = score(reported_summary(report, slug), metric)
    return text if metric == analysis.metric else f"{text}\n{readable(metric)}"


def reported_summary(report: Report, slug: str) -> Summary:
    """Return mean and interval of a variant in the metric that it is judged on."""
    analysis = report.analysis
    return analysis.frames.summary(slug, analysis.judged_on.get(slug, analysis.metric))


def reported(report: Report, slug: str, metric: str) -> str:
    """Return a variant's mean of any metric, or a dash if it is not comparable with the baseline's."""
    frames = report.analysis.frames
    if slug in report.analysis.unranked or loss_mismatch(frames, slug, frames.baseline, metric):
        return "–"
    return score(frames.summary(slug, metric), metric)


def _range(numbers: set[int]) -> str:
    return " to ".join(map(str, sorted({min(numbers), max(numbers)}))) if numbers else "–"
