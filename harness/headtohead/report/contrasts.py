"""The sections on contrasts: declared by the file, between two configurations, of an axis and of two crossed axes."""

from __future__ import annotations

import math

from headtohead.analysis.contrasts import Contrast
from headtohead.analysis.two_way import Combination, TwoWayResult
from headtohead.config.labels import text
from headtohead.report.answer import verdict_of
from headtohead.report.content import Report
from headtohead.report.section import (
    Section,
    contrast_name,
    contrast_table,
    difference,
    ends,
    leveled,
    score,
    table,
    with_interval,
)
from headtohead.statistics.paired_tests import Summary
from headtohead.statistics.variance import CrossedEstimate, MeanEstimate
from headtohead.storage.metrics import counted, higher_is_better, readable, show, show_p, unpadded

MOST_INTERACTIONS = 12
"""Maximum number of interactions in the table."""

DARKEST = 62
"""Background colour of the best cell in percent; its number remains legible."""


def declared_section(report: Report) -> Section | None:
    """Return the contrasts that the experiment file declares, or None without any."""
    contrasts = report.analysis.declared.contrasts
    if not contrasts:
        return None
    names = [{"contrast": contrast.name, "metric": _metric(contrast)} for contrast in contrasts]
    expected = [_expected(contrast) if any(found.expect for found in contrasts) else {} for contrast in contrasts]
    return Section(
        "Declared contrasts",
        "Differences that the experiment file declares, paired by seed. They are a separate family for Holm's "
        "correction.",
        frame=contrast_table(contrasts, names, expected),
    )


def _metric(contrast: Contrast) -> str:
    """Return the metric of both sides, with the lengths of the source that count if they are limited."""
    declared = contrast.declared
    if declared is None:
        return readable(contrast.metric)
    left = (contrast.metric, declared.lengths)
    right = (declared.against_metric or contrast.metric, declared.against_lengths or declared.lengths)
    sides = [
        readable(metric) + (f", {lengths[0]} to {lengths[1]} tokens" if lengths else "")
        for metric, lengths in dict.fromkeys((left, right))
    ]
    return " against ".join(sides)


def _expected(contrast: Contrast) -> dict[str, str]:
    """Return the expected result with its source, and whether the difference agrees with it."""
    found, expect = contrast.agreement, contrast.expect
    if expect is None or found is None:
        return {"expected": "", "as expected": ""}
    lines = [str(found.verdict)]
    if interval := found.interval:
        lines.append(leveled(interval, contrast.metric))
        if expect.published is not None and math.isfinite(interval.low):
            inside = interval.low <= expect.published <= interval.high
            lines.append(f"{'includes' if inside else 'excludes'} the published difference")
    return {"expected": f"{contrast.expected}\n{expect.source}", "as expected": "\n".join(lines)}


def change_section(report: Report) -> Section | None:
    """Return the single changes between two configurations, added and taken, or None without such a design."""
    analysis, by_slug = report.analysis, report.analysis.frames.by_slug
    tested = [*analysis.added.contrasts, *analysis.taken.contrasts]
    if not tested:
        return None
    total = analysis.variants.contrasts[0]
    start, end = by_slug[total.right], by_slug[total.left]
    columns = {"added": f"added to {start.title}", "taken": f"taken from {end.title}"}
    rows = {
        name: {"change": f"{name}\n{text(start.axes[name])} → {text(end.axes[name])}"} for name in report.record.axes
    }
    changes = {(contrast.axis, contrast.kind): contrast for contrast in tested}
    for name, row in rows.items():
        for kind, heading in columns.items():
            contrast = changes.get((name, kind))
            row[heading] = difference(contrast.paired, analysis.metric) if contrast else "–"
            row[f"{heading}: verdict"] = contrast.verdict_name if contrast else "excluded"
    whole = dict.fromkeys(next(iter(rows.values())), "–") | {
        "change": "all changes",
        columns["added"]: difference(total.paired, analysis.metric),
        f"{columns['added']}: verdict": total.verdict_name,
    }
    return Section(
        "Change by change",
        f"The difference in {report.metric} from each single change, paired by seed. Added: {start.title} with the "
        f"change minus {start.title}. Taken: {end.title} minus {end.title} without the change. Each column is a family "
        "of its own for Holm's correction. A change with an effect in only one column depends on other changes.",
        frame=table([*rows.values(), whole]),
        parts=[Section("Tests", frame=contrast_table(tested, ({"contrast": contrast.name} for contrast in tested)))],
    )


