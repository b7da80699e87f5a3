"""The sections on contrasts: declared by the file, between two configurations, and axis by axis."""

from __future__ import annotations

import math

from headtohead.analysis.contrasts import Contrast
from headtohead.config.labels import text
from headtohead.report.content import Report
from headtohead.report.section import Section, contrast_table, difference, ends, leveled, table
from headtohead.storage.metrics import counted, readable, unpadded

MOST_INTERACTIONS = 12
"""Maximum number of interactions in the table."""


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
        spread = ends(*contrast.spread, metric, signed=True) if contrast.spread else "–"
        more.append({**padding, "range": spread, "settings": str(len(contrast.pairs))})
    return Section(
        "Axis by axis",
        f"Two values of an axis: the difference in {report.metric}, averaged within each seed over the settings of the "
        f"other axes. The range is over these settings. Holm's correction over "
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
