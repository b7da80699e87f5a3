"""Rules on verdicts: whether the margin can be used, whether the study detects a difference, other tests, margins."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.findings.finding import MAX_NAMED, Sentence, caution, note
from headtohead.analysis.findings.scores import wide_margin
from headtohead.analysis.sentences import sentence
from headtohead.analysis.study import Analysis
from headtohead.config.clauses import of_phrases
from headtohead.config.labels import listed
from headtohead.storage.metrics import as_ratio, counted, readable, show, span
from headtohead_judge.power import detectable_difference
from headtohead_judge.verdicts import NOT_SHOWN

NO_ROOM = (
    "{side} is {distance} from the best possible {metric}, less than the margin of {margin}, and the difference could "
    "be larger on a harder task, so {consequence}. {remedy}"
)
NO_ROOM_LIMIT = "{side} has nearly the best possible {metric}: a gain of the margin is impossible"
BASELINE_SIDE = "The baseline"
ANY_SIDE = "The right side of a contrast"
UNUSED = "no verdict uses the margin"
UNUSED_FOR = "the margin is not used for {contrasts}"
HARDER_TASK = "To use it, make the task harder."
RATIO_OR_HARDER_TASK = (
    "To use it, compare ratios of error rates (metrics.primary: {ratio}, margin: {{{ratio}: 0.22}} for 1.25), or "
    "make the task harder."
)


@caution
def no_room(analysis: Analysis) -> Iterator[Sentence]:
    """State which main contrasts have a right side that is closer to the best possible score than the margin.

    There is a sentence for each metric with such a contrast; if these are all contrasts of the metric, they are not
    named. Metrics without a margin or without a bound have no sentence, and right sides without a score do not count.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    for metric, margin, contrasts in _with_margin(analysis):
        without_room = []
        rooms = []
        for contrast in contrasts:
            room = analysis.room(metric, contrast.references)
            rooms.append(room)
            if margin > room:
                without_room.append(contrast)
        if not without_room:
            continue
        names = [contrast.name for contrast in without_room]
        consequence = UNUSED_FOR.format(contrasts=listed(names, most=MAX_NAMED))
        if len(without_room) == len(contrasts):
            consequence = UNUSED
        ratio = as_ratio(metric)
        remedy = HARDER_TASK
        if ratio:
            remedy = RATIO_OR_HARDER_TASK.format(ratio=ratio)
        side = _common_side(analysis, without_room)
        text = NO_ROOM.format(
            side=side,
            distance=show(min(rooms), metric, like=margin),
            metric=readable(metric),
            margin=show(margin, metric, like=margin),
            consequence=consequence,
            remedy=remedy,
        )
        limit = NO_ROOM_LIMIT.format(side=side[0].lower() + side[1:], metric=readable(metric))
        yield Sentence(text, limit=limit)


LOW = (
    "Both sides are closer to the worst possible {metric} than the margin of {margin}, so {consequence}. To use it, "
    "train longer or make the task easier."
)
LOW_LIMIT = "some scores are nearly the worst possible one: a loss of the margin is impossible"


@caution
def low_scores(analysis: Analysis) -> Iterator[Sentence]:
    """State which main contrasts have both sides closer to the worst possible score than the margin.

    Nothing on a metric in which all variants are, of which `wide_margin` warns.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    for metric, margin, contrasts in _with_margin(analysis):
        low = []
        for contrast in contrasts:
            if margin > analysis.height(metric, (contrast.references, contrast.others)):
                low.append(contrast.name)
        is_of_all = metric == analysis.metric and any(wide_margin.check(analysis))
        if low and not is_of_all:
            text = LOW.format(
                metric=readable(metric),
                margin=show(margin, metric, like=margin),
                consequence=UNUSED_FOR.format(contrasts=listed(low, most=MAX_NAMED)),
            )
            yield Sentence(text, limit=LOW_LIMIT)


def _with_margin(analysis: Analysis) -> Iterator[tuple[str, float, list[ContrastResult]]]:
    """Yield each metric that has a margin, the margin, and the main contrasts in this metric."""
    by_metric: dict[str, list[ContrastResult]] = {}
    for contrast in analysis.main_contrasts:
        by_metric.setdefault(contrast.metric, []).append(contrast)
    for metric, contrasts in by_metric.items():
        margin = analysis.frames.record.margins.get(metric)
        if margin is not None:
            yield metric, margin.value, contrasts


def _common_side(analysis: Analysis, contrasts: Sequence[ContrastResult]) -> str:
    """Return the name of the right side of all contrasts: the baseline, if it is that of each, else a general name."""
    sides = {slug for contrast in contrasts for slug in contrast.references}
    return BASELINE_SIDE if sides <= {analysis.frames.baseline} else ANY_SIDE


NO_CONTROL = (
    "No difference that can exceed the margin was detected, so this study does not show that it can detect one. Add a "
    "variant that is known to be worse."
)

NO_CONTROL_LIMIT = "no difference that can exceed the margin was detected, so the test is untried"


@caution
def no_positive_control(analysis: Analysis) -> Iterator[Sentence]:
    """Caution if a main contrast is within the margin or its expected size, and so is every detected contrast.

    The detected contrasts are those of the main ones and of the variants with the baseline. A detected difference
    whose interval only reaches beyond the margin is enough to prevent the caution.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    if not any(map(_is_within, analysis.main_contrasts)):
        return
    tested = [*analysis.main_contrasts, *analysis.families.variants.contrasts]
    has_control = any(contrast.detected and not _is_within(contrast) for contrast in tested)
    if not has_control:
        yield Sentence(NO_CONTROL, limit=NO_CONTROL_LIMIT)


