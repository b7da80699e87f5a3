"""The sections on contrasts: declared by the file, between two configurations, axis by axis, published claims."""

from __future__ import annotations

import math
from typing import Any

from headtohead.analysis.contrasts import Contrast
from headtohead.analysis.published import ClaimResult, setup_value, shared_runs
from headtohead.config.labels import listed, text
from headtohead.report.content import Report
from headtohead.report.section import Section, contrast_rows, difference, ends, table, with_interval
from headtohead.storage.metrics import readable, show, show_count, unpadded

MOST_INTERACTIONS = 12
"""Maximum number of interactions in the table."""


def declared_section(report: Report) -> Section | None:
    """Return the contrasts that the experiment file declares, or None without any."""
    contrasts = report.analysis.declared.contrasts
    if not contrasts:
        return None
    rows = contrast_rows(contrasts, [{"contrast": contrast.name} for contrast in contrasts])
    return Section(
        "Declared contrasts",
        f"Differences in {report.metric} that the experiment file declares, paired by seed. They are a family of their "
        "own for Holm's correction.",
        frame=table(rows),
    )


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
    if unpadded(metric) in analysis.frames.runs:
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
        f"other axes. The range is over these settings. Holm's correction over {analysis.factors.tested} contrasts.",
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


def claim_section(report: Report) -> Section | None:
    """Return published and measured values of the claims with their verdicts, or None without claims."""
    frames, record = report.analysis.frames, report.record.published
    if record is None:
        return None
    results = report.analysis.claims
    level = next((f"{100 * result.confidence:.4g} %" for result in results if result.difference), "")
    far = next((f"; the set-ups are far apart (other {', '.join(result.far)})" for result in results if result.far), "")
    sharing: dict[tuple[int, ...], list[str]] = {}
    for title, numbers in shared_runs(frames, results).items():
        sharing.setdefault(numbers, []).append(title)
    lines = [
        f"Claims {listed([*map(str, numbers)])} share the runs of {listed(names)}: their verdicts are not independent."
        for numbers, names in sharing.items()
    ]
    pairs = {name: (published, setup_value(frames, name)) for name, published in record.setup.items()}
    different = [
        {"field": name, "published": _plain(published), "this experiment": _plain(measured)}
        for name, (published, measured) in pairs.items()
        if not _same(published, measured)
    ]
    equal = [name for name, pair in pairs.items() if _same(*pair)]
    lines += [*record.differences, *([f"As published: {', '.join(equal)}."] if equal else [])]
    return Section(
        "Published and measured",
        f"Source: {record.source}. The interval is the {level} interval of the difference, paired by seed{far}. "
        "Agrees: the whole interval is as claimed. Different: it excludes 0, without a decision on the claimed size. "
        "Disagrees: it contradicts the claim.",
        frame=table(_claim(report, number, result) for number, result in enumerate(results, start=1)),
        lines=lines,
        parts=[Section("Differences in set-up", frame=table(different))] if different else [],
    )


def _claim(report: Report, number: int, result: ClaimResult) -> dict[str, str]:
    claim, published, metric = result.claim, result.claim.published, result.claim.metric
    values = [f"{value:g}".replace("-", "−") for value in (published.variant, published.against) if value is not None]
    measured = [show(summary.mean, metric) for summary in (result.variant, result.against) if summary]
    names = [_side(report, result, side) for side in ("variant", "against")[: len(measured)]]
    change = with_interval(math.nan, result.variant.low, result.variant.high, metric)
    if result.difference is not None:
        change = difference(result.difference, metric)
        if result.includes_published is not None:
            change += f"\n{'includes' if result.includes_published else 'excludes'} the published difference"
    by = f" by more than {claim.by:g}" if claim.by else ""
    expected = {
        "higher": f"higher{by}",
        "lower": f"lower{by}",
        "equal": f"equal to within {claim.margin}",
        "at-most": f"at most {claim.limit}",
    }[claim.expect]
    gap = result.published_difference
    return {
        "claim": f"{number}. {claim.statement}\n{' against '.join(names)}",
        "metric": f"{readable(metric)}\npublished: {published.where}",
        "published": " against ".join(values) or "no value",
        "measured": " against ".join(measured),
        "published difference": "–" if gap is None else f"{gap:+g}".replace("-", "−"),
        "measured difference": change,
        "expected": expected + (f"\n{claim.justification}" if claim.justification else ""),
        "verdict": f"{result.label}\n{result.reason}",
    }


def _side(report: Report, result: ClaimResult, side: str) -> str:
    claim = result.claim
    slug = claim.against if side == "against" and claim.against else claim.variant
    lengths, metric = claim.lengths, ""
    if side == "against":
        lengths = claim.against_lengths or lengths
        metric = f", {readable(claim.against_metric)}" if claim.against_metric else ""
    return report.title(slug) + metric + (f", {lengths[0]} to {lengths[1]} tokens" if lengths else "")


def _same(published: Any, measured: Any) -> bool:
    numbers = all(isinstance(value, int | float) for value in (measured, published))
    return bool(abs(measured - published) <= 1e-9 * abs(published)) if numbers else measured == published


def _plain(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return show_count(value) if abs(value) >= 100_000 else f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else text(value)
