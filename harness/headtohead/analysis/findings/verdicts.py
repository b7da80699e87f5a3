"""Rules on verdicts: whether a size can be judged, whether the study can detect a difference, margins, interactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.findings.finding import MAX_NAMED, Sentence, caution, note
from headtohead.analysis.study import Analysis
from headtohead.analysis.wording import contrast_name, leveled
from headtohead.config.labels import listed
from headtohead.storage.metrics import as_ratio, readable, show
from headtohead_judge.verdicts import WITHIN

NO_ROOM = (
    "{side} is {distance} from the best possible {metric}, less than the margin of {margin}, and the difference could "
    "be larger on a harder task, so {consequence} judged. {remedy}"
)
BASELINE_SIDE = "The baseline"
ANY_SIDE = "The right side of a contrast"
NO_SIZE = "no size is"
NOT_SIZED = "the size of {contrasts} is not"
HARDER_TASK = "To judge it, make the task harder."
RATIO_OR_HARDER_TASK = (
    "To judge it, compare ratios of error rates (metrics.primary: {ratio}, margin: {{{ratio}: 0.22}} for 1.25), or "
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
        unsized = []
        rooms = []
        for contrast in contrasts:
            room = analysis.room(metric, contrast.references)
            rooms.append(room)
            if margin.value > room:
                unsized.append(contrast)
        if not unsized:
            continue
        names = [contrast_name(analysis, contrast) for contrast in unsized]
        consequence = NOT_SIZED.format(contrasts=listed(names, most=MAX_NAMED))
        if len(unsized) == len(contrasts):
            consequence = NO_SIZE
        ratio = as_ratio(metric)
        remedy = HARDER_TASK
        if ratio:
            remedy = RATIO_OR_HARDER_TASK.format(ratio=ratio)
        text = NO_ROOM.format(
            side=_common_side(analysis, unsized),
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
    """Caution if a study found differences within the margin, and none that can exceed it."""
    if not any(map(_is_within, analysis.main_contrasts)):
        return
    tested = [*analysis.main_contrasts, *analysis.families.variants.contrasts]
    has_control = any(contrast.detected and not _is_within(contrast) for contrast in tested)
    if not has_control:
        yield Sentence(NO_CONTROL)


def _is_within(contrast: ContrastResult) -> bool:
    """Return whether a difference is within the margin, or within the size that is expected."""
    agreed = contrast.agreement.size if contrast.agreement else None
    return WITHIN in (contrast.size, agreed)


ARROWS = (
    "“In {start}”: all other settings are those before the arrows; “in {end}”: those after them."
)


@note
def arrows(analysis: Analysis) -> Iterator[Sentence]:
    """Explain the names of the changes between two configurations."""
    if analysis.families.added.contrasts:
        (total,) = analysis.families.variants.contrasts
        by_slug = analysis.frames.by_slug
        start, end = by_slug[total.against].title, by_slug[total.variant].title
        yield Sentence(ARROWS.format(start=start, end=end))


INTERACTION = "Interaction, {name}: {difference} ({interval}), {direction}."


@note
def few_interactions(analysis: Analysis) -> Iterator[Sentence]:
    """State the tested interactions of a study whose main contrasts are all declared, a sentence each.

    Nothing if the study has more than MAX_NAMED interactions.
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
            interval=leveled(contrast.judgement.interval, contrast),
            direction=contrast.direction_name,
        )
        yield Sentence(text)


MARGIN = (
    "The margin, the smallest difference that matters, is {margin} {metric}, set before these runs."
)
LATE_MARGIN = (
    "The margin, the smallest difference that matters, is {margin} {metric}; it was set after results existed, on "
    "{date}."
)
HOLM = " Holm's correction sets the levels of the intervals."


@note
def stated_margin(analysis: Analysis) -> Iterator[Sentence]:
    """State the margin of the primary metric, and whether it was set before the results; nothing without a margin.

    If a main contrast has a verdict on its size, it adds that Holm's correction sets the levels of the intervals.
    """
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
    if any(contrast.size for contrast in analysis.main_contrasts):
        text += HOLM
    yield Sentence(text)