def _is_within(contrast: ContrastResult) -> bool:
    """Return whether a difference is within the margin, or within the size that is expected."""
    is_as_expected = contrast.agreement is not None and contrast.agreement.is_within
    return contrast.is_within_margin or is_as_expected


OTHER_TESTS = "Paired t-tests, each with the variance of its own contrast and the same correction, {verdicts}."
NOT_BY_PAIRED_TEST = "show no difference {of_contrasts}"
BY_PAIRED_TEST = "show a difference {of_contrasts}"


@note
def paired_tests_differ(analysis: Analysis) -> Iterator[Sentence]:
    """Name the main contrasts whose paired t-test disagrees with their interval on whether there is a difference.

    First those with a difference that the paired test does not show, then those with the opposite.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    only_by_interval: list[str] = []
    only_by_paired_test: list[str] = []
    for contrast in analysis.main_contrasts:
        if contrast.is_unlike_paired_test:
            names = only_by_interval if contrast.detected else only_by_paired_test
            names.append(contrast.name)
    clauses = []
    if only_by_interval:
        of_contrasts = of_phrases(only_by_interval, most=MAX_NAMED)
        clauses.append(NOT_BY_PAIRED_TEST.format(of_contrasts=of_contrasts))
    if only_by_paired_test:
        of_contrasts = of_phrases(only_by_paired_test, most=MAX_NAMED)
        clauses.append(BY_PAIRED_TEST.format(of_contrasts=of_contrasts))
    if clauses:
        yield Sentence(OTHER_TESTS.format(verdicts=" and ".join(clauses)))


@note
def few_interactions(analysis: Analysis) -> Iterator[Sentence]:
    """State the tested interactions of a study whose main contrasts are all declared, a sentence each.

    Nothing if the study has more than MAX_NAMED interactions.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    interactions = analysis.families.interactions.contrasts
    is_declared = all(contrast.family == "declared" for contrast in analysis.main_contrasts)
    if not is_declared or len(interactions) > MAX_NAMED:
        return
    for contrast in interactions:
        if contrast.paired is None:
            continue
        yield Sentence(sentence(analysis, contrast))


MARGIN = (
    "The margin, the smallest difference that matters, is {margin} {metric}, set before these runs."
)
LATE_MARGIN = (
    "The margin, the smallest difference that matters, is {margin} {metric}; it was set after results existed, on "
    "{date}."
)


@note
def stated_margin(analysis: Analysis) -> Iterator[Sentence]:
    """State the margin of the primary metric, and whether it was set before the results; nothing without a margin."""
    metric = analysis.metric
    margin = analysis.frames.record.margins.get(metric)
    if margin is None:
        return
    template = LATE_MARGIN if margin.late else MARGIN
    text = template.format(
        margin=show(margin.value, metric, like=margin.value),
        metric=readable(metric),
        date=margin.since[:10],
    )
    yield Sentence(text)


DETECTABLE = "With {seeds}, a difference of {difference} would be shown in 80 % of studies."
TOO_FEW_SEEDS = "{seeds} are too few: even the largest possible difference may not be shown."


@note
def detectable(analysis: Analysis) -> Iterator[Sentence]:
    """State the difference that would be shown in 80 % of studies, the largest of the main contrasts.

    Only contrasts with the verdict *no difference shown* count, unlike equivalent ones and those without a verdict. If
    the difference is at least the range of the metric, the seeds are too few. There is no sentence without a finite
    difference, or if the main contrasts have several metrics.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    contrasts = analysis.main_contrasts
    if len({contrast.metric for contrast in contrasts}) != 1:
        return
    metric = contrasts[0].metric
    effects: list[tuple[float, int]] = []
    for contrast in contrasts:
        if contrast.direction == NOT_SHOWN and contrast.paired is not None:
            effect = detectable_difference(contrast.paired, contrast.level)
            if math.isfinite(effect):
                effects.append((effect, len(contrast.seeds)))
    if not effects:
        return
    largest, number = max(effects)
    seeds = counted(number, "seed")
    low, high = span(metric)
    if largest < high - low:
        yield Sentence(DETECTABLE.format(seeds=seeds, difference=show(largest, metric)))
    else:
        yield Sentence(TOO_FEW_SEEDS.format(seeds=seeds))
