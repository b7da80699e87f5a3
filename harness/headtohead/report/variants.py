"""The sections on variants: scores, costs, tests, further metrics, padding and pitfalls."""

from __future__ import annotations

import math

from headtohead.analysis.scores import loss_mismatch
from headtohead.config.labels import shortened
from headtohead.planning.axes import DATA_AXIS
from headtohead.report.content import Report
from headtohead.report.figures.rows import drawn_variants
from headtohead.report.section import Section, contrast_rows, difference, score, table
from headtohead.statistics.paired_tests import paired
from headtohead.storage.experiment import Pitfall
from headtohead.storage.metrics import counted, readable, show, show_count, unpadded

MOST_NAMES = 12
"""Maximum number of variants that a cell names."""


def variant_section(report: Report) -> Section:
    """Return the scores of the variants with their costs, the figure of scores, the tests and further metrics."""
    analysis, frames = report.analysis, report.analysis.frames
    by_data = " on the same data" * (DATA_AXIS in report.record.axes)
    contrasts = {contrast.left: contrast for contrast in analysis.variants.contrasts}
    tested = [contrasts[slug] for slug in report.listed if slug in contrasts]
    unlisted = len(analysis.order) - len(report.listed)
    metrics = [name for name in report.record.metrics.report if name in frames.runs and name != analysis.metric]
    parts = []
    if tested:
        names = [{"variant": report.title(contrast.left)} for contrast in tested]
        note = f"Holm's correction over {counted(analysis.variants.tested, 'contrast')} with the baseline."
        parts.append(Section("Tests", note, frame=table(contrast_rows(tested, names))))
    if metrics:
        rows = (
            {"variant": report.title(slug), **{readable(name): reported(report, slug, name) for name in metrics}}
            for slug in report.listed
        )
        note = "Losses are blank if vocabulary or labels differ from the baseline's."
        parts.append(Section("Further metrics", f"Described, not tested. {note}", frame=table(rows)))
    return Section(
        "Variants",
        f"Mean {report.metric} over seeds with its 95 % interval, the difference from the baseline{by_data} paired by "
        f"seed, and the costs of each variant. {_stack_note(report)}",
        figure="scores",
        caption="Every point is a seed, the tick the mean, the bar the 95 % interval. The vertical line is the "
        "baseline's mean, the band its standard deviation over seeds. Hollow points are variants that are not ranked."
        + report.shown(len(drawn_variants(analysis))),
        frame=table(_row(report, slug) for slug in report.listed),
        lines=[f"{unlisted} more variants are in results.csv."] if unlisted else [],
        parts=parts,
    )


def padding_section(report: Report) -> Section | None:
    """Return the scores in padded batches beside those without padding, or None if no run was evaluated without."""
    analysis, frames, name = report.analysis, report.analysis.frames, unpadded(report.analysis.metric)
    if name in frames.runs and all(frames.by_slug[slug].padding_hidden for slug in report.listed):
        return Section(
            "With and without padding",
            "Every variant's masks hide padding, so its scores with and without padding are equal by construction, and "
            "the test sentences are evaluated once.",
        )
    verdicts = analysis.upper_bound_verdicts
    rows = []
    for slug in report.listed if name in frames.runs else ():
        own, padded = frames.scores(slug, name), frames.scores(slug, analysis.metric)
        seeds = sorted(own.keys() & padded.keys())
        if own:
            change = paired([padded[seed] for seed in seeds], [own[seed] for seed in seeds])
            rows.append(
                {
                    "variant": report.title(slug),
                    "padded": reported(report, slug, analysis.metric),
                    "unpadded": reported(report, slug, name),
                    "padded − unpadded": difference(change, analysis.metric),
                    "test loss, padded": reported(report, slug, "test/loss"),
                    "test loss, unpadded": reported(report, slug, "test/loss_unpadded"),
                    "masks hide padding": "yes" if frames.by_slug[slug].padding_hidden else "no",
                    "upper bound": verdicts.get(slug, ""),
                }
            )
    if not rows:
        return None
    bound = analysis.upper_bound
    limit = "" if bound is None else f" An order-invariant encoder cannot exceed {bound:.3f} without padding."
    return Section(
        "With and without padding",
        "The test sentences evaluated twice: in padded batches, and one sentence at a time, without padding. Variants "
        f"with masks that hide padding are equal by construction and evaluated once.{limit}",
        frame=table(rows),
    )


