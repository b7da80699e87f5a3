"""The sections on contrasts: declared by the file, between two configurations, of an axis and of two crossed axes."""

from __future__ import annotations

import math

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.order_transfer import OrderTransfer, order_transfer
from headtohead.analysis.study import Analysis
from headtohead.analysis.two_way import Combination, TwoWayResult
from headtohead.analysis.uncertainty import MAX_FACTOR, ContrastUncertainty, Halving, Uncertainty
from headtohead.analysis.wording import contrast_name, end_of, ends, interval_caption
from headtohead.config.labels import text
from headtohead.report.answer import largest_first, verdict_of
from headtohead.report.content import Report
from headtohead.report.section import (
    Section,
    contrast_table,
    judged_cells,
    replaced,
    score,
    table,
)
from headtohead.storage.metrics import (
    higher_is_better,
    readable,
    show,
    stored,
    unpadded,
)
from headtohead_judge.paired_tests import Interval

MAX_INTERACTIONS = 12
"""Maximum number of interactions in the table."""

DARKEST = 62
"""Background colour of the best cell in percent; its number remains legible."""

DECLARED = "Differences that the experiment file declares, paired by seed. {intervals}"
CHANGES = (
    "What each single change does to {metric}, paired by seed. All other settings are those of {start} or {end}, two "
    "families. {intervals} If the two differences of a change differ, the change may depend on others; this is not "
    "tested."
)
FACTORS = (
    "The difference in {metric} between two values of an axis, averaged within each seed over the settings of the "
    "other axes. Last column: the number of these settings, and the range of their differences. {intervals}{replaced}"
)
WITHOUT_PADDING = " Intervals without padding contain the training seeds alone."
MEANS = (
    "Means with 95 % intervals over seeds, averaged over the other axes. Parallel lines mean that the effect of an "
    "axis does not depend on the other axis."
)
INTERACTIONS = (
    "Whether the effect of an axis depends on another axis, paired by seed. “A: a2 − a1, by B: b2 − b1” is the "
    "difference a2 − a1 with b2, minus the difference a2 − a1 with b1. {intervals}"
)
OMITTED = "{text} The {number} interactions with the largest p are omitted."
EVERY_PAIR = (
    "{metric} of every {row} with every {column}: mean and 95 % interval over seeds, rows and columns by the median of "
    "their cells. Darker is better."
)
RANKING = (
    "The best mean is selected by these scores, so it is likely too high. Each combination is compared with all "
    "others, with simultaneous 95 % intervals. Worse: an interval shows that another combination is better. The last "
    "column is how much worse than the best the combination can be; equivalent: less than the margin."
)
TRANSFER = (
    "Pairs of variants with the same order of mean {metric} at two successive sizes (decision accuracy; Magnusson et "
    "al. 2025), and with the same verdict, with the range in 95 % of the resamples of seeds. With few seeds this range "
    "is narrower than a confidence interval. A random order keeps half of the pairs. Verdicts on pairs are paired "
    "t-tests at 5 %, not adjusted; not detected at both sizes is the same verdict. Pairs with different data or equal "
    "means are left out."
)
SOURCES = (
    "Standard deviation of {metric} by source{among}. Intervals of means over seeds hold for this draw of the data and "
    "this test set."
)
SAME_GROUP = ", of the variants with the data and size of the baseline"
PARTS = (
    "Standard error of each difference by source, and its fraction of the squared width of the interval. Last column: "
    "what would halve the interval, if the variances stay as they are.{reason}"
)
SEEDS_ONLY = " Test examples are no source: {reason}."
CORRELATION = "Intra-class correlation of seeds: {value}.{removed}"
REMOVED = (
    " By this estimate, averaged over variants, pairing removes this fraction of the variance."
)


def declared_section(report: Report) -> Section | None:
    """Return the contrasts that the experiment file declares, or None without any.

    Raises:
        HeadToHeadError: As `Report`.
    """
    contrasts = report.analysis.families.declared.contrasts
    if not contrasts:
        return None
    names = []
    expectations = []
    has_expected = any(contrast.expect for contrast in contrasts)
    for contrast in contrasts:
        names.append({"contrast": f"{contrast.name}\n{_scores_of(contrast)}"})
        expectations.append(_expected(report.analysis, contrast) if has_expected else {})
    return Section(
        "Declared contrasts",
        DECLARED.format(intervals=interval_caption(report.analysis, contrasts)),
        frame=contrast_table(contrasts, names, expectations),
    )


