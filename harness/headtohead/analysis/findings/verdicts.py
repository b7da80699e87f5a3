"""Rules on verdicts: whether the margin can be used, whether the study detects a difference, other tests, margins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.findings.finding import MAX_NAMED, Sentence, caution, note
from headtohead.analysis.study import Analysis
from headtohead.analysis.wording import contrast_name, interval_text
from headtohead.config.labels import listed
from headtohead.storage.metrics import as_ratio, readable, show

NO_ROOM = (
    "{side} is {distance} from the best possible {metric}, less than the margin of {margin}, and the difference could "
    "be larger on a harder task, so {consequence}. {remedy}"
)
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
    """Name the main contrasts whose right side is closer to the best possible score than the margin.

    A sentence per metric. None for metrics without a margin or without a bound, and for right sides without a score.

    Raises:
        HeadToHeadError: If no registered dataset declares a metric with a margin.
    """
    by_metric: dict[str, list[ContrastResult]] = {}
    for contrast in analysis.main_contrasts:
        by_metric.setdefault(contrast.metric, []).append(contrast)
    for metric, contrasts in by_metric.items():
        margin = analysis.frames.record.margins.get(metric)
        if margin is None:
            continue
        without_room = []
        rooms = []
        for contrast in contrasts:
            room = analysis.room(metric, contrast.references)
            rooms.append(room)
            if margin.value > room:
                without_room.append(contrast)
        if not without_room:
            continue
        names = [contrast_name(analysis, contrast) for contrast in without_room]
        consequence = UNUSED_FOR.format(contrasts=listed(names, most=MAX_NAMED))
        if len(without_room) == len(contrasts):
            consequence = UNUSED
        ratio = as_ratio(metric)
        remedy = HARDER_TASK
        if ratio:
            remedy = RATIO_OR_HARDER_TASK.format(ratio=ratio)
        text = NO_ROOM.format(
            side=_common_side(analysis, without_room),
            distance=show(min(rooms), metric, like=margin.value),
            metric=readable(metric),
            margin=show(margin.value, metric, like=margin.value),
            consequence=consequence,
            remedy=remedy,
        )
        yield Sentence(text)


def _common_side(analysis: Analysis, contrasts: Sequence[ContrastResult]) -> str:
    """Return the name of the right side of all contrasts: the baseline, if it is that of each, else a general name."""
    sides = {slug for contrast in contrasts for slug in contrast.references}
    return BASELINE_SIDE if sides <= {analysis.frames.baseline} else ANY_SIDE


NO_CONTROL = (
    "No difference that can exceed the margin was detected, so this study does not show that it can detect one. Add a "
    "variant that is known to be worse."
)


@caution
def no_positive_control(analysis: Analysis) -> Iterator[Sentence]:
    """Caution if a study found differences within the margin, and none that can exceed it.

    Raises:
        HeadToHeadError: As `Analysis`.
    """
    if not any(map(_is_within, analysis.main_contrasts)):
        return
    tested = [*analysis.main_contrasts, *analysis.families.variants.contrasts]
    has_control = any(contrast.detected and not _is_within(contrast) for contrast in tested)
    if not has_control:
        yield Sentence(NO_CONTROL)


def _is_within(contrast: ContrastResult) -> bool:
    """Return whether a difference is within the margin, or within the size that is expected."""
    is_as_expected = contrast.agreement is not None and contrast.agreement.is_within
    return contrast.is_within_margin or is_as_expected


ARROWS = (
    "“In {start}”: all other settings are those before the arrows; “in {end}”: those after them."
)


@note
def arrows(analysis: Analysis) -> Iterator[Sentence]:
    """Explain the names of the changes between two configurations.

    Raises:
        HeadToHeadError: As `Analysis`.
    """
    if analysis.families.added.contrasts:
        (total,) = analysis.families.variants.contrasts
        by_slug = analysis.frames.by_slug
        start, end = by_slug[total.against].title, by_slug[total.variant].title
        yield Sentence(ARROWS.format(start=start, end=end))


OTHER_TESTS = (
    "Paired t-tests with the variance of each contrast alone, corrected alike, {verdicts}."
)
NOT_BY_PAIRED_TEST = "do not show {contrasts}"
BY_PAIRED_TEST = "show a difference of {contrasts}"


@note
def paired_tests_differ(analysis: Analysis) -> Iterator[Sentence]:
    """Name the main contrasts for which the paired t-test disagrees on whether there is a difference.

    Raises:
        HeadToHeadError: As `Analysis`.
    """
    not_shown: list[str] = []
    shown: list[str] = []
    for contrast in analysis.main_contrasts:
        if contrast.is_unlike_paired_test:
            names = not_shown if contrast.detected else shown
            names.append(contrast_name(analysis, contrast))
    verdicts = []
    if not_shown:
        contrasts = listed(not_shown, most=MAX_NAMED)
        verdicts.append(NOT_BY_PAIRED_TEST.format(contrasts=contrasts))
    if shown:
        verdicts.append(BY_PAIRED_TEST.format(contrasts=listed(shown, most=MAX_NAMED)))
    if verdicts:
        yield Sentence(OTHER_TESTS.format(verdicts=" and ".join(verdicts)))


INTERACTION = "Interaction, {name}: {difference} ({interval}), {verdict}."


@note
def few_interactions(analysis: Analysis) -> Iterator[Sentence]:
    """State the tested interactions of a study whose main contrasts are all declared, a sentence each.

    Nothing if the study has more than MAX_NAMED interactions.

    Raises:
        HeadToHeadError: As `Analysis`.
    """
    interactions = analysis.families.interactions.contrasts
    is_declared = all(contrast.family == "declared" for contrast in analysis.main_contrasts)
    if not is_declared or len(interactions) > MAX_NAMED:
        return
    for contrast in interactions:
        if contrast.paired is None:
            continue
        text = INTERACTION.format(
            name=contrast.name,
            difference=contrast.difference_text,
            interval=interval_text(contrast) or "no interval",
            verdict=contrast.verdict,
        )
        yield Sentence(text)


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