def pitfall_section(report: Report) -> Section | None:
    """Return the pitfalls of all variants with their consequences, or None without pitfalls."""
    titles: dict[Pitfall, list[str]] = {}
    variants = report.analysis.frames.by_slug
    for variant in variants.values():
        for pitfall in variant.pitfalls:
            titles.setdefault(pitfall, []).append(variant.title)
    if not titles:
        return None
    rows = (
        {
            "pitfall": pitfall.name,
            "consequence": pitfall.consequence,
            "field": pitfall.field,
            "variants": "every variant" if len(named) == len(variants) else shortened(named, MOST_NAMES),
        }
        for pitfall, named in titles.items()
    )
    return Section("Pitfalls", "Settings that make a result of these variants less meaningful.", frame=table(rows))


def variant_note(report: Report, slug: str) -> str:
    """Return why a variant is not ranked or only partially, or the variant that it is equal to; else empty."""
    analysis = report.analysis
    if withheld := analysis.withheld.get(slug, ""):
        return f"not ranked: {withheld}"
    equal = analysis.frames.by_slug[slug].equal_to
    partial = analysis.unranked.get(slug, "") if analysis.allow_partial else ""
    return partial or (f"equal to {report.title(equal)}" if equal else "")


def primary_score(report: Report, slug: str) -> str:
    """Return a variant's primary score with its interval, or a dash if the variant is not ranked."""
    return "–" if slug in report.analysis.withheld else score(report.analysis.summaries[slug], report.analysis.metric)


def reported(report: Report, slug: str, metric: str) -> str:
    """Return a variant's mean of any metric, or a dash if it is not comparable with the baseline's."""
    frames = report.analysis.frames
    if slug in report.analysis.withheld or loss_mismatch(frames, slug, frames.baseline, metric):
        return "–"
    return score(frames.summary(slug, metric), metric)


def costs(report: Report, slug: str) -> dict[str, str]:
    """Return the costs of a variant; speed, memory and time are means over its runs."""
    frames = report.analysis.frames
    variant = frames.by_slug[slug]

    def mean(name: str) -> float:
        return frames.summary(slug, f"system/{name}").mean

    width = str(variant.counts.inner_width)
    if variant.d_ff != variant.d_ff_asked:
        width += f"\nd_ff {variant.d_ff}, configured {variant.d_ff_asked}"
    speed = show_count(mean("tokens_per_second"))
    if len(_stack_sizes(report)) > 1:
        speed += f"\nstack of {_range(_stack_sizes(report, slug))}"
    if not math.isnan(utilisation := mean("mfu")):
        speed += f"\nMFU {100 * utilisation:.0f} %"
    seconds = mean("wall_seconds")
    return {
        "parameters": show_count(variant.counts.total),
        "FLOPs per token": show_count(variant.counts.flops_per_token),
        "attention width": width,
        "tokens/s": speed,
        "memory, MB": _whole(mean("peak_memory_mb")),
        "time, s": _whole(seconds) if seconds >= 100 else show(seconds, "system/wall_seconds"),
    }


def _row(report: Report, slug: str) -> dict[str, str]:
    analysis = report.analysis
    contrast = next((found for found in analysis.variants.contrasts if found.left == slug), None)
    pitfalls = ", ".join(pitfall.name for pitfall in analysis.frames.by_slug[slug].pitfalls)
    notes = [variant_note(report, slug), f"pitfall: {pitfalls}" * bool(pitfalls)]
    verdict = contrast.verdict_name if contrast else "–"
    return {
        "variant": "\n".join(filter(None, [report.title(slug), *notes])),
        report.metric: primary_score(report, slug),
        "seeds": str(analysis.summaries[slug].n),
        "against baseline": difference(contrast.paired if contrast else None, analysis.metric),
        "verdict": "baseline" if slug == analysis.frames.baseline else verdict,
        **costs(report, slug),
    }


def _whole(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:,.0f}"


def _stack_sizes(report: Report, slug: str | None = None) -> set[int]:
    """Return the stack sizes of all runs, or of a variant's runs."""
    frames = report.analysis.frames
    names = frames.records if slug is None else frames.rows(slug).index
    return {len(run.execution.stack) or 1 for name in names if (run := frames.records.get(name)) and run.execution}


def _range(numbers: set[int]) -> str:
    return " to ".join(map(str, sorted({min(numbers), max(numbers)}))) if numbers else "–"


def _stack_note(report: Report) -> str:
    """Return a note on the stack sizes, which speed, memory and time depend on; empty without stacks."""
    sizes = _stack_sizes(report)
    if not sizes or sizes == {1}:
        return ""
    return (
        f"Tokens per second, memory and time are those of a stack of {_range(sizes)} runs; compare them only between "
        "stacks of the same size on an equally busy machine. FLOPs are those of a forward pass per target token."
    )
