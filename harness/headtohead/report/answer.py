"""The answer of a report: a sentence per verdict, and a row for each main contrast with its deciding intervals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from headtohead.analysis.contrasts import Contrast
from headtohead.analysis.scores import OTHER_DATA
from headtohead.analysis.study import Analysis
from headtohead.analysis.two_way import Combination, TwoWayResult
from headtohead.analysis.wording import contrast_name, ends, leveled, named_sides
from headtohead.config.labels import listed
from headtohead.config.labels import text as value_text
from headtohead.planning.variants import DATA_AXIS
from headtohead.statistics.paired_tests import Interval, Summary, minimum_detectable_effect
from headtohead.statistics.verdicts import (
    BEYOND,
    DETECTED,
    IDENTICAL,
    NO_VERDICT,
    SAME,
    UNCLEAR,
    UNDETECTED,
    WITHIN,
)
from headtohead.storage.metrics import counted, higher_is_better, readable, show, span, with_unit
from headtohead.storage.states import RESULTS

MAX_ROWS = 12
"""Maximum number of contrasts with a row; the tables of the contrasts have all."""

MAX_NAMED = 6
"""Maximum number of contrasts or variants that a sentence names."""

EXPECTED = {
    "agrees": ", as expected",
    "disagrees": ", unlike the expected result",
    "undecided": ", which leaves the expected result open",
}
"""What the sentence of a contrast says of its expected result."""

MAX_VALUES = 4
"""Maximum number of values of another axis with an effect of their own; with more, the smallest and the largest."""


def answer(analysis: Analysis) -> str:
    """Return the answer to the experiment's question, or why there is none: a sentence per verdict.

    Undetected contrasts, or else those with an unclear size, are followed by the difference that the study detects.
    """
    contrasts = analysis.main_contrasts
    if all(contrast.paired is None for contrast in contrasts):
        return _no_answer(analysis, contrasts)
    opening = "On the finished seeds: " if analysis.allow_partial and analysis.missing_seeds else ""
    if _ranks_pairs(analysis) and analysis.two_way:
        return opening + two_way_answer(analysis, analysis.two_way)
    metrics, groups = (
        {contrast.metric for contrast in contrasts},
        dict[tuple[str, str], list[tuple[str, str]]](),
    )
    baseline, first = analysis.frames.by_slug[analysis.frames.baseline], list[tuple[str, str]]()
    order = (*DETECTED, SAME, IDENTICAL, NO_VERDICT, UNDETECTED)
    for contrast in sorted(
        _largest_first(contrasts),
        key=lambda found: (order.index(found.direction), found.size != WITHIN),
    ):
        size = f", {contrast.size_text}" if contrast.size in (WITHIN, BEYOND) else ""
        expected = EXPECTED[contrast.agreement.verdict] if contrast.agreement else ""
        word, dependence = str(contrast.direction), _settings(analysis, contrast)
        if (
            contrast.direction == UNDETECTED
        ):  # with different effects in its settings, an average shows no equality
            word = "equivalent" if contrast.size == WITHIN else "no difference detected"
            word += " on average" * bool(dependence)
        else:
            dependence = dependence.partition(":")[0]
        left, right = named_sides(analysis, contrast)
        note = f" ({dependence})" * bool(dependence)
        if len(metrics) > 1 and not (contrast.declared and contrast.declared.against_metric):
            note += f" ({readable(contrast.metric)})"
        group = groups.setdefault((word.capitalize(), size + expected), [])
        if (
            contrast.kind == "variant"
            and right
            and contrast.right == baseline.slug
            and (first or group) is group
        ):
            first, right = group, f"the baseline ({baseline.title})"
        group.append((left, right + note) if right else (left + note, ""))
    unit = f" in {with_unit(contrasts[0].metric)}" * (len(metrics) == 1)
    sentences = [
        f"{word}{unit * (number == 0)}{notes}: {_names(group)}."
        for number, ((word, notes), group) in enumerate(groups.items())
    ]
    undecided = [
        contrast
        for contrast in contrasts
        if contrast.direction == UNDETECTED and contrast.size != WITHIN
    ]
    undecided = undecided or [contrast for contrast in contrasts if contrast.size == UNCLEAR]
    found = {
        effect: contrast for contrast in undecided if math.isfinite(effect := _detectable(contrast))
    }
    if found and len(metrics) == 1:
        seeds, (metric,) = counted(len(found[max(found)].seeds), "seed"), metrics
        low, high = span(metric)
        sentences.append(
            f"With {seeds}, a difference of {show(max(found), metric)} or more would be detected with 80 % power."
            if max(found) < high - low
            else f"{seeds.capitalize()} are too few: even the largest possible difference may stay undetected."
        )
    return opening + " ".join(sentences)


def differences(analysis: Analysis) -> list[dict[str, str]]:
    """Return the main contrasts as rows of texts: name, difference, direction and size with an interval each.

    The largest differences come first. There are no rows if the answer is about pairs of two axes or if there is none.
    """
    contrasts = analysis.main_contrasts
    if _ranks_pairs(analysis) or all(contrast.paired is None for contrast in contrasts):
        return []
    sized = [contrast for contrast in contrasts if contrast.size]
    margins = {
        show(test.margin, own.metric, like=test.margin)
        for own in sized
        if (test := own.judgement.size_test)
    }
    size_column = f"size (margin {margins.pop()})" if len(margins) == 1 else "size"
    rows = []
    for contrast in _largest_first(contrasts)[:MAX_ROWS]:
        name, test = contrast_name(analysis, contrast), contrast.judgement.size_test
        unit = f" ({readable(contrast.metric)})" * (contrast.metric != analysis.metric)
        texts = [describe(analysis, contrast) for describe in (_parameters, _settings, _agreement)]
        notes = [*filter(None, [*texts, contrast.reason])]
        notes += ["margin set after results existed"] * bool(contrast.size and contrast.late_margin)
        row = {
            "contrast": "\n".join([name + unit, *notes]),
            "difference": contrast.difference_text,
            "direction": _verdict(contrast.direction_name, contrast.judgement.interval, contrast),
        }
        if sized:
            row[size_column] = (
                _verdict(contrast.size, test.interval, contrast) if test and contrast.size else "–"
            )
        rows.append(row)
    if omitted := len(contrasts) - len(rows):
        rows.append({**dict.fromkeys(rows[0], ""), "contrast": f"{omitted} more in the tables"})
    return rows


def _verdict(word: str, interval: Interval | None, contrast: Contrast) -> str:
    has_interval = interval and math.isfinite(interval.low) and contrast.direction != IDENTICAL
    return f"{word}\n{leveled(interval, contrast)}" if has_interval else word


def _ranks_pairs(analysis: Analysis) -> bool:
    kinds = {contrast.kind for contrast in analysis.main_contrasts}
    return analysis.two_way is not None and not kinds & {"declared", "added", "taken"}


def _largest_first(contrasts: Sequence[Contrast]) -> list[Contrast]:
    return sorted(
        contrasts, key=lambda contrast: -abs(contrast.paired.mean) if contrast.paired else 0.0
    )


def _names(sides: Sequence[tuple[str, str]]) -> str:
    """Return the names of contrasts; left sides with an equal right side are listed before it."""
    lefts: dict[tuple[str, str], list[str]] = {}
    for left, right in sides:
        lefts.setdefault((right, left * (not right)), []).append(left)
    texts = [
        listed(own, most=MAX_NAMED) + f" against {right}" * bool(right)
        for (right, _), own in lefts.items()
    ]
    more = len(texts) - MAX_NAMED
    return "; ".join(texts if more < 2 else [*texts[:MAX_NAMED], f"{more} more"])


def _detectable(contrast: Contrast) -> float:
    """Return the difference that the test of a contrast detects; NaN without a test."""
    paired, interval = contrast.paired, contrast.judgement.interval
    if paired is None or interval is None:
        return math.nan
    sd = paired.error * math.sqrt(paired.n)
    return minimum_detectable_effect(sd, paired.n, level=1 - interval.level, degrees=paired.degrees)


def _parameters(analysis: Analysis, contrast: Contrast) -> str:
    """Return how many more parameters the left side has, in percent of the right side; empty below 2 %."""
    counts = [
        [analysis.frames.by_slug[pair[side]].counts.non_embedding for pair in contrast.pairs]
        for side in (0, 1)
    ]
    left, right = map(sum, counts)
    percent = 100 * (left / right - 1) if right else 0.0
    change = f"{percent:+.0f} %".replace("-", "−")
    return f"{change} non-embedding parameters" if abs(percent) >= 2 else ""


def _agreement(analysis: Analysis, contrast: Contrast) -> str:
    if contrast.agreement is None:
        return ""
    verb = (
        "does not decide on"
        if contrast.agreement.verdict == "undecided"
        else f"{contrast.agreement.verdict} with"
    )
    return f"{verb} the expected result{analysis.after_steps(contrast)}"


def _settings(analysis: Analysis, contrast: Contrast) -> str:
    """Return how an average differs between its settings: by value of another axis, or its range; else empty."""
    metric = contrast.metric
    if separate := analysis.separate_effects(contrast):
        other_axis, by_value = separate
        effects = sorted(by_value.items(), key=lambda effect: effect[1])
        chosen = effects if len(effects) <= MAX_VALUES else [effects[0], effects[-1]]
        texts = (
            f"{show(effect, metric, signed=True, like=contrast.scale)} with {value}"
            for value, effect in chosen
        )
        return f"depends on {other_axis}: {', '.join(texts)}"
    if contrast.spread is None or contrast.paired is None:
        return ""
    if analysis.settings_contradict(contrast):
        return f"single settings range from {ends(*contrast.spread, metric, signed=True, like=contrast.scale)}"
    fixed, names = str(contrast.axis).split(" and "), dict[str, list[str]]()
    for (slug, _), (found, judged) in zip(contrast.pairs, contrast.settings, strict=True):
        axes = analysis.frames.by_slug[slug].axes.items()
        name = " · ".join(value_text(value) for axis, value in axes if axis not in fixed)
        if contrast.detected and found.mean * contrast.paired.mean < 0:
            names.setdefault("the other sign with", []).append(name)
        if contrast.size == WITHIN and judged.size != WITHIN and judged.direction != IDENTICAL:
            names.setdefault(f"{'size ' * contrast.detected}not shown separately for", []).append(
                name
            )
    return "; ".join(f"{text} {listed(own, most=MAX_NAMED)}" for text, own in names.items())


def two_way_answer(analysis: Analysis, result: TwoWayResult) -> str:
    """Return the best of all pairs of two crossed axes and the verdicts on the others."""
    metric, best, others = (
        analysis.metric,
        result.ranking[0],
        [own for own in result.ranking if not own.is_best],
    )
    leaders = [own.name for own in result.ranking if own.is_best]
    verb, level = (
        "share" if leaders[1:] else "has",
        "highest" if higher_is_better(metric) else "lowest",
    )
    first = (
        f"Of {len(result.ranking)} ranked combinations of {' and '.join(result.axes)}, "
        f"{listed(leaders, most=MAX_NAMED)} {verb} the {level} {readable(metric)}, {with_ends(best.summary, metric)}."
    )
    if best.comparison is None or not others:
        return first
    counts = Counter(map(verdict_of, others))
    parts = [
        f"{counts['worse']} worse than another combination",
        f"{counts['undecided']} undecided",
    ]
    if margin := result.margin:
        late = " (margin set after results existed)" * margin.late
        value = show(margin.value, metric, like=margin.value)
        parts.insert(0, f"{counts['equivalent']} equivalent to the best within {value}{late}")
    return f"{first} Of the other {len(others)}: {', '.join(parts)}."


def verdict_of(combination: Combination) -> str:
    """Return the verdict on a combination that is not the first."""
    comparison = combination.comparison
    if combination.is_best or comparison is None:
        return "equal" if combination.is_best else "no verdict"
    return (
        "equivalent"
        if comparison.is_equivalent
        else "worse"
        if comparison.is_worse
        else "undecided"
    )


def with_ends(summary: Summary, metric: str) -> str:
    """Return a mean with its 95 % interval in parentheses."""
    interval = (
        f" (95 % interval {ends(summary.low, summary.high, metric)})"
        if math.isfinite(summary.low)
        else ""
    )
    return show(summary.mean, metric) + interval


def _no_answer(analysis: Analysis, contrasts: Sequence[Contrast]) -> str:
    states = analysis.frames.runs["state"]
    final = int(states.isin(RESULTS).sum())
    if final < len(states):
        return f"No answer yet: {final} of {len(states)} runs have a result, and variants are ranked when all have."
    reasons = {contrast.reason for contrast in contrasts}
    other_data = reasons == {OTHER_DATA} or (
        not reasons and DATA_AXIS in analysis.frames.record.axes
    )
    is_single, metric = len(analysis.frames.by_slug) == 1, analysis.metric
    scores = "; ".join(
        f"{variant.title} {with_ends(analysis.summaries[slug], metric)}"
        for slug, variant in analysis.frames.by_slug.items()
        if slug in analysis.ranked
    )
    if scores and is_single:
        own = with_ends(analysis.summaries[analysis.frames.baseline], metric)
        return f"The experiment has a single variant and no comparison. Its {readable(metric)} is {own}."
    if scores and other_data:
        return f"The variants use different data sets and are not ranked; {readable(metric)} of each variant: {scores}."
    reason = next(
        filter(None, (contrast.reason for contrast in contrasts)),
        "the experiment declares no contrast",
    )
    if contrasts and {contrast.direction for contrast in contrasts} == {SAME}:
        reason = "all variants are the same by construction"
    elif is_single:
        reason = "the experiment has a single variant"
    elif other_data:
        reason = OTHER_DATA
    return f"No answer: {reason}."