def _scores_of(contrast: ContrastResult) -> str:
    """Return the metric of both sides, with the lengths of the source that count if they are limited.

    A metric that both sides have is not repeated before the lengths of the second side.
    """
    first = contrast.contrast.sides[0]
    texts: list[str] = []
    kinds = dict.fromkeys((side.metric, side.lengths) for side in contrast.contrast.sides)
    for metric, lengths in kinds:
        is_repeated = bool(texts) and metric == first.metric and first.lengths
        parts = []
        if not is_repeated or not lengths:
            parts.append(readable(metric))
        if lengths:
            parts.append(f"{lengths[0]} to {lengths[1]} tokens")
        texts.append(", ".join(parts))
    return " against ".join(texts)


def _expected(analysis: Analysis, contrast: ContrastResult) -> dict[str, str]:
    """Return the expected result with its source, and whether the difference agrees with it."""
    agreement, expect = contrast.agreement, contrast.expect
    if expect is None or agreement is None:
        return {"expected": "", "as expected": ""}
    agreed = f"{agreement}{analysis.after_steps(contrast)}"
    return {"expected": f"{contrast.expected}\n{expect.source}", "as expected": agreed}


def change_section(report: Report) -> Section | None:
    """Return the single changes between two configurations, added and taken, or None without such a design.

    The first row is the difference of the two configurations. The changes follow in the order of the axes, each as it
    is added to the first configuration and as it is taken from the second.

    Raises:
        HeadToHeadError: As `Report`.
    """
    analysis = report.analysis
    changes = analysis.families.added.contrasts + analysis.families.taken.contrasts
    if not changes:
        return None
    # A design of single changes has one contrast of two variants: its two configurations.
    total = analysis.families.variants.contrasts[0]
    names = [{"change": "all changes", "in": "–"}]
    axes = list(report.record.axes)
    ordered = sorted(changes, key=lambda change: axes.index(str(change.axis)))
    for change in ordered:
        values = f"{change.against_value} → {change.value}"
        names.append({"change": f"{change.axis}\n{values}", "in": end_of(analysis, change)})
    start = analysis.frames.by_slug[total.against].title
    end = analysis.frames.by_slug[total.variant].title
    return Section(
        "Change by change",
        CHANGES.format(
            metric=report.metric,
            start=start,
            end=end,
            intervals=interval_caption(analysis, [total, *changes]),
        ),
        frame=contrast_table([total, *ordered], names),
    )


def factor_section(report: Report) -> Section | None:
    """Return the factor contrasts, largest first, and the interactions; None without factor contrasts.

    If the scores without padding were evaluated, each row also has the difference of these.

    Raises:
        HeadToHeadError: As `Report`.
    """
    analysis = report.analysis
    family = analysis.families.factors
    if not family.contrasts:
        return None
    ordered = largest_first(family.contrasts)
    without_padding = _without_padding(report)
    names = []
    notes = []
    for contrast in ordered:
        value = contrast.value
        if contrast.within:
            value += f" ({contrast.within})"
        names.append(
            {"axis": str(contrast.axis), "value": value, "against": contrast.against_value}
        )
        note = {}
        if without_padding:
            other = without_padding[contrast.name]
            note["without padding"] = judged_cells(other)["difference"]
        note["settings"] = str(len(contrast.contrast.settings))
        if contrast.spread:
            low, high = contrast.spread
            spread = ends(low, high, analysis.metric, signed=True, like=contrast.scale)
            note["settings"] += f"\n{spread}"
        notes.append(note)
    description = FACTORS.format(
        metric=report.metric,
        intervals=interval_caption(analysis, family.contrasts),
        replaced=replaced(ordered),
    )
    if without_padding:
        description += WITHOUT_PADDING
    return Section(
        "Axis by axis",
        description,
        frame=contrast_table(ordered, names, notes),
        figure="interactions",
        caption=MEANS,
        parts=_interactions(analysis),
    )


