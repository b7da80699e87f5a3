"""The sections on contrasts: declared by the file, between two configurations, of an axis and of two crossed axes."""

from __future__ import annotations

import math
from collections.abc import Iterable

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.order_transfer import order_transfer
from headtohead.analysis.study import Analysis
from headtohead.analysis.uncertainty import ContrastUncertainty
from headtohead.analysis.wording import contrast_name, end_of, ends, leveled
from headtohead.config.labels import text
from headtohead.report.answer import verdict_of
from headtohead.report.content import Report
from headtohead.report.section import (
    Section,
    contrast_table,
    difference,
    replaced,
    score,
    table,
    with_interval,
)
from headtohead.storage.experiment import examples_of
from headtohead.storage.metrics import (
    counted,
    higher_is_better,
    readable,
    show,
    show_p,
    stored,
    unpadded,
)
from headtohead_judge.paired_tests import Interval

MAX_INTERACTIONS = 12
"""Maximum number of interactions in the table."""

DARKEST = 62
"""Background colour of the best cell in percent; its number remains legible."""


def declared_section(report: Report) -> Section | None:
    """Return the contrasts that the experiment file declares, or None without any."""
    contrasts = report.analysis.families.declared.contrasts
    if not contrasts:
        return None
    has_expected = any(found.expect for found in contrasts)
    return Section(
        "Declared contrasts",
        "Differences that the experiment file declares, paired by seed. They are a separate family for Holm's "
        "correction.",
        frame=contrast_table(
            contrasts,
            [{"contrast": f"{contrast.name}\n{_metric(contrast)}"} for contrast in contrasts],
            [
                _expected(report.analysis, contrast) if has_expected else {}
                for contrast in contrasts
            ],
        ),
    )


def _metric(contrast: ContrastResult) -> str:
    """Return the metric of both sides, with the lengths of the source that count if they are limited."""
    both = dict.fromkeys((side.metric, side.lengths) for side in contrast.contrast.sides)
    first, *others = (
        readable(metric) + (f", {lengths[0]} to {lengths[1]} tokens" if lengths else "")
        for metric, lengths in both
    )
    shared = first.rpartition(", ")[0] + ", "
    return " against ".join([first, *(other.removeprefix(shared) for other in others)])


def _expected(analysis: Analysis, contrast: ContrastResult) -> dict[str, str]:
    """Return the expected result with its source, and whether the difference agrees with it."""
    found, expect = contrast.agreement, contrast.expect
    if expect is None or found is None:
        return {"expected": "", "as expected": ""}
    interval = f"\n{leveled(found.interval, contrast)}" if found.interval else ""
    return {
        "expected": f"{contrast.expected}\n{expect.source}",
        "as expected": f"{found}{analysis.after_steps(contrast)}{interval}",
    }


def change_section(report: Report) -> Section | None:
    """Return the single changes between two configurations, added and taken, or None without such a design."""
    families, by_slug = report.analysis.families, report.analysis.frames.by_slug
    total = families.variants.contrasts[:1]
    order = [*report.record.axes]
    tested = sorted(
        families.added.contrasts + families.taken.contrasts,
        key=lambda found: order.index(str(found.axis)),
    )
    if not tested:
        return None
    start, end = by_slug[total[0].against], by_slug[total[0].variant]
    names = [
        {"change": f"{axis}\n{text(start.axes[axis])} → {text(end.axes[axis])}", "in": context}
        for axis, context in (
            (str(contrast.axis), end_of(report.analysis, contrast)) for contrast in tested
        )
    ]
    return Section(
        "Change by change",
        f"What each single change does to {report.metric}, paired by seed. All other settings are those of "
        f"{start.title} or {end.title}, two families for Holm's correction. If the two differences of a change differ, "
        "the change may depend on others; this is not tested.",
        frame=contrast_table([*total, *tested], [{"change": "all changes", "in": "–"}, *names]),
    )


