"""The answer of a report: a summary sentence, and a clause for each main contrast with its deciding interval."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from headtohead.analysis.contrasts import Contrast
from headtohead.analysis.scores import OTHER_DATA
from headtohead.analysis.study import Analysis
from headtohead.analysis.two_way import Combination, TwoWayResult
from headtohead.config.labels import listed
from headtohead.planning.variants import DATA_AXIS
from headtohead.report.section import contrast_name, ends
from headtohead.statistics.paired_tests import Interval, Summary
from headtohead.statistics.verdicts import BEYOND, IDENTICAL, SAME, UNCLEAR, WITHIN
from headtohead.storage.metrics import higher_is_better, readable, show
from headtohead.storage.states import RESULTS

MOST_CLAUSES = 6
"""Maximum number of contrasts with a clause; the table of the contrasts has all."""

MOST_VALUES = 4
"""Maximum number of values of another axis with an effect of their own; with more, the smallest and the largest."""

_SIZES = {WITHIN: "within the margin", BEYOND: "beyond the margin", UNCLEAR: "unclear whether within the margin"}


def answer(analysis: Analysis) -> str:
    """Return the answer to the experiment's question, or why there is none; expected results come first."""
    contrasts = analysis.main_contrasts
    agreements = Counter[str](contrast.agreement.verdict for contrast in contrasts if contrast.agreement)
    opening = f"Expected results: {_counts(agreements)}. " if agreements else ""
    if all(contrast.paired is None for contrast in contrasts):
        return opening + _no_answer(analysis, contrasts)
    if analysis.allow_partial and analysis.missing_seeds:
        opening = f"On the finished seeds: {opening}"
    if contrasts[-1].kind not in ("declared", "added", "taken") and analysis.two_way:
        return opening + two_way_answer(analysis, analysis.two_way)
    by_size = sorted(contrasts, key=lambda contrast: -abs(contrast.paired.mean) if contrast.paired else 0.0)
    counts = Counter(
        f"{contrast.direction_name}{f' ({_SIZES[contrast.size]})' if contrast.size else ''}" for contrast in by_size
    )
    clauses = [clause(analysis, contrast) for contrast in by_size[:MOST_CLAUSES]]
    clauses += [f"{len(by_size) - MOST_CLAUSES} more in the table"] * (len(by_size) > MOST_CLAUSES)
    unit = f" in {readable(analysis.metric)}" * all(contrast.metric == analysis.metric for contrast in by_size)
    start = f"Difference{unit}, " if len(by_size) == 1 else f"Differences{unit}: {_counts(counts)}. "
    named = f"against the baseline ({analysis.frames.by_slug[analysis.frames.baseline].title})"
    return f"{opening}{start}{'; '.join(clauses).replace('against baseline', named, 1)}."


def clause(analysis: Analysis, contrast: Contrast) -> str:
    """Return sides, difference, direction and size with an interval each, and the settings that differ."""
    name, paired, metric = contrast_name(analysis, contrast), contrast.paired, contrast.metric
    if metric != analysis.metric:
        name += f" ({readable(metric)})"
    if paired is None:
        return f"{name}: {contrast.reason or contrast.verdict}"

    def within(interval: Interval | None) -> str:
        if interval is None or not math.isfinite(interval.low) or contrast.direction == IDENTICAL:
            return ""
        return f" ({interval.percent} interval {ends(interval.low, interval.high, metric, signed=True)})"

    test = contrast.judgement.size_test
    parts = [
        f"{show(paired.mean, metric, signed=True)}, {contrast.direction_name}{within(contrast.judgement.interval)}"
    ]
    if contrast.size_text:
        parts.append(contrast.size_text + within(test.interval if test and contrast.size != UNCLEAR else None))
    if contrast.agreement:
        found = contrast.agreement.verdict
        verb = "does not decide on" if found == "undecided" else f"{found} with"
        parts.append(f"which {verb} the expected result{analysis.after_steps(contrast)}")
    return f"{name}: {', '.join(parts)}{_settings(analysis, contrast)}"


