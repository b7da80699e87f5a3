"""The sections on contrasts: a table per family, expected results, settings, all pairs of two axes, and variances."""

from __future__ import annotations

import itertools
import math

from headtohead.analysis.contrasts import FAMILIES as FAMILY_NAMES
from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.study import Analysis
from headtohead.analysis.two_way import Combination, TwoWayResult
from headtohead.analysis.uncertainty import ContrastUncertainty, Halving, Uncertainty
from headtohead.analysis.wording import SEEDS_ONLY, ends, interval_caption
from headtohead.config.labels import listed
from headtohead.report.answer import largest_first, verdict_of
from headtohead.report.content import Report
from headtohead.report.differences import shown_contrasts
from headtohead.report.section import (
    Section,
    contrast_table,
    judged_cells,
    percent,
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

MAX_INTERACTIONS = 12
"""Maximum number of interactions in the table."""

DARKEST = 62
"""Background colour of the best cell in percent; its number remains legible."""

WITHOUT_PADDING = " Intervals without padding contain the training seeds alone."
MEANS = (
    "Means with 95 % intervals over seeds, averaged over all other settings. Parallel lines mean that the effect of "
    "one change does not depend on the other."
)
FAMILIES = {
    "declared": ("Declared contrasts", "Differences that the experiment file declares."),
    "added": ("Added changes", "What each single change does when it is added."),
    "taken": ("Taken changes", "What each single change does when it is the last to be made."),
    "factor": (
        "One change at a time",
        "The difference that a change makes, averaged within each seed over all pairs of variants that differ only in "
        "it.",
    ),
    "variant": (
        "Each variant against the baseline",
        "Every variant minus the baseline.",
    ),
    "interaction": (
        "Interactions",
        "Whether the effect of a change depends on another one: the effect of both together, minus the sum of the "
        "effects of each alone.",
    ),
}
"""Title and meaning of the table of each family of contrasts, in the order of the tables."""

AVERAGES = (
    " A row here is a single setting and rests on fewer runs than the averages above: its interval is wider, so a "
    "difference that is shown above can remain open here."
)
FAMILY = "{meaning} Differences in {metric}, paired by seed. {intervals}{replaced}"
SHOWN_ABOVE = " {others} of this family {are} above."
OMITTED = "{text} The {number} interactions with the largest p are omitted."
SETTINGS = "The number of settings of each average, and the range of their differences."
EXPECTED = "What the experiment file expects of a contrast, with its source, and whether the result agrees."
EVERY_PAIR = (
    "{metric} of every {row} with every {column}: mean and 95 % interval over seeds, rows and columns by the median of "
    "their cells. Darker is better."
)
RANKING = (
    "The best mean is selected by these scores, so it is likely too high. Each combination is compared with all "
    "others, with simultaneous 95 % intervals. Worse: an interval shows that another combination is better. The last "
    "column is how much worse than the best the combination can be; equivalent: less than the margin."
)
SOURCES = (
    "Standard deviation of {metric} by source{among}. Intervals of means over seeds hold for this draw of the data and "
    "these examples."
)
SAME_GROUP = ", of the variants with the data and size of the baseline"
PARTS = (
    "Standard error of each difference by source, and its fraction of the squared width of the interval. Last column: "
    "what would halve the interval, if the variances stay as they are.{reason}"
)
CORRELATION = "Intra-class correlation of seeds: {value}.{removed}"
REMOVED = (
    " By this estimate, averaged over variants, pairing removes this fraction of the variance."
)


def family_section(report: Report, family: str) -> Section | None:
    """Return the table of the contrasts of a family whose difference is not shown above it; None if all are.

    Above it are the figure below the answer and the tables of earlier families. The order of the rows depends on the
    family. Factor contrasts: by metric, then by absolute difference, the largest first. Variants: as in all tables.
    Interactions: by ascending p, at most `MAX_INTERACTIONS`; the text says how many were cut. Others: as in the design.

    Args:
        report: The report.
        family: A key of `FAMILIES`.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
        KeyError: If there is no such family.
    """
    analysis = report.analysis
    title, meaning = FAMILIES[family]
    contrasts = _unshown(analysis, family)
    if not contrasts:
        return None
    omitted = 0
    others = len(_contrasts_of(analysis, family)) - len(contrasts)
    if others:
        meaning += SHOWN_ABOVE.format(others=others, are="is" if others == 1 else "are")
    if family == "factor":
        contrasts = largest_first(analysis, contrasts)
    elif family == "variant":
        contrasts.sort(key=lambda contrast: analysis.order.index(contrast.variant))
        if any(contrast.spread for contrast in analysis.families.factors.contrasts):
            meaning += AVERAGES
    elif family == "interaction":
        omitted = max(0, len(contrasts) - MAX_INTERACTIONS)
        contrasts = sorted(contrasts, key=_p_value)[:MAX_INTERACTIONS]
    metrics = dict.fromkeys(readable(contrast.metric) for contrast in contrasts)
    text = FAMILY.format(
        meaning=meaning,
        metric=listed(list(metrics)),
        intervals=interval_caption(analysis, contrasts),
        replaced=replaced(contrasts),
    )
    if omitted:
        text = OMITTED.format(text=text, number=omitted)
    names = [{"contrast": _name(contrast)} for contrast in contrasts]
    return Section(title, text, frame=contrast_table(contrasts, names))


def _unshown(analysis: Analysis, family: str) -> list[ContrastResult]:
    """Return the contrasts of a family, in their order, that are neither in the figure nor in an earlier table.

    A contrast with a test counts as printed if one of the same difference is. One without a test is printed in the
    figure or in the table of its family.
    """
    shown = shown_contrasts(analysis)
    earlier = list(shown)
    for earlier_family in itertools.takewhile(lambda name: name != family, FAMILIES):
        earlier += _contrasts_of(analysis, earlier_family)
    keys = {contrast.trained.key for contrast in earlier if contrast.paired is not None}
    unshown = []
    for contrast in _contrasts_of(analysis, family):
        if contrast.paired is None:
            is_printed = contrast in shown
        else:
            is_printed = contrast.trained.key in keys
        if not is_printed:
            unshown.append(contrast)
    return unshown


def _contrasts_of(analysis: Analysis, family: str) -> tuple[ContrastResult, ...]:
    """Return the contrasts of a family by its name."""
    return analysis.families[FAMILY_NAMES.index(family)].contrasts


def _p_value(contrast: ContrastResult) -> float:
    """Return the p-value of a contrast, infinity without a test."""
    return contrast.paired.p if contrast.paired else math.inf


def _name(contrast: ContrastResult) -> str:
    """Return the name of a contrast, of a declared one with the metrics of both sides."""
    name = contrast.name
    if contrast.family == "declared":
        name += f"\n{_scores_of(contrast)}"
    return name


def expected_section(report: Report) -> Section | None:
    """Return a row per declared contrast with an expected result, and whether it agrees; None without any.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    rows = []
    for contrast in report.analysis.families.declared.contrasts:
        if contrast.expect is not None:
            row = {"contrast": _name(contrast)}
            rows.append(row | _expected(report.analysis, contrast))
    if not rows:
        return None
    return Section("Expected results", EXPECTED, hint="of the experiment file", frame=table(rows))


def _scores_of(contrast: ContrastResult) -> str:
    """Return the metrics and source lengths of the sides of a contrast, each once: ``BLEU, 1 to 5 tokens``.

    All lengths have no text. The second of two ranges of a metric is without the metric: ``BLEU, 1 to 5 tokens against
    6 to 10 tokens``.
    """
    (first_metric, first_lengths), *others = contrast.contrast.score_kinds
    texts = [_score_text(first_metric, first_lengths)]
    for metric, lengths in others:
        if metric == first_metric and first_lengths and lengths:
            texts.append(LENGTHS.format(first=lengths[0], last=lengths[1]))
        else:
            texts.append(_score_text(metric, lengths))
    return " against ".join(texts)


LENGTHS = "{first} to {last} tokens"


def _score_text(metric: str, lengths: tuple[int, int] | None) -> str:
    """Return the readable name of a metric, followed by the source lengths that count if they are limited."""
    if lengths is None:
        return readable(metric)
    return f"{readable(metric)}, {LENGTHS.format(first=lengths[0], last=lengths[1])}"


def _expected(analysis: Analysis, contrast: ContrastResult) -> dict[str, str]:
    """Return the expected result with its source, and whether the difference agrees with it."""
    agreement, expect = contrast.agreement, contrast.expect
    if expect is None or agreement is None:
        return {"expected": "", "as expected": ""}
    agreed = f"{agreement}{analysis.after_steps(contrast)}"
    return {"expected": f"{contrast.expected}\n{expect.source}", "as expected": agreed}


def factor_section(report: Report) -> Section | None:
    """Return the settings of the tested factor contrasts, largest absolute difference first, and the figure of means.

    None without a tested factor contrast. If scores without padding were evaluated and can differ, each row also has
    the difference of these.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    analysis = report.analysis
    factors = analysis.families.factors.contrasts
    contrasts = [contrast for contrast in factors if contrast.paired is not None]
    if not contrasts:
        return None
    without_padding = _without_padding(report)
    rows = []
    for contrast in largest_first(analysis, contrasts):
        row = {"contrast": contrast.name}
        row["settings"] = str(len(contrast.contrast.settings))
        if contrast.spread:
            low, high = contrast.spread
            spread = ends(low, high, analysis.metric, signed=True, like=contrast.scale)
            row["settings"] += f"\n{spread}"
        if without_padding:
            unpadded_contrast = without_padding[contrast.record.settings]
            row["without padding"] = judged_cells(unpadded_contrast)["difference"]
        rows.append(row)
    text = SETTINGS
    if without_padding:
        text += WITHOUT_PADDING
    return Section(
        "Effects by setting",
        text,
        hint="the means behind each average",
        frame=table(rows),
        figure="interactions",
        caption=MEANS,
    )


def _without_padding(report: Report) -> dict[object, ContrastResult]:
    """Return the factor contrasts of the scores without padding by their settings; empty if they were not evaluated."""
    if not report.has_unpadded:
        return {}
    analysis = report.analysis
    metric = unpadded(stored(analysis.metric))
    other = Analysis(analysis.frames, metric, allow_partial=analysis.allow_partial)
    return {contrast.record.settings: contrast for contrast in other.families.factors.contrasts}


def two_way_section(report: Report) -> Section | None:
    """Return the table of all pairs with the ranking, or None without two such axes.

    A pair without a ranked score has a dash. The background of a cell is darker, the better its mean is.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    metric, result = report.analysis.metric, report.analysis.two_way
    if result is None:
        return None
    row_name, column_name = (report.record.axis_name(axis) for axis in result.axes)
    cells = []
    shade = []
    for row in result.rows:
        texts = {f"{row_name} \\ {column_name}": row}
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
        EVERY_PAIR.format(metric=readable(metric), row=row_name, column=column_name),
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
    """Return the cells of a combination: score, verdict, and how much worse than the best it can be.

    The verdict of the first combination is *best*. The last cell is a dash without a comparison.
    """
    deficit = "–"
    if combination.comparison:
        deficit = show(combination.comparison.largest_deficit, metric)
    return {
        "combination": combination.name,
        readable(metric): score(combination.summary, metric),
        "verdict": "best" if is_first else verdict_of(combination),
        "worse by at most": deficit,
    }


def uncertainty_section(report: Report) -> Section | None:
    """Return the standard deviation by source, and the sources of each contrast.

    None with fewer than two seeds that all compared variants share. The second table is left out without a contrast
    with an error above 0.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
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
        hint="what the width of an interval comes from",
        frame=table(_deviations(uncertainty, analysis.metric)),
        lines=_correlation(uncertainty),
        parts=parts,
    )


