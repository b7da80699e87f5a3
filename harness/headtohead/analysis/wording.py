"""Names of contrasts and texts of intervals, as every output prints them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.study import Analysis
from headtohead.config.labels import NAMED_AXES, listed
from headtohead.storage.metrics import counted, readable, show
from headtohead_judge.paired_tests import EXAMPLES
from headtohead_judge.verdicts import IDENTICAL, NOT_SHOWN


def ends(low: float, high: float, metric: str, *, signed: bool = False, like: float = 0.0) -> str:
    """Return the ends of an interval; ``like`` as in `show`."""
    first = show(low, metric, signed=signed, like=like)
    last = show(high, metric, signed=signed, like=like)
    return f"{first} to {last}"


def interval_text(contrast: ContrastResult) -> str:
    """Return the ends of the interval of a contrast, such as ``−0.010 to +0.023``.

    Empty without an interval, and for a difference that is 0 in every seed.
    """
    interval = contrast.judgement.interval
    is_identical = contrast.direction == IDENTICAL
    if interval is None or is_identical or not math.isfinite(interval.low):
        return ""
    return ends(interval.low, interval.high, contrast.metric, signed=True, like=contrast.scale)


FAMILY_NAMES = {
    "variant": "baseline contrast",
    "factor": "factor contrast",
    "interaction": "interaction",
    "declared": "declared contrast",
    "added": "added change",
    "taken": "taken change",
}
"""Names of a contrast by its family."""

INTERVALS = "Intervals: simultaneous 95 % over {scope}. Sources of variance: {sources}.{seeds_only}"
ONE_INTERVAL = "Interval: 95 %. Sources of variance: {sources}.{seeds_only}"
SEEDS_ONLY = " Test examples are no source: {reason}."
SEEDS_ONLY_FOR = " Test examples are no source for {contrasts}: {reason}."
SEVERAL_SCORES = (
    "contrasts of several metrics or of some source lengths have no values of single examples"
)
NO_SELECTION = " The choice of the tuned values is no source: {reason}."
NO_SELECTION_OF = (
    " The choice of the tuned value of {variants} is no source: its tuning runs have no {metric}."
)
MAX_NAMED = 3
"""Maximum number of contrasts that a caption names."""


def interval_caption(analysis: Analysis, contrasts: Sequence[ContrastResult]) -> str:
    """Return how many contrasts share the level of the intervals, and the sources of variance that these contain.

    Where test examples are no source, the caption has the reason; without an interval, it is empty.
    """
    sources: dict[str, None] = {}
    scope: dict[str, int] = {}
    without_examples = []
    judged = [contrast for contrast in contrasts if contrast.judgement.interval is not None]
    for contrast in judged:
        names = contrast.source_names
        sources.update(dict.fromkeys(names))
        scope[contrast.judged_as] = analysis.families.tested(contrast.judged_as)
        if names and EXAMPLES not in names:
            without_examples.append(contrast)
    if not sources:
        return ""
    seeds_only = ""
    if without_examples:
        seeds_only = _seeds_only(analysis, without_examples, is_all=EXAMPLES not in sources)
    template = ONE_INTERVAL if sum(scope.values()) == 1 else INTERVALS
    counts = [counted(number, FAMILY_NAMES[family]) for family, number in scope.items()]
    caption = template.format(
        scope=" and ".join(counts), sources=listed([*sources]), seeds_only=seeds_only
    )
    return caption + _no_selection(analysis, judged)


def _no_selection(analysis: Analysis, contrasts: Sequence[ContrastResult]) -> str:
    """Return why the choice of tuned values is no source of variance; empty if it is one, or nothing is tuned."""
    if analysis.frames.record.tuning is None:
        return ""
    for contrast in contrasts:
        selections = analysis.selections(contrast.metric)
        if selections.reason:
            return NO_SELECTION.format(reason=selections.reason)
        without = [
            side.variant
            for side in contrast.trained.sides
            if side.variant in selections.without_scores
        ]
        if without:
            names = [analysis.frames.by_slug[slug].title for slug in without]
            metric = readable(contrast.metric)
            return NO_SELECTION_OF.format(variants=listed(names, most=MAX_NAMED), metric=metric)
    return ""


def _seeds_only(analysis: Analysis, contrasts: Sequence[ContrastResult], *, is_all: bool) -> str:
    """Return why test examples are no source of variance of some contrasts, or of all of a table."""
    sides = contrasts[0].trained.sides
    reasons = [analysis.test_examples(side.metric).reasons.get(side.variant) for side in sides]
    reason = next((reason for reason in reasons if reason), SEVERAL_SCORES)
    if is_all:
        return SEEDS_ONLY.format(reason=reason)
    names = listed([contrast_name(analysis, contrast) for contrast in contrasts], most=MAX_NAMED)
    return SEEDS_ONLY_FOR.format(contrasts=names, reason=reason)


def largest_text(contrast: ContrastResult) -> str:
    """Return the largest absolute difference in the interval; empty if the verdict is not that none is shown."""
    if contrast.direction != NOT_SHOWN:
        return ""
    return show(contrast.judgement.largest_possible, contrast.metric, like=contrast.scale)


def end_of(analysis: Analysis, change: ContrastResult) -> str:
    """Return the title of the configuration that the other settings of a single change are from."""
    slug = change.against if change.family == "added" else change.variant
    return analysis.frames.by_slug[slug].title


def contrast_name(analysis: Analysis, contrast: ContrastResult) -> str:
    """Return a short name of a contrast, such as ``positional none against sinusoidal``."""
    left, right = named_sides(analysis, contrast)
    return f"{left} against {right}" if right else left


def named_sides(analysis: Analysis, contrast: ContrastResult) -> tuple[str, str]:
    """Return the names of both sides of a contrast; for a contrast with a single name, the second is empty.

    Only contrasts of an axis value, and of two variants in a design without single changes, have two names.
    """
    if contrast.family in ("added", "taken"):
        return _name_of_change(analysis, contrast), ""
    if contrast.family == "factor":
        return _sides_of_factor(contrast)
    if contrast.family != "variant":
        return contrast.name, ""
    # A design of single changes has one contrast of two variants: its two configurations.
    if analysis.families.added.contrasts:
        return "all changes", ""
    left = analysis.frames.by_slug[contrast.variant].title
    if contrast.against == analysis.frames.baseline:
        return left, "baseline"
    return left, analysis.frames.by_slug[contrast.against].title


def _name_of_change(analysis: Analysis, change: ContrastResult) -> str:
    """Return the name of a single change: axis, both values, and the configuration with the other settings."""
    return f"{change.axis} {change.against_value} → {change.value}, in {end_of(analysis, change)}"


def _sides_of_factor(contrast: ContrastResult) -> tuple[str, str]:
    """Return two values of an axis, the first with the axis unless it is a name that needs none."""
    axis = str(contrast.axis)
    is_joined = " and " in axis  # several fields, whose names are in the values
    is_name = axis in NAMED_AXES and "none" not in (contrast.value, contrast.against_value)
    left = contrast.value if is_joined or is_name else f"{axis} {contrast.value}"
    if contrast.within:
        return left, f"{contrast.against_value} ({contrast.within})"
    return left, contrast.against_value