def factor_section(report: Report) -> Section | None:
    """Return the factor contrasts, largest first, and the interactions; None without factor contrasts."""
    analysis, metric, family = (
        report.analysis,
        report.analysis.metric,
        report.analysis.families.factors,
    )
    ordered = sorted(
        family.contrasts, key=lambda found: -abs(found.paired.mean) if found.paired else 0.0
    )
    if not ordered:
        return None
    without: dict[str, ContrastResult] = {}
    if report.has_unpadded:
        other_metric = Analysis(
            analysis.frames, unpadded(stored(metric)), allow_partial=analysis.allow_partial
        )
        without = {contrast.name: contrast for contrast in other_metric.families.factors.contrasts}
    names, more = [], []
    for contrast in ordered:
        value = f"{contrast.value} ({contrast.within})" if contrast.within else contrast.value
        names.append(
            {"axis": str(contrast.axis), "value": value, "against": contrast.against_value}
        )
        other = without.get(contrast.name)
        padding = (
            {"without padding": difference(other.paired if other else None, stored(metric))}
            if without
            else {}
        )
        spread = (
            f"\n{ends(*contrast.spread, metric, signed=True, like=contrast.scale)}"
            if contrast.spread
            else ""
        )
        more.append({**padding, "settings": f"{len(contrast.contrast.settings)}{spread}"})
    return Section(
        "Axis by axis",
        f"The difference in {report.metric} between two values of an axis, averaged within each seed over the settings "
        "of the other axes. Last column: the number of these settings, and the range of their differences. Holm's "
        f"correction over {counted(family.tested, 'contrast')}.{replaced(ordered)}",
        frame=contrast_table(ordered, names, more),
        figure="interactions",
        caption="Means with 95 % intervals over seeds, averaged over the other axes. Parallel lines mean that the "
        "effect of an axis does not depend on the other axis.",
        parts=_interactions(analysis.families.interactions.contrasts),
    )


def _interactions(contrasts: Iterable[ContrastResult]) -> list[Section]:
    ordered = sorted(contrasts, key=lambda found: found.paired.p if found.paired else math.inf)
    shown, omitted = ordered[:MAX_INTERACTIONS], len(ordered[MAX_INTERACTIONS:])
    note = f" The {omitted} interactions with the largest p are omitted." * bool(omitted)
    section = Section(
        "Interactions",
        "Whether the effect of an axis depends on another axis, paired by seed. “A: a2 − a1, by B: b2 − b1” is the "
        f"difference a2 − a1 with b2, minus the difference a2 − a1 with b1.{note}",
        frame=contrast_table(
            shown,
            [{"interaction": contrast.name} for contrast in shown],
            [{"settings": str(len(contrast.contrast.settings))} for contrast in shown],
        ),
    )
    return [section] if shown else []


def two_way_section(report: Report) -> Section | None:
    """Return the table of all pairs with the ranking, or None without two such axes."""
    metric, result = report.analysis.metric, report.analysis.two_way
    if result is None:
        return None
    rows, columns = result.axes
    means = [summary.mean for summary in result.cells.values()]
    worst, best = (min(means), max(means)) if higher_is_better(metric) else (max(means), min(means))
    cells, shade, ranking = list[dict[str, str]](), list[list[int]](), list[dict[str, str]]()
    for row in result.rows:
        texts, dark = {f"{rows} \\ {columns}": row}, [0]
        for column in result.columns:
            summary = result.cells.get((row, column))
            texts[column] = score(summary, metric) if summary else "–"
            dark.append(
                round(DARKEST * (summary.mean - worst) / (best - worst))
                if summary and best != worst
                else 0
            )
        cells.append(texts)
        shade.append(dark)
    for combination in result.ranking:
        comparison = None if combination.is_best else combination.comparison
        cell = {
            "combination": combination.name,
            readable(metric): score(combination.summary, metric),
            "verdict": verdict_of(combination) if ranking else "best",
            "worse: p": show_p(comparison.worse_p if comparison else None),
        }
        equivalence = {"equivalent: p": show_p(comparison.equivalence_p if comparison else None)}
        ranking.append(cell | (equivalence if result.margin else {}))
    parts = [
        Section(
            "Ranking",
            "The best mean is selected by these scores, so it is likely too high. Worse: one-sided paired t-tests "
            "against all others, Bonferroni. Equivalent: one-sided paired t-tests that no other combination is better "
            "by the margin, Holm.",
            frame=table(ranking),
        )
    ]
    return Section(
        "Every pair",
        f"{readable(metric)} of every {rows} with every {columns}: mean and 95 % interval over seeds, rows and "
        "columns by the median of their cells. Darker is better.",
        frame=table(cells),
        shade=shade,
        parts=parts,
    )


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %" if fraction >= 0.005 else "< 1 %"