def _without_padding(report: Report) -> dict[str, ContrastResult]:
    """Return the factor contrasts of the scores without padding by name; empty if they were not evaluated."""
    if not report.has_unpadded:
        return {}
    analysis = report.analysis
    metric = unpadded(stored(analysis.metric))
    other = Analysis(analysis.frames, metric, allow_partial=analysis.allow_partial)
    return {contrast.name: contrast for contrast in other.families.factors.contrasts}


def _interactions(analysis: Analysis) -> list[Section]:
    """Return the section on the interactions with the smallest p; none without interactions."""
    contrasts = analysis.families.interactions.contrasts
    if not contrasts:
        return []

    def p_value(contrast: ContrastResult) -> float:
        return contrast.paired.p if contrast.paired else math.inf

    shown = sorted(contrasts, key=p_value)[:MAX_INTERACTIONS]
    description = INTERACTIONS.format(intervals=interval_caption(analysis, contrasts))
    if len(contrasts) > len(shown):
        description = OMITTED.format(text=description, number=len(contrasts) - len(shown))
    names = []
    settings = []
    for contrast in shown:
        names.append({"interaction": contrast.name})
        settings.append({"settings": str(len(contrast.contrast.settings))})
    return [Section("Interactions", description, frame=contrast_table(shown, names, settings))]


def two_way_section(report: Report) -> Section | None:
    """Return the table of all pairs with the ranking, or None without two such axes.

    A pair without a ranked score has a dash. The background of a cell is darker, the better its mean is.

    Raises:
        HeadToHeadError: As `Report`.
    """
    metric, result = report.analysis.metric, report.analysis.two_way
    if result is None:
        return None
    row_axis, column_axis = result.axes
    cells = []
    shade = []
    for row in result.rows:
        texts = {f"{row_axis} \\ {column_axis}": row}
        darkness = [0]
        for column in result.columns:
            summary = result.cells.get((row, column))
            texts[column] = score(summary, metric) if summary else "–"
            darkness.append(_darkness(result, summary.mean, metric) if summary else 0)
        cells.append(texts)
        shade.append(darkness)
    ranking = []
    for number, combination in enumerate(result.ranking):
        ranking.append(_ranked(combination, metric, is_first=number == 0))
    return Section(
        "Every pair",
        EVERY_PAIR.format(metric=readable(metric), row=row_axis, column=column_axis),
        frame=table(cells),
        shade=shade,
        parts=[Section("Ranking", RANKING, frame=table(ranking))],
    )


def _darkness(result: TwoWayResult, mean: float, metric: str) -> int:
    """Return the background colour of a cell in percent, which increases from the worst to the best mean."""
    means = [summary.mean for summary in result.cells.values()]
    worst, best = min(means), max(means)
    if not higher_is_better(metric):
        worst, best = best, worst
    if best == worst:
        return 0
    return round(DARKEST * (mean - worst) / (best - worst))


def _ranked(combination: Combination, metric: str, *, is_first: bool) -> dict[str, str]:
    """Return a combination with its verdict, and how much worse than the best it can be."""
    deficit = "–"
    if combination.comparison:
        deficit = show(combination.comparison.largest_deficit, metric)
    return {
        "combination": combination.name,
        readable(metric): score(combination.summary, metric),
        "verdict": "best" if is_first else verdict_of(combination),
        "worse by at most": deficit,
    }


def transfer_section(report: Report) -> Section | None:
    """Return how many pairs of variants keep order and verdict from one size to the next, or None without sizes.

    Raises:
        HeadToHeadError: As `Report`.
    """
    rows = [_transfer_row(transfer) for transfer in order_transfer(report.analysis)]
    if not rows:
        return None
    return Section("Order transfer", TRANSFER.format(metric=report.metric), frame=table(rows))


def _transfer_row(transfer: OrderTransfer) -> dict[str, str]:
    """Return the row of two successive sizes: counts of pairs, with the ranges over resampled seeds."""
    same_order = _part(transfer.same_order, transfer.pairs, transfer.order_range)
    same_verdict = _part(transfer.same_verdict, transfer.pairs, transfer.verdict_range)
    return {
        "sizes": f"{text(transfer.small)} → {text(transfer.large)}",
        "variants": str(transfer.variants),
        "pairs with the same order": same_order,
        "pairs with the same verdict": same_verdict,
        "detected at both sizes": str(transfer.detected),
        "opposite verdicts": str(transfer.reversed),
    }


