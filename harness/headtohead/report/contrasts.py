"""The sections on contrasts: declared by the file, between two configurations, and axis by axis."""

from __future__ import annotations

import math

from headtohead.analysis.contrasts import Contrast
from headtohead.config.labels import text
from headtohead.report.content import Report
from headtohead.report.section import Section, contrast_rows, difference, ends, leveled, table
from headtohead.storage.metrics import counted, readable, unpadded

MOST_INTERACTIONS = 12
"""Maximum number of interactions in the table."""


def declared_section(report: Report) -> Section | None:
    """Return the contrasts that the experiment file declares, or None without any."""
    contrasts = report.analysis.declared.contrasts
    if not contrasts:
        return None
    names = [{"contrast": contrast.name, "metric": _metric(contrast)} for contrast in contrasts]
    expected = [_expected(contrast) for contrast in contrasts] if any(found.expect for found in contrasts) else []
    rows = contrast_rows(contrasts, names, expected)
    return Section(
        "Declared contrasts",
        "Differences that the experiment file declares, paired by seed. They are a separate family for Holm's "
        "correction.",
        frame=table(rows),
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
    if contrast.expect is None or contrast.agreement is None:
        return {"expected": "", "as expected": ""}
    found = contrast.agreement
    interval = [leveled(found.interval, contrast.metric)] if found.interval else []
    published = contrast.expect.published
    if published is not None and found.interval and math.isfinite(found.interval.low):
        inside = found.interval.low <= published <= found.interval.high
        interval.append(f"{'includes' if inside else 'excludes'} the published difference")
    return {
        "expected": f"{contrast.expected}\n{contrast.expect.source}",
        "as expected": "\n".join([found.verdict, *interval]),
    }


def change_section(report: Report) -> Section | None:
    """Return the single changes between two configurations, added and taken, or None without such a design."""
    analysis, by_slug = report.analysis, report.analysis.frames.by_slug
    added, taken = ({str(c.axis): c for c in family.contrasts} for family in (analysis.added, analysis.taken))
    if not added and not taken:
        return None
    total = analysis.variants.contrasts[0]
    start, end = by_slug[total.right], by_slug[total.left]

    def cells(contrast: Contrast | None, heading: str) -> dict[str, str]:
        shown = difference(contrast.paired, analysis.metric) if contrast else "–"
        return {heading: shown, f"{heading}: verdict": contrast.verdict_name if contrast else "excluded"}

    first, second = f"added to {start.title}", f"taken from {end.title}"
    whole = {"change": "all changes", **cells(total, first), second: "–", f"{second}: verdict": "–"}
    rows = [
        {
            "change": f"{name}\n{text(start.axes[name])} → {text(end.axes[name])}",
            **cells(added.get(name), first),
            **cells(taken.get(name), second),
        }
        for name in report.record.axes
    ]
    tested = [*analysis.added.contrasts, *analysis.taken.contrasts]
    tests = contrast_rows(tested, [{"contrast": contrast.name} for contrast in tested])
    return Section(
        "Change by change",
        f"The difference in {report.metric} from each single change, paired by seed. Added: {start.title} with the "
        f"change minus {start.title}. Taken: {end.title} minus {end.title} without the change. Each column is a family "
        "of its own for Holm's correction. A change with an effect in only one column depends on other changes.",
        frame=table([*rows, whole]),
        parts=[Section("Tests", frame=table(tests))],
    )


def factor_section(report: Report) -> Section | None:
    """Return the factor contrasts, largest first, and the interactions; None without factor contrasts."""
    analysis, metric = report.analysis, report.analysis.metric
    ordered = sorted(analysis.factors.contrasts, key=lambda found: -abs(found.paired.mean) if found.paired else 0.0)
    if not ordered:
        return None
    without: dict[str, Contrast] = {}
    hidden = all(analysis.frames.by_slug[slug].padding_hidden for slug in report.listed)  # then both are equal
    if unpadded(metric) in analysis.frames.runs and not hidden:
        found = analysis.in_metric(unpadded(metric)).factors.contrasts
        without = {contrast.name: contrast for contrast in found}
    names, more = [], []
    for contrast in ordered:
        value = f"{contrast.left} ({contrast.within})" if contrast.within else contrast.left
        names.append({"axis": str(contrast.axis), "value": value, "against": contrast.right})
        other = without.get(contrast.name)
        padding = {"without padding": difference(other.paired if other else None, metric)} if without else {}
        spread = ends(*contrast.spread, metric, signed=True) if contrast.spread else "–"
        more.append({**padding, "range": spread, "settings": str(len(contrast.pairs))})
    return Section(
        "Axis by axis",
        f"Two values of an axis: the difference in {report.metric}, averaged within each seed over the settings of the "
        f"other axes. The range is over these settings. Holm's correction over "
        f"{counted(analysis.factors.tested, 'contrast')}.",
        frame=table(contrast_rows(ordered, names, more)),
        figure="interactions",
        caption="Means with 95 % intervals over the settings of the other axes that all points of a panel share. "
        "Parallel lines mean that the effect of an axis does not depend on the other axis.",
        parts=_interactions(report),
    )


def _interactions(report: Report) -> list[Section]:
    family = report.analysis.interactions
    ordered = sorted(family.contrasts, key=lambda found: found.paired.p if found.paired else math.inf)
    shown = ordered[:MOST_INTERACTIONS]
    if not shown:
        return []
    names = [{"interaction": contrast.name} for contrast in shown]
    more = [{"settings": str(len(contrast.pairs) // 2)} for contrast in shown]
    omitted = len(ordered) - len(shown)
    return [
        Section(
            "Interactions",
            "Whether the effect of an axis depends on another axis: the difference between two values at one value of "
            "the other axis, minus that at the other value, paired by seed."
            + f" The {omitted} interactions with the largest p are omitted."
            * bool(omitted),
            frame=table(contrast_rows(shown, names, more)),
        )
    ]