def _part(count: int, pairs: int, interval: Interval) -> str:
    return f"{count} of {pairs}\n{_percent(interval.low)} to {_percent(interval.high)}"


def transfer_section(report: Report) -> Section | None:
    """Return how many pairs of variants keep order and verdict from one size to the next, or None without sizes."""
    rows = [
        {
            "sizes": f"{text(found.small)} → {text(found.large)}",
            "variants": str(found.variants),
            "pairs with the same order": _part(found.same_order, found.pairs, found.order_range),
            "pairs with the same verdict": _part(
                found.same_verdict, found.pairs, found.verdict_range
            ),
            "detected at both sizes": str(found.detected),
            "opposite verdicts": str(found.reversed),
        }
        for found in order_transfer(report.analysis)
    ]
    return (
        Section(
            "Order transfer",
            f"Pairs of variants with the same order of mean {report.metric} at two successive sizes (decision "
            "accuracy; Magnusson et al. 2025), and with the same verdict, with the range in 95 % of the resamples of "
            "seeds. With few seeds this range is narrower than a confidence interval. A random order keeps half of the "
            "pairs. Verdicts on pairs are paired t-tests at 5 %, not adjusted; undetected at both sizes is the same "
            "verdict. Pairs with different data or equal means are left out.",
            frame=table(rows),
        )
        if rows
        else None
    )


def uncertainty_section(report: Report) -> Section | None:
    """Return the standard deviation by source, and the contrasts with other intervals; None with a single seed."""
    analysis, metric, found = report.analysis, report.analysis.metric, report.analysis.uncertainty
    if found is None:
        return None
    count = f" ({found.num_sentences:,})" if found.num_sentences else ""
    sds = {
        "true means of the variants": found.variant_sd,
        "training seed": found.seed_sd,
        f"sample of the test sentences{count}": found.sentence_sd,
    }
    scope = "Intervals over seeds hold for this draw of the data and this test set."
    among = ", of the variants with the data and size of the baseline" * (
        len(analysis.data_sets) > 1
    )
    lines, (correlation, interval) = [], found.correlation
    if found.reason and examples_of(report.record.data) == "pairs":
        lines.append(f"Test sentences are not analysed: {found.reason}.")
    if not math.isnan(interval.low):
        icc = (
            f"{correlation:.2f} (95 % interval {interval.low:.2f} to {interval.high:.2f})".replace(
                "-", "−"
            )
        )
        removed = " By this estimate, averaged over variants, pairing removes this fraction of the variance."
        lines.append(f"Intra-class correlation of seeds: {icc}.{removed * (correlation > 0)}")

    def with_sentences(row: ContrastUncertainty) -> str:
        interval, paired = row.with_sentences, row.contrast.paired
        if interval is None or paired is None:
            return "–"
        return with_interval(paired.mean, interval.low, interval.high, metric, signed=True)

    rows = [
        {
            "contrast": contrast_name(analysis, row.contrast),
            "over seeds": difference(row.contrast.paired, metric),
            **({} if found.reason else {"over seeds and test sentences": with_sentences(row)}),
        }
        for row in found.contrasts
    ]
    return Section(
        "Sources of uncertainty",
        f"Standard deviation of {report.metric} by source{among}. {scope}",
        frame=table(
            {
                "source": source,
                "standard deviation": "not estimable" if sd is None else show(sd, metric),
            }
            for source, sd in sds.items()
            if sd is None or not math.isnan(sd)
        ),
        lines=lines,
        parts=[Section("Contrasts with 95 % intervals", frame=table(rows))]
        if rows and len(rows[0]) > 2
        else [],
    )