def _settings(analysis: Analysis, contrast: Contrast) -> str:
    """Return how an average differs between its settings: by value of another axis, or its range; else empty."""
    metric = contrast.metric
    if separate := analysis.separate_effects(contrast):
        effects = sorted(separate.effects.items(), key=lambda effect: effect[1].mean)
        chosen = effects if len(effects) <= MOST_VALUES else [effects[0], effects[-1]]
        texts = (f"{show(effect.mean, metric, signed=True)} with {value}" for value, effect in chosen)
        return f", but it depends on {separate.other_axis}: {', '.join(texts)}"
    if contrast.spread is None or contrast.paired is None:
        return ""
    if analysis.settings_contradict(contrast):
        return f", but single settings range from {ends(*contrast.spread, metric, signed=True)}"
    names = [analysis.frames.by_slug[slug].title for slug in contrast.exceptions]
    return f", but not shown for {listed(names, most=MOST_VALUES)}" if names else ""


def two_way_answer(analysis: Analysis, result: TwoWayResult) -> str:
    """Return the best of all pairs of two crossed axes and the verdicts on the others."""
    metric, (best, *others) = analysis.metric, result.ranking
    level = "highest" if higher_is_better(metric) else "lowest"
    first = (
        f"Of {len(result.ranking)} ranked combinations of {' and '.join(result.axes)}, {best.name} has the "
        f"{level} {readable(metric)}, {with_ends(best.summary, metric)}."
    )
    if best.comparison is None or not others:
        return first
    counts = Counter(map(verdict_of, others))
    parts = [f"{counts['worse']} worse than another combination", f"{counts['undecided']} undecided"]
    if margin := result.margin:
        late = " (margin set after results existed)" * margin.late
        parts.insert(0, f"{counts['equivalent']} equivalent to the best within {show(margin.value, metric)}{late}")
    return f"{first} Of the other {len(others)}: {', '.join(parts)}."


def verdict_of(combination: Combination) -> str:
    """Return the verdict on a combination that is not the best."""
    comparison = combination.comparison
    if comparison is None:
        return "no verdict"
    return "equivalent" if comparison.is_equivalent else "worse" if comparison.is_worse else "undecided"


def with_ends(summary: Summary, metric: str) -> str:
    """Return a mean with its 95 % interval in parentheses."""
    interval = f" (95 % interval {ends(summary.low, summary.high, metric)})" if math.isfinite(summary.low) else ""
    return show(summary.mean, metric) + interval


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _no_answer(analysis: Analysis, contrasts: Sequence[Contrast]) -> str:
    states = analysis.frames.runs["state"]
    final = int(states.isin(RESULTS).sum())
    if final < len(states):
        return f"No answer yet: {final} of {len(states)} runs have a result, and variants are ranked when all have."
    reasons = {contrast.reason for contrast in contrasts}
    other_data = reasons == {OTHER_DATA} or (not reasons and DATA_AXIS in analysis.frames.record.axes)
    is_single, metric = len(analysis.frames.by_slug) == 1, analysis.metric
    scores = "; ".join(
        f"{variant.title} {with_ends(analysis.summaries[slug], metric)}"
        for slug, variant in analysis.frames.by_slug.items()
        if slug in analysis.ranked
    )
    if scores and is_single:
        return f"The experiment has a single variant and no comparison: {readable(metric)} of {scores}."
    if scores and other_data:
        return f"The variants use different data sets and are not ranked; {readable(metric)} of each variant: {scores}."
    reason = next(filter(None, (contrast.reason for contrast in contrasts)), "the experiment declares no contrast")
    if contrasts and {contrast.direction for contrast in contrasts} == {SAME}:
        reason = "all variants are the same by construction"
    elif is_single:
        reason = "the experiment has a single variant"
    elif other_data:
        reason = OTHER_DATA
    return f"No answer: {reason}."