def _deviations(uncertainty: Uncertainty, metric: str) -> list[dict[str, str]]:
    """Return a row for each source of variance: its standard deviation, or that it is not estimable (None).

    A source whose standard deviation is NaN has no row.
    """
    examples = "sample of the examples"
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
    row = {"contrast": contrast.name}
    for part in uncertainty.parts:
        error = show(part.error, contrast.metric, digits=1)
        row[part.source] = f"{error}\n{percent(part.fraction)}"
    row["half the interval"] = _halving(uncertainty.halving)
    return row


MORE_SEEDS = "{seeds:,} seeds"
MORE_EXAMPLES = "{factor} times the examples"
MORE_OF_BOTH = "{factor} times the seeds and the examples"
NOT_BY_MORE = "not reached by more seeds and examples: the tuned values limit it"


def _halving(halving: Halving) -> str:
    """Return what halves an interval: more seeds or more examples; if neither does alone, more of both."""
    texts = []
    if halving.seeds is not None:
        texts.append(MORE_SEEDS.format(seeds=halving.seeds))
    if halving.examples is not None:
        texts.append(MORE_EXAMPLES.format(factor=halving.examples))
    if not texts and halving.both is not None:
        texts.append(MORE_OF_BOTH.format(factor=halving.both))
    return " or ".join(texts) or NOT_BY_MORE