def _part(count: int, pairs: int, interval: Interval) -> str:
    """Return a count of the pairs, and on a second line the range of its fraction."""
    return f"{count} of {pairs}\n{_percent(interval.low)} to {_percent(interval.high)}"


def _percent(fraction: float) -> str:
    """Return a fraction in whole percent; everything below 0.5 %, also 0, is ``< 1 %``."""
    return f"{100 * fraction:.0f} %" if fraction >= 0.005 else "< 1 %"


def uncertainty_section(report: Report) -> Section | None:
    """Return the standard deviation by source, and the sources of each contrast; None with a single seed.

    Raises:
        HeadToHeadError: As `Report`.
    """
    analysis, uncertainty = report.analysis, report.analysis.uncertainty
    if uncertainty is None:
        return None
    parts = []
    if uncertainty.contrasts:
        reason = ""
        if uncertainty.reason:
            reason = SEEDS_ONLY.format(reason=uncertainty.reason)
        rows = [_parts(analysis, contrast) for contrast in uncertainty.contrasts]
        parts.append(Section("Variance by source", PARTS.format(reason=reason), frame=table(rows)))
    among = SAME_GROUP if len(analysis.data_sets) > 1 else ""
    return Section(
        "Sources of uncertainty",
        SOURCES.format(metric=report.metric, among=among),
        frame=table(_deviations(uncertainty, analysis.metric)),
        lines=_correlation(uncertainty),
        parts=parts,
    )


def _deviations(uncertainty: Uncertainty, metric: str) -> list[dict[str, str]]:
    """Return a row for each source whose standard deviation is known, or is known not to be estimable."""
    examples = "sample of the test examples"
    if uncertainty.num_groups:
        examples += f" ({uncertainty.num_groups:,} independent groups)"
    deviations = {
        "true means of the variants": uncertainty.variant_sd,
        "training seed": uncertainty.seed_sd,
        examples: uncertainty.example_sd,
    }
    rows = []
    for source, deviation in deviations.items():
        if deviation is None:
            rows.append({"source": source, "standard deviation": "not estimable"})
        elif not math.isnan(deviation):
            rows.append({"source": source, "standard deviation": show(deviation, metric)})
    return rows


def _correlation(uncertainty: Uncertainty) -> list[str]:
    """Return a line on the intra-class correlation of seeds; none if it has no interval."""
    correlation, interval = uncertainty.correlation
    if math.isnan(interval.low):
        return []
    value = f"{correlation:.2f} (95 % interval {interval.low:.2f} to {interval.high:.2f})"
    removed = REMOVED if correlation > 0 else ""
    return [CORRELATION.format(value=value.replace("-", "−"), removed=removed)]


def _parts(analysis: Analysis, uncertainty: ContrastUncertainty) -> dict[str, str]:
    """Return the standard error of a contrast by source, and what would halve its interval."""
    contrast = uncertainty.contrast
    row = {"contrast": contrast_name(analysis, contrast)}
    for part in uncertainty.parts:
        error = show(part.error, contrast.metric, digits=1)
        row[part.source] = f"{error}\n{_percent(part.fraction)}"
    row["half the interval"] = _halving(uncertainty.halving)
    return row


MORE_SEEDS = "{seeds:,} seeds"
MORE_EXAMPLES = "{factor} times the test examples"
MORE_OF_BOTH = "{factor} times the seeds and the test examples"
NOT_BY_MORE = f"not by {MAX_FACTOR:,} times the seeds and the test examples"


def _halving(halving: Halving) -> str:
    """Return what halves an interval: more seeds, more test examples, or more of both."""
    texts = []
    if halving.seeds is not None:
        texts.append(MORE_SEEDS.format(seeds=halving.seeds))
    if halving.examples is not None:
        texts.append(MORE_EXAMPLES.format(factor=halving.examples))
    if not texts and halving.both is not None:
        texts.append(MORE_OF_BOTH.format(factor=halving.both))
    return " or ".join(texts) or NOT_BY_MORE
