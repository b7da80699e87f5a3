"""The answer of a report: a sentence per verdict, the best of all pairs of two axes, or why there is no answer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.scores import OTHER_DATA
from headtohead.analysis.study import Analysis
from headtohead.analysis.two_way import Combination, TwoWayResult
from headtohead.analysis.wording import ends, largest_text, named_sides
from headtohead.config.labels import listed
from headtohead.config.labels import text as value_text
from headtohead.planning.variants import DATA_AXIS
from headtohead.storage.metrics import counted, higher_is_better, readable, show, span, with_unit
from headtohead.storage.states import RESULTS
from headtohead_judge.paired_tests import Summary
from headtohead_judge.power import detectable_difference
from headtohead_judge.verdicts import (
    BETTER,
    BY_LESS,
    BY_MORE,
    DETECTED,
    EQUIVALENT,
    IDENTICAL,
    LARGER,
    NO_VERDICT,
    NOT_SHOWN,
    SAME,
    SMALLER,
    WORSE,
    Direction,
)

MAX_NAMED = 6
"""Maximum number of contrasts or variants that a sentence names."""

MAX_VALUES = 4
"""Maximum number of values of another axis with an effect of their own; with more, the smallest and the largest."""

ORDER: tuple[Direction, ...] = (*DETECTED, SAME, IDENTICAL, NO_VERDICT, EQUIVALENT, NOT_SHOWN)
"""The verdicts in the order of their sentences."""

SENTENCES: dict[Direction, str] = {
    BETTER: "Better{metric}{size}{expected}: {contrasts}.",
    WORSE: "Worse{metric}{size}{expected}: {contrasts}.",
    LARGER: "Larger{metric}{size}{expected}: {contrasts}.",
    SMALLER: "Smaller{metric}{size}{expected}: {contrasts}.",
    SAME: "Same by construction{metric}{expected}: {contrasts}.",
    IDENTICAL: "Identical{metric}{expected}: {contrasts}.",
    NO_VERDICT: "No verdict{metric}{expected}: {contrasts}.",
    EQUIVALENT: "Equivalent{average}{metric}{size}{expected}: {contrasts}.",
    NOT_SHOWN: "No difference shown{average}{metric}{expected}: {contrasts}{largest}.",
}
"""The sentence on all contrasts with a verdict. Slots that do not apply are empty."""

IN_METRIC = " in {metric}"
"""The slot ``metric`` of the first sentence, if all contrasts have one metric."""

ON_AVERAGE = " on average"
SIZES = {
    BY_MORE: " by more than the margin of {margin}",
    BY_LESS: " by less than the margin of {margin}",
    None: "",
}
EQUIVALENT_SIZE = " within the margin of {margin}"
LARGEST = "; could be up to {difference}"
LARGEST_OF_SEVERAL = "; the largest could be up to {difference}"
EXPECTED = {
    "agrees": ", as expected",
    "disagrees": ", unlike the expected result",
    "undecided": ", which leaves the expected result open",
}
"""What the sentence of a contrast says of its expected result."""

BASELINE = "the baseline ({title})"
PARTIAL = "On the finished seeds: {answer}"
DETECTABLE = "With {seeds}, a difference of {difference} would be shown in 80 % of studies."
TOO_FEW_SEEDS = "{seeds} are too few: even the largest possible difference may not be shown."


class Verdict(NamedTuple):
    """What the contrasts of a sentence have in common: its key in `SENTENCES`, and three of its slots."""

    direction: Direction
    average: str
    size: str
    expected: str


def answer(analysis: Analysis) -> str:
    """Return the answer to the experiment's question, or why there is none: a sentence per verdict.

    Contrasts without a shown difference are followed by the difference that the study would show.

    Raises:
        HeadToHeadError: As `Analysis`.
    """
    contrasts = analysis.main_contrasts
    if all(contrast.paired is None for contrast in contrasts):
        return _no_answer(analysis, contrasts)
    if ranks_pairs(analysis) and analysis.two_way:
        text = two_way_answer(analysis, analysis.two_way)
    else:
        text = " ".join([*_verdict_sentences(analysis), *_power_sentence(analysis)])
    if analysis.allow_partial and analysis.missing_seeds:
        return PARTIAL.format(answer=text)
    return text


def _verdict_sentences(analysis: Analysis) -> list[str]:
    """Return a sentence for each verdict, detected differences first.

    The first sentence names the metric, if all contrasts have the same; otherwise every contrast names its own.
    """
    metrics = {contrast.metric for contrast in analysis.main_contrasts}
    in_metric = ""
    if len(metrics) == 1:
        in_metric = IN_METRIC.format(metric=with_unit(analysis.main_contrasts[0].metric))
    sentences = []
    baseline = BASELINE.format(title=analysis.frames.by_slug[analysis.frames.baseline].title)
    for verdict, contrasts in _by_verdict(analysis).items():
        sides = []
        for contrast in contrasts:
            left, right = named_sides(analysis, contrast)
            if right and _is_against_baseline(analysis, contrast):
                right = baseline
            note = _note(analysis, contrast, names_metric=len(metrics) > 1)
            sides.append((left, right + note) if right else (left + note, ""))
        if any(_is_against_baseline(analysis, contrast) for contrast in contrasts):
            baseline = "baseline"  # its title is in the first sentence that names it
        sentence = SENTENCES[verdict.direction].format(
            average=verdict.average,
            metric=in_metric,
            size=verdict.size,
            expected=verdict.expected,
            contrasts=_names(sides),
            largest="" if len(metrics) > 1 else _largest(contrasts),
        )
        sentences.append(sentence)
        in_metric = ""
    return sentences


def _by_verdict(analysis: Analysis) -> dict[Verdict, list[ContrastResult]]:
    """Return the main contrasts by verdict, detected ones first, in a verdict the largest first."""

    def rank(contrast: ContrastResult) -> int:
        return ORDER.index(contrast.direction)

    groups: dict[Verdict, list[ContrastResult]] = {}
    for contrast in sorted(largest_first(analysis.main_contrasts), key=rank):
        groups.setdefault(_verdict(analysis, contrast), []).append(contrast)
    return groups


def _verdict(analysis: Analysis, contrast: ContrastResult) -> Verdict:
    """Return the verdict of a contrast as the sentence that fits it, with its size and the expected result, if any."""
    template = SIZES[contrast.size]
    average = ""
    if contrast.direction == EQUIVALENT:
        template = EQUIVALENT_SIZE
    if contrast.direction in (EQUIVALENT, NOT_SHOWN) and settings_text(analysis, contrast):
        average = ON_AVERAGE  # with different effects in its settings, an average shows no equality
    return Verdict(
        direction=contrast.direction,
        average=average,
        size=template.format(margin=contrast.margin_text),
        expected=EXPECTED[contrast.agreement.verdict] if contrast.agreement else "",
    )


def _largest(contrasts: Sequence[ContrastResult]) -> str:
    """Return the largest difference that an interval of contrasts in one metric contains; empty without intervals."""
    largest = max(contrasts, key=lambda contrast: contrast.judgement.largest_possible)
    difference = largest_text(largest)
    if not difference:
        return ""
    template = LARGEST if len(contrasts) == 1 else LARGEST_OF_SEVERAL
    return template.format(difference=difference)


def _is_against_baseline(analysis: Analysis, contrast: ContrastResult) -> bool:
    """Return whether a contrast is that of one variant against the baseline; declared ones and factors are not."""
    return contrast.family == "variant" and contrast.against == analysis.frames.baseline


def _note(analysis: Analysis, contrast: ContrastResult, *, names_metric: bool) -> str:
    """Return what follows the name of a contrast: how it differs between settings, and its metric."""
    note = ""
    has_no_direction = contrast.direction in (EQUIVALENT, NOT_SHOWN)
    dependence = settings_text(analysis, contrast, with_effects=has_no_direction)
    if dependence:
        note += f" ({dependence})"
    has_two_metrics = len(contrast.contrast.metrics) > 1
    if names_metric and not has_two_metrics:
        note += f" ({readable(contrast.metric)})"
    return note


def _names(sides: Sequence[tuple[str, str]]) -> str:
    """Return the names of contrasts from their sides; left sides with an equal right side are listed before it.

    A contrast without a right side has a single name.
    """
    lefts_of: dict[str, list[str]] = {}
    for left, right in sides:
        lefts_of.setdefault(right, []).append(left)
    texts = lefts_of.pop("", [])
    for right, lefts in lefts_of.items():
        texts.append(f"{listed(lefts, most=MAX_NAMED)} against {right}")
    if len(texts) > MAX_NAMED + 1:
        texts = [*texts[:MAX_NAMED], f"{len(texts) - MAX_NAMED} more"]
    return "; ".join(texts)


def _power_sentence(analysis: Analysis) -> list[str]:
    """Return a sentence on the difference that the study shows in 80 % of studies; none if all contrasts are decided.

    The sentence is about the largest such difference of the contrasts without a shown difference. There is none if the
    main contrasts have several metrics.

    Precondition: at least one main contrast.
    """
    contrasts = analysis.main_contrasts
    metric = contrasts[0].metric
    if any(contrast.metric != metric for contrast in contrasts):
        return []
    undecided = [contrast for contrast in contrasts if contrast.direction == NOT_SHOWN]
    seeds_by_effect = {}
    for contrast in undecided:
        if contrast.paired is not None:
            effect = detectable_difference(contrast.paired, contrast.level)
            seeds_by_effect[effect] = len(contrast.seeds)
    effects = [effect for effect in seeds_by_effect if math.isfinite(effect)]
    if not effects:
        return []
    largest = max(effects)
    seeds = counted(seeds_by_effect[largest], "seed")
    low, high = span(metric)
    if largest < high - low:
        return [DETECTABLE.format(seeds=seeds, difference=show(largest, metric))]
    return [TOO_FEW_SEEDS.format(seeds=seeds)]


def ranks_pairs(analysis: Analysis) -> bool:
    """Return whether the answer is the ranking of all pairs of two axes.

    Raises:
        HeadToHeadError: As `Analysis`.
    """
    kinds = {contrast.family for contrast in analysis.main_contrasts}
    return analysis.two_way is not None and not kinds & {"declared", "added", "taken"}


def largest_first(contrasts: Sequence[ContrastResult]) -> list[ContrastResult]:
    """Return contrasts by the absolute size of their differences; those without a test have size 0."""

    def size(contrast: ContrastResult) -> float:
        return abs(contrast.paired.mean) if contrast.paired else 0.0

    return sorted(contrasts, key=size, reverse=True)


DEPENDS = "depends on {axis}"
EFFECTS = "depends on {axis}: {effects}"
EFFECT = "{effect} with {value}"
RANGE = "single settings range from {range}"
OTHER_SIGN = "the other sign with {settings}"
SIZE_UNSHOWN = "size not shown separately for {settings}"
UNSHOWN = "not shown separately for {settings}"


def settings_text(
    analysis: Analysis, contrast: ContrastResult, *, with_effects: bool = True
) -> str:
    """Return how an average differs between its settings; empty without settings or if they agree.

    If the effect depends on another axis, that is its effect for each value of the axis; without ``with_effects``, the
    axis alone.
    """
    metric = contrast.metric
    separate = analysis.separate_effects(contrast)
    if separate:
        axis, by_value = separate
        if not with_effects:
            return DEPENDS.format(axis=axis)
        effects = _shown_effects(contrast, by_value)
        return EFFECTS.format(axis=axis, effects=", ".join(effects))
    if contrast.spread is None or contrast.paired is None:
        return ""
    if analysis.settings_contradict(contrast):
        return RANGE.format(range=ends(*contrast.spread, metric, signed=True, like=contrast.scale))
    return _deviating_settings(analysis, contrast, contrast.paired.mean)


def _shown_effects(contrast: ContrastResult, by_value: Mapping[str, float]) -> list[str]:
    """Return the effect for each value of another axis, smallest first; of many values, the smallest and largest."""
    values = sorted(by_value, key=lambda value: by_value[value])
    if len(values) > MAX_VALUES:
        values = [values[0], values[-1]]
    texts = []
    for value in values:
        effect = show(by_value[value], contrast.metric, signed=True, like=contrast.scale)
        texts.append(EFFECT.format(effect=effect, value=value))
    return texts


def _deviating_settings(analysis: Analysis, contrast: ContrastResult, mean: float) -> str:
    """Return the settings of an average of ``mean`` with the other sign, and those not shown within the margin."""
    averaged = str(contrast.axis).split(" and ")
    other_sign, not_shown = list[str](), list[str]()
    for setting in contrast.settings:
        axes = analysis.frames.by_slug[setting.variant].axes
        values = [value_text(value) for axis, value in axes.items() if axis not in averaged]
        name = " · ".join(values)
        if contrast.detected and setting.difference.mean * mean < 0:
            other_sign.append(name)
        is_equal = setting.judgement.is_within_margin or setting.judgement.direction == IDENTICAL
        if contrast.is_within_margin and not is_equal:
            not_shown.append(name)
    texts = []
    if other_sign:
        texts.append(OTHER_SIGN.format(settings=listed(other_sign, most=MAX_NAMED)))
    if not_shown:
        template = SIZE_UNSHOWN if contrast.detected else UNSHOWN
        texts.append(template.format(settings=listed(not_shown, most=MAX_NAMED)))
    return "; ".join(texts)


ONE_BEST = "Of {number} ranked combinations of {axes}, {best} has the {level} {metric}, {score}."
SEVERAL_BEST = (
    "Of {number} ranked combinations of {axes}, {best} share the {level} {metric}, {score}."
)
OTHERS = "Of the other {number}: {worse} worse than another combination, {undecided} undecided."
OTHERS_WITH_MARGIN = (
    "Of the other {number}: {equivalent} equivalent to the best within {margin}, {worse} worse than another "
    "combination, {undecided} undecided."
)
OTHERS_WITH_LATE_MARGIN = (
    "Of the other {number}: {equivalent} equivalent to the best within {margin} (margin set after results existed), "
    "{worse} worse than another combination, {undecided} undecided."
)


def two_way_answer(analysis: Analysis, result: TwoWayResult) -> str:
    """Return the best of all pairs of two crossed axes and the verdicts on the others.

    Without a comparison (fewer than two seeds) or without others, only the best.
    """
    metric = analysis.metric
    leader = result.ranking[0]
    best = [combination.name for combination in result.ranking if combination.is_best]
    others = [combination for combination in result.ranking if not combination.is_best]
    template = ONE_BEST if len(best) == 1 else SEVERAL_BEST
    first = template.format(
        number=len(result.ranking),
        axes=" and ".join(result.axes),
        best=listed(best, most=MAX_NAMED),
        level="highest" if higher_is_better(metric) else "lowest",
        metric=readable(metric),
        score=with_ends(leader.summary, metric),
    )
    if leader.comparison is None or not others:
        return first
    counts = Counter(map(verdict_of, others))
    margin = result.margin
    if margin is None:
        second = OTHERS.format(number=len(others), **_counts(counts))
    else:
        template = OTHERS_WITH_LATE_MARGIN if margin.late else OTHERS_WITH_MARGIN
        value = show(margin.value, metric, like=margin.value)
        second = template.format(number=len(others), margin=value, **_counts(counts))
    return f"{first} {second}"


def _counts(counts: Counter[str]) -> dict[str, int]:
    """Return the counts as the slots of a template; verdicts that do not occur have 0."""
    return {verdict: counts[verdict] for verdict in ("equivalent", "worse", "undecided")}


def verdict_of(combination: Combination) -> str:
    """Return the verdict on a combination that is not the first."""
    comparison = combination.comparison
    if combination.is_best:
        return "equal"
    if comparison is None:
        return "no verdict"
    if comparison.is_equivalent:
        return "equivalent"
    return "worse" if comparison.is_worse else "undecided"


MEAN = "{mean} (95 % interval {interval})"


def with_ends(summary: Summary, metric: str) -> str:
    """Return a mean with its 95 % interval in parentheses."""
    mean = show(summary.mean, metric)
    if not math.isfinite(summary.low):
        return mean
    return MEAN.format(mean=mean, interval=ends(summary.low, summary.high, metric))


NOT_YET = (
    "No answer yet: {finished} of {runs} runs have a result, and variants are ranked when all have."
)
SINGLE_VARIANT = "The experiment has a single variant and no comparison. Its {metric} is {score}."
DIFFERENT_DATA = (
    "The variants use different data sets and are not ranked; {metric} of each variant: {scores}."
)
NO_ANSWER = "No answer: {reason}."
NO_CONTRAST = "the experiment declares no contrast"
ALL_SAME = "all variants are the same by construction"
ONE_VARIANT = "the experiment has a single variant"


def _no_answer(analysis: Analysis, contrasts: Sequence[ContrastResult]) -> str:
    """Return why no contrast was tested, with the scores where they can be stated without a comparison.

    The first of these that applies: runs without a result; the score of a single ranked variant; the scores of ranked
    variants on different data; contrasts that are 0 by construction; a single variant; different data; the reason of
    the first contrast that has one; no contrast.

    Args:
        analysis: The analysis.
        contrasts: The main contrasts, none of which has a test; can be empty.
    """
    states = analysis.frames.runs["state"]
    finished = int(states.isin(RESULTS).sum())
    if finished < len(states):
        return NOT_YET.format(finished=finished, runs=len(states))
    metric = analysis.metric
    reasons = [contrast.reason for contrast in contrasts]
    has_other_data = set(reasons) == {OTHER_DATA}
    if not contrasts:
        has_other_data = DATA_AXIS in analysis.frames.record.axes
    is_single = len(analysis.frames.by_slug) == 1
    if analysis.ranked and is_single:
        score = with_ends(analysis.summaries[analysis.frames.baseline], metric)
        return SINGLE_VARIANT.format(metric=readable(metric), score=score)
    if analysis.ranked and has_other_data:
        scores = []
        for slug, variant in analysis.frames.by_slug.items():
            if slug in analysis.ranked:
                scores.append(f"{variant.title} {with_ends(analysis.summaries[slug], metric)}")
        return DIFFERENT_DATA.format(metric=readable(metric), scores="; ".join(scores))
    if contrasts and all(contrast.direction == SAME for contrast in contrasts):
        return NO_ANSWER.format(reason=ALL_SAME)
    if is_single:
        return NO_ANSWER.format(reason=ONE_VARIANT)
    if has_other_data:
        return NO_ANSWER.format(reason=OTHER_DATA)
    stated = [reason for reason in reasons if reason]
    return NO_ANSWER.format(reason=stated[0] if stated else NO_CONTRAST)
