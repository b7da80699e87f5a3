"""The sentence on a contrast, the same in every output: a template for each verdict."""

from __future__ import annotations

from collections.abc import Sequence

from headtohead.analysis.averages import settings_text
from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.study import Analysis
from headtohead.analysis.wording import clause_between, interval_text, possible
from headtohead.config.clauses import (
    as_noun,
    capitalised,
    contains_preposition,
    lead,
)
from headtohead.planning.variants import DATA_AXIS, SIZE_AXIS
from headtohead.schema.phrases import spoken
from headtohead.storage.metrics import higher_is_better, readable
from headtohead_judge.verdicts import (
    BETTER,
    BY_LESS,
    CANNOT_TELL,
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

SENTENCES: dict[Direction, str] = {
    BETTER: "{change} {metric} {improves}{value_of_change}{expected}{limit}{settings}.",
    WORSE: "{change} {metric} {worsens}{value_of_change}{expected}{limit}{settings}.",
    LARGER: "{change} {metric} {rises}{value_of_change}{expected}{limit}{settings}.",
    SMALLER: "{change} {metric} {falls}{value_of_change}{expected}{limit}{settings}.",
    EQUIVALENT: "{change} {metric} {changes} by less than {margin}{average}{value_of_change}{late}{expected}"
    "{settings}.",
    NOT_SHOWN: "{name}: no difference{in_metric} shown{average}, {signed}; {it} could be {possible}{expected}"
    "{settings}.",
    IDENTICAL: "{name}: {metric} {is_are} the same in every seed{expected}.",
    SAME: "{name}: the same by construction{expected}.",
    CANNOT_TELL: "{name}: cannot tell{in_metric}{reason}{expected}.",
    NO_VERDICT: "{name}: no verdict{in_metric}{reason}{expected}.",
}
"""The sentence on a contrast by its verdict. Slots that do not apply are empty.

Every difference and every end of an interval has its sign, as in tables and figures.
"""

DIFFERENCE = "{name}: the difference{in_metric} is {signed}{expected}."
"""The sentence on a detected difference of two metrics, or of the effects of a head."""

NEARLY_ZERO = "{name}: the difference{in_metric} is 0 to within {margin}, {signed}{late}{expected}."
"""The sentence on two metrics, or on the effects of a head, whose difference is smaller than the margin."""

SUMS: dict[Direction, str] = {
    BETTER: "{both} do not add up: together they are better than the sum of their effects{in_metric}, {signed}{limit}.",
    WORSE: "{both} do not add up: together they are worse than the sum of their effects{in_metric}, {signed}{limit}.",
    EQUIVALENT: "{both} add up to within {margin}{in_metric}: {signed}{late}.",
    NOT_SHOWN: "{both}: no interaction{in_metric} shown, {signed}; together they could be {possible} than the sum.",
    IDENTICAL: "{both} add up exactly{in_metric}, in every seed.",
    SAME: "{both} add up by construction.",
    CANNOT_TELL: "{both}: cannot tell whether they add up{in_metric}{reason}.",
    NO_VERDICT: "{both}: no verdict on their interaction{in_metric}{reason}.",
}
"""The sentence on whether two changes add up, by the verdict on their interaction."""

DEPENDENCES: dict[Direction, str] = {
    BETTER: "{effect}{on_metric} is better with {value} than with {against}: {signed}{limit}.",
    WORSE: "{effect}{on_metric} is worse with {value} than with {against}: {signed}{limit}.",
    EQUIVALENT: "{effect}{on_metric} is the same with {value} and {against}, to within {margin}: {signed}{late}.",
    NOT_SHOWN: "{effect}{on_metric}: no difference between {value} and {against} shown, {signed}; with {value} it "
    "could be {possible}.",
    IDENTICAL: "{effect}{on_metric} is the same with {value} and {against} in every seed.",
    SAME: "{effect} is the same with {value} and {against} by construction.",
    CANNOT_TELL: "{effect}{on_metric}: cannot tell {value} from {against}{reason}.",
    NO_VERDICT: "{effect}{on_metric}: no verdict on {value} against {against}{reason}.",
}
"""The sentence on whether the effect of a change depends on the data or the size."""

EFFECT = "The effect of {change}"
LEAD = "{lead},"
NAMED = "{name}:"
BOTH = "{first} and {second}"
INTERVAL = " ({interval})"
CONSTANT = "{signed} in every seed"
AFTER_LEAD = ": {signed}"
AFTER_NAME = ", {signed}"
IN_METRIC = " in {metric}"
ON_METRIC = " on {metric}"
ON_AVERAGE = " on average"
REASON = " ({reason})"
LESS = "; the difference is smaller than the margin of {margin}"
BRACKETS = "In brackets: 95 % confidence intervals, adjusted for multiple comparisons."
BRACKETS_OF_ONE = "In brackets: the 95 % confidence interval of the difference."
MARGIN_NOTE = " Differences smaller than the margin of {margin} do not matter{late}."
LATE = "; the margin was set after results existed"
LATE_LIMIT = ", which was set after results existed"
SETTINGS = "; {settings}"
EXPECTED = {
    "agrees": ", as expected",
    "disagrees": ", unlike the expected result",
    "undecided": ", which leaves the expected result open",
}
"""What a sentence states about the expected result."""


def sentence(analysis: Analysis, contrast: ContrastResult, *, names_metric: bool = True) -> str:
    """Return the sentence on a contrast, with a full stop: its change, its verdict, and the numbers of the verdict.

    A detected difference is stated with its sign and its interval, and with the margin if it is shown to be smaller.
    The sentence on another verdict has the margin, the interval or the reason, where its template in ``SENTENCES`` has
    a slot. The same holds for the expected result and, for an average, for how its settings differ. The difference of
    two metrics, or of the effects of a head, has the template ``DIFFERENCE`` if it is detected and ``NEARLY_ZERO`` if
    it is smaller than the margin. Interactions have the templates ``SUMS`` and ``DEPENDENCES``, without an expected
    result and without settings.

    Args:
        analysis: The analysis.
        contrast: A contrast of this analysis.
        names_metric: Whether the metric is named also where the sentence is clear without it. Sentences on a detected
            or equivalent difference of a single metric always name it.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    if contrast.family == "interaction":
        return _interaction_sentence(analysis, contrast, names_metric=names_metric)
    slots = _slots(contrast, names_metric=names_metric) | _verbs(contrast.metric)
    settings = settings_text(analysis, contrast)
    if settings:
        slots["settings"] = SETTINGS.format(settings=settings)
        slots["average"] = ON_AVERAGE
    template = SENTENCES[contrast.direction]
    is_effect_of_head = contrast.metric.startswith("heads/")
    has_several_metrics = len(contrast.contrast.metrics) > 1
    if is_effect_of_head or has_several_metrics:
        if contrast.detected:
            template = DIFFERENCE
        elif contrast.direction == EQUIVALENT:
            template = NEARLY_ZERO
    return template.format(**slots)


def brackets_note(analysis: Analysis, contrasts: Sequence[ContrastResult]) -> str:
    """Return what the brackets in the sentences on these contrasts are; empty if no sentence has brackets."""
    with_brackets = []
    for contrast in contrasts:
        shows_points = contrast.detected and _is_constant(contrast)
        if interval_text(contrast) and not shows_points:
            with_brackets.append(contrast)
    if not with_brackets:
        return ""
    families = {contrast.judged_as for contrast in with_brackets}
    tested = sum(analysis.families.tested(family) for family in families)
    return BRACKETS_OF_ONE if tested == 1 else BRACKETS


def margin_note(contrasts: Sequence[ContrastResult]) -> str:
    """Return what the margin of these contrasts is, after a space; empty without one, or with several."""
    with_margin = [contrast for contrast in contrasts if contrast.judgement.margin]
    margins = {spoken(contrast.judgement.margin) for contrast in with_margin}
    if len(margins) != 1:
        return ""
    is_late = any(contrast.late_margin for contrast in with_margin)
    return MARGIN_NOTE.format(margin=margins.pop(), late=LATE if is_late else "")


def _slots(contrast: ContrastResult, *, names_metric: bool) -> dict[str, str]:
    """Return the slots of all templates that do not depend on the other results; slots that do not apply are empty.

    ``average`` and ``settings`` are empty here. ``change`` is the beginning of a sentence: a clause becomes ``With
    rotary instead of sinusoidal,``; a name that the experiment file gives, or a clause with a preposition inside it,
    is followed by a colon. ``it`` is the metric if there is a single one and ``names_metric`` is false, else the word
    *it*.
    """
    name = capitalised(contrast.name)
    clause = contrast.name
    lead_in = NAMED.format(name=name)
    value_of_change = AFTER_NAME
    if not contrast.record.is_named and not contains_preposition(clause):
        value_of_change = AFTER_LEAD
        lead_in = LEAD.format(lead=lead(clause))
    metric = readable(contrast.metric)
    has_one_metric = len(contrast.contrast.metrics) == 1
    shows_metric = names_metric and has_one_metric
    signed = _signed(contrast)
    margin = contrast.judgement.margin
    return {
        "name": name,
        "change": lead_in,
        "metric": metric,
        "in_metric": IN_METRIC.format(metric=metric) if shows_metric else "",
        "on_metric": ON_METRIC.format(metric=metric) if shows_metric else "",
        "it": metric if has_one_metric and not names_metric else "it",
        "signed": signed,
        "value_of_change": value_of_change.format(signed=signed),
        "possible": possible(contrast),
        "margin": spoken(margin) if margin else "",
        "limit": _limit(contrast),
        "late": LATE if margin and contrast.late_margin else "",
        "reason": REASON.format(reason=contrast.reason) if contrast.reason else "",
        "expected": EXPECTED[contrast.agreement.verdict] if contrast.agreement else "",
        "average": "",
        "settings": "",
    }


def _signed(contrast: ContrastResult) -> str:
    """Return a difference with its sign, followed by its interval, or by *in every seed* if it is the same in each."""
    if contrast.detected and _is_constant(contrast):
        return CONSTANT.format(signed=contrast.difference_text)
    return contrast.difference_text + _interval(contrast)


def _interval(contrast: ContrastResult) -> str:
    """Return the interval in brackets, with a space before it; empty without an interval."""
    interval = interval_text(contrast)
    return INTERVAL.format(interval=interval) if interval else ""


def _is_constant(contrast: ContrastResult) -> bool:
    """Return whether the difference is the same in every seed."""
    return contrast.paired is not None and contrast.paired.kind == "constant"


def _limit(contrast: ContrastResult) -> str:
    """Return the clause that a detected difference is smaller than the margin; empty if this is not shown.

    It is followed by a clause on a margin that was set late.
    """
    if not contrast.detected or contrast.size != BY_LESS:
        return ""
    limit = LESS.format(margin=spoken(contrast.judgement.margin))
    return limit + LATE_LIMIT if contrast.late_margin else limit


def _verbs(metric: str) -> dict[str, str]:
    """Return the verbs of the templates in the number of a metric: ``bits per byte improve``, ``loss improves``."""
    noun = readable(metric).partition(" per ")[0]
    is_plural = noun.endswith("s") and not noun.endswith("ss")
    verbs = {"is_are": "are" if is_plural else "is"}
    for verb in ("improve", "worsen", "rise", "fall", "change"):
        verbs[f"{verb}s"] = verb if is_plural else f"{verb}s"
    return verbs


def _interaction_sentence(
    analysis: Analysis, contrast: ContrastResult, *, names_metric: bool
) -> str:
    """Return the sentence on whether two changes add up, or on how the effect of a change depends on data or size.

    A detected interaction has the template of better or worse, whatever its verdict is called. It is better if its
    interval is in the direction of better scores: both changes together are better than the sum of their effects, or
    the effect is better with the other data or size. Other verdicts have their own templates.
    """
    direction = contrast.direction
    interval = contrast.judgement.interval
    if contrast.detected and interval is not None:
        is_higher = interval.low > 0
        is_better = is_higher == higher_is_better(contrast.metric)
        direction = BETTER if is_better else WORSE
    _, second = contrast.record.effects
    slots = _slots(contrast, names_metric=names_metric)
    first_clause, second_clause = _clauses(analysis, contrast)
    if second.axis in (DATA_AXIS, SIZE_AXIS):
        slots["effect"] = EFFECT.format(change=as_noun(first_clause))
        slots["value"] = as_noun(analysis.frames.record.phrase(second.axis, second.value))
        slots["against"] = as_noun(analysis.frames.record.phrase(second.axis, second.against))
        return DEPENDENCES[direction].format(**slots)
    slots["both"] = _both(first_clause, second_clause)
    return SUMS[direction].format(**slots)


def _clauses(analysis: Analysis, contrast: ContrastResult) -> tuple[str, str]:
    """Return the clauses for both changes of an interaction, such as ``rotary instead of sinusoidal``."""
    variants = [analysis.frames.by_slug[side.variant] for side in contrast.contrast.settings[0]]
    # The order of the sides is that of `Factorial.interaction_weights`.
    _, only_second, only_first, neither = variants
    first, second = contrast.record.effects
    first_clause = clause_between(only_first, neither, first.axis.split(" and "))
    second_clause = clause_between(only_second, neither, second.axis.split(" and "))
    return first_clause, second_clause


def _both(first: str, second: str) -> str:
    """Return the clauses of two changes as the subject of a sentence, with a capital first letter."""
    both = BOTH.format(first=as_noun(first), second=as_noun(second))
    return capitalised(both)