def factor_section(report: Report) -> Section | None:
    """Return the factor contrasts, largest first, and the interactions; None without factor contrasts."""
    analysis, metric = report.analysis, report.analysis.metric
    ordered = sorted(analysis.factors.contrasts, key=lambda found: -abs(found.paired.mean) if found.paired else 0.0)
    if not ordered:
        return None
    without: dict[str, Contrast] = {}
    if report.has_unpadded:
        found = analysis.in_metric(unpadded(metric)).factors.contrasts
        without = {contrast.name: contrast for contrast in found}
    names, more = [], []
    for contrast in ordered:
        value = f"{contrast.left} ({contrast.within})" if contrast.within else contrast.left
        names.append({"axis": str(contrast.axis), "value": value, "against": contrast.right})
        other = without.get(contrast.name)
        padding = {"without padding": difference(other.paired if other else None, metric)} if without else {}
        spread = f"\n{ends(*contrast.spread, metric, signed=True)}" if contrast.spread else ""
        more.append({**padding, "settings": f"{len(contrast.pairs)}{spread}"})
    return Section(
        "Axis by axis",
        f"Two values of an axis: the difference in {report.metric}, averaged within each seed over the settings of the "
        f"other axes; below their number, the range over these settings. Holm's correction over "
        f"{counted(analysis.factors.tested, 'contrast')}.",
        frame=contrast_table(ordered, names, more),
        figure="interactions",
        caption="Means with 95 % intervals over the settings of the other axes that all points of a panel share. "
        "Parallel lines mean that the effect of an axis does not depend on the other axis.",
        parts=_interactions(report),
    )


