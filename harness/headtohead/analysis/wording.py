"""Names of contrasts and texts of intervals, as every output prints them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.study import Analysis
from headtohead.config.clauses import change_clause, joined_clause, of_phrases
from headtohead.config.labels import listed
from headtohead.storage.contrasts import FAMILY_NAMES
from headtohead.storage.experiment import VariantRecord
from headtohead.storage.metrics import counted, readable, show
from headtohead_judge.paired_tests import EXAMPLES, SELECTION
from headtohead_judge.verdicts import IDENTICAL, possible_text


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


def clause_between(changed: VariantRecord, against: VariantRecord, axes: Iterable[str]) -> str:
    """Return the clause for the change of some axes between two variants, such as ``rotary instead of sinusoidal``."""
    clauses: dict[str, None] = {}
    for axis in axes:
        if changed.axes[axis] != against.axes[axis]:
            clauses[change_clause(changed.phrase(axis), against.phrase(axis))] = None
    return joined_clause([*clauses])


INTERVALS = "Intervals: {scope}; they include the variance of {sources}.{seeds_only}"
OF_FAMILY = "95 % for {number}"
OF_LARGER_FAMILY = "95 %, adjusted for {number}"
ONE_INTERVAL = "Interval: 95 %; it includes the variance of {sources}.{seeds_only}"
SEEDS_ONLY = " The variance of examples is not included: {reason}."
SEEDS_ONLY_FOR = " The variance of examples is not included for {contrasts}: {reason}."
SEVERAL_SCORES = (
    "contrasts of several metrics or of some source lengths have no values of single examples"
)
NO_SELECTION = " The variance of tuning is not included: {reason}."
NO_SELECTION_OF = (
    " The variance of tuning {of_variants} is not included: the tuning runs have no {metric}."
)
NO_SELECTION_FOR = (
    " The variance of tuning is not included for {contrasts}: tuning runs have no scores by source length, and the "
    "variances of two metrics are not combined."
)
MAX_NAMED = 3
"""Maximum number of contrasts or variants that a caption names."""


def interval_caption(analysis: Analysis, contrasts: Sequence[ContrastResult]) -> str:
    """Return how many contrasts of each family share a level, and which sources of variance their intervals contain.

    The caption also states why the variance of examples is not included, for the first such contrast, and the same for
    tuning (`_no_selection`). Empty without an interval that has a source.
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
    families = []
    for family, number in scope.items():
        of_family = OF_FAMILY if number == 1 else OF_LARGER_FAMILY
        families.append(of_family.format(number=counted(number, FAMILY_NAMES[family])))
    caption = template.format(
        scope="; ".join(families), sources=listed([*sources]), seeds_only=seeds_only
    )
    return caption + _no_selection(analysis, judged)


def _no_selection(analysis: Analysis, contrasts: Sequence[ContrastResult]) -> str:
    """Return a sentence, with a space before it, about why the variance of tuning is not included.

    The first contrast counts in whose metric no variant has such a variance, or one of whose variants has tuning runs
    without the metric. Without such a contrast, those of source lengths and of several metrics are named. Empty if all
    have the variance, and if nothing is tuned.
    """
    if analysis.frames.record.tuning is None:
        return ""
    for contrast in contrasts:
        selections = analysis.selections(contrast.metric)
        if selections.reason:
            return NO_SELECTION.format(reason=selections.reason)
        without = [
            side.variant
            for side in contrast.trained.sides
            if side.variant in selections.without_tuning_scores
        ]
        if without:
            names = [analysis.frames.by_slug[slug].title for slug in without]
            metric = readable(contrast.metric)
            of_variants = of_phrases(names, most=MAX_NAMED)
            return NO_SELECTION_OF.format(of_variants=of_variants, metric=metric)
    others = [contrast for contrast in contrasts if _lacks_selection(analysis, contrast)]
    if not others:
        return ""
    names_of_others = listed([contrast.name for contrast in others], most=MAX_NAMED)
    return NO_SELECTION_FOR.format(contrasts=names_of_others)


def _lacks_selection(analysis: Analysis, contrast: ContrastResult) -> bool:
    """Return whether a contrast has a tuned variant, but no variance of tuning."""
    is_tuned = False
    for side in contrast.trained.sides:
        is_tuned |= side.variant in analysis.selections(side.metric).by_variant
    return is_tuned and SELECTION not in contrast.source_names


def _seeds_only(analysis: Analysis, contrasts: Sequence[ContrastResult], *, is_all: bool) -> str:
    """Return why the variance of examples is not included for some contrasts, or for all of a table."""
    sides = contrasts[0].trained.sides
    reasons = [analysis.test_examples(side.metric).reasons.get(side.variant) for side in sides]
    reason = next((reason for reason in reasons if reason), SEVERAL_SCORES)
    if is_all:
        return SEEDS_ONLY.format(reason=reason)
    names = listed([contrast.name for contrast in contrasts], most=MAX_NAMED)
    return SEEDS_ONLY_FOR.format(contrasts=names, reason=reason)


def largest_text(contrast: ContrastResult) -> str:
    """Return the largest absolute difference in the interval of a contrast; it must have an interval."""
    return show(contrast.judgement.largest_possible, contrast.metric, like=contrast.scale)


def possible(contrast: ContrastResult) -> str:
    """Return how large a difference that is not shown can be, such as ``up to 0.035 better``, as in `possible_text`."""

    def shown(value: float) -> str:
        return show(value, contrast.metric, like=contrast.scale)

    return possible_text(contrast.judgement, contrast.higher_is_better, shown)