def _interactions(report: Report) -> list[Section]:
    contrasts = report.analysis.interactions.contrasts
    ordered = sorted(contrasts, key=lambda found: found.paired.p if found.paired else math.inf)
    shown, omitted = ordered[:MOST_INTERACTIONS], len(ordered[MOST_INTERACTIONS:])
    more = [{"settings": str(len(contrast.pairs) // 2)} for contrast in shown]
    note = f" The {omitted} interactions with the largest p are omitted." * bool(omitted)
    section = Section(
        "Interactions",
        "Whether the effect of an axis depends on another axis: the difference between two values at one value of "
        f"the other axis, minus that at the other value, paired by seed.{note}",
        frame=contrast_table(shown, ({"interaction": contrast.name} for contrast in shown), more),
    )
    return [section] if shown else []


def two_way_section(report: Report) -> Section | None:
    """Return the table of all pairs with the ranking and the fractions of variance, or None without two such axes."""
    analysis = report.analysis
    result = analysis.two_way
    if result is None:
        return None
    metric, (rows, columns) = analysis.metric, result.axes
    means = [summary.mean for summary in result.cells.values()]
    low, high = min(means), max(means)

    def shade(row: str, column: str) -> int:
        summary = result.cells.get((row, column))
        if summary is None or high == low:
            return 0
        fraction = (summary.mean - low) / (high - low)
        return round(DARKEST * (fraction if higher_is_better(metric) else 1 - fraction))

    found = result.shares
    shares = found and {columns: found.columns, rows: found.rows, "interaction": found.interaction, "seed": found.seeds}
    parts = [{"source": name, "fraction of the variance": _percent(part)} for name, part in (shares or {}).items()]
    return Section(
        "Every pair",
        f"{readable(metric)} of every {rows} with every {columns}: mean and half of the 95 % interval over seeds, rows "
        "and columns by the median of their cells. Darker is better.",
        frame=table(
            {f"{rows} \\ {columns}": row}
            | {column: _cell(result.cells.get((row, column)), metric) for column in result.columns}
            for row in result.rows
        ),
        shade=[[0, *(shade(row, column) for column in result.columns)] for row in result.rows],
        parts=[
            Section(
                "Ranking",
                "The best mean is selected by these scores, so it is likely too high. Worse: one-sided paired "
                "t-tests against all others, Bonferroni. Equivalent: two one-sided tests against the best, Holm.",
                frame=table(_ranked(result, combination, metric) for combination in result.ranking),
            ),
            *([Section("Variance", frame=table(parts))] if parts else []),
        ],
    )


def _ranked(result: TwoWayResult, combination: Combination, metric: str) -> dict[str, str]:
    is_best = combination is result.ranking[0]
    comparison = None if is_best else combination.comparison
    row = {
        "combination": combination.name,
        readable(metric): score(combination.summary, metric),
        "verdict": "best" if is_best else verdict_of(combination),
        "worse: p": show_p(comparison.worse_p if comparison else None),
    }
    equivalence = {"equivalent: p": show_p(comparison.equivalence_p if comparison else None)}
    return row | (equivalence if result.margin is not None else {})


def _cell(summary: Summary | None, metric: str) -> str:
    if summary is None:
        return "–"
    half = f"\n± {show((summary.high - summary.low) / 2, metric)}" if summary.n > 1 else ""
    return show(summary.mean, metric) + half


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %" if fraction >= 0.005 else "< 1 %"


def uncertainty_section(report: Report) -> Section | None:
    """Return the standard deviation by source, and the contrasts with other intervals; None with a single seed."""
    analysis, metric = report.analysis, report.analysis.metric
    found = analysis.uncertainty
    if found is None:
        return None
    sds = {"variant": found.variant_sd}
    if found.has_draws:
        sds["training seed, draw of the data and its test sentences"] = found.seed_sd
        scope = "Intervals include training seeds, draws of the data and test sentences."
    else:
        count = f" ({found.num_sentences:,})" if found.num_sentences else ""
        sds |= {"training seed": found.seed_sd, f"test sentences{count}": found.sentence_sd}
        scope = "Intervals over seeds hold for this draw of the data and these test sentences."
    effect = "removes this fraction of the variance" if found.pairing_helps else "brings nothing"
    lines = [
        *([f"Test sentences are not analysed: {found.reason}."] if found.reason else []),
        f"Intra-class correlation of seeds: {f'{found.correlation:.2f}'.replace('-', '−')}. Pairing by seed {effect}.",
    ]

    def estimate(value: CrossedEstimate | MeanEstimate | None) -> str:
        if value is None:
            return "–"
        interval = value.interval()
        return with_interval(value.mean, interval.low, interval.high, metric, signed=True)

    rows = []
    for row in found.contrasts:
        cells = {
            "contrast": contrast_name(analysis, row.contrast),
            "over seeds": difference(row.contrast.paired, metric),
        }
        cells |= {} if found.reason else {"with sentences": estimate(row.with_sentences)}
        rows.append(cells | ({} if found.pairing_helps else {"unpaired": estimate(row.unpaired)}))
    parts = [Section("Contrasts with 95 % intervals", frame=table(rows))] if rows and len(rows[0]) > 2 else []
    return Section(
        "Sources of uncertainty",
        f"Standard deviation of {report.metric} by source. {scope}",
        frame=table({"source": source, "standard deviation": show(sd, metric)} for source, sd in sds.items()),
        lines=lines if found.correlation == found.correlation else lines[:-1],
        parts=parts,
    )
