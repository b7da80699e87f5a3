"""The answer of a report: a sentence per contrast, the best of all pairs of two axes, or why there is no answer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.scores import OTHER_DATA
from headtohead.analysis.sentences import brackets_note, sentence
from headtohead.analysis.study import Analysis
from headtohead.analysis.two_way import Combination, TwoWayResult
from headtohead.analysis.wording import ends, largest_text
from headtohead.config.labels import listed
from headtohead.planning.variants import DATA_AXIS
from headtohead.storage.metrics import counted, higher_is_better, readable, show
from headtohead_judge.paired_tests import Summary
from headtohead_judge.verdicts import (
    BETTER,
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

MAX_NAMED = 6
"""Contrasts or variants that a sentence names before the number of the others; a single other is named too."""

MAX_SENTENCES = 9
"""Maximum number of sentences on contrasts and their brackets; with more than eight contrasts, some share one."""

REST: dict[Direction, str] = {
    BETTER: "Smaller gains: {names}.",
    WORSE: "Smaller losses: {names}.",
    LARGER: "Smaller rises: {names}.",
    SMALLER: "Smaller falls: {names}.",
    EQUIVALENT: "Equivalent to within {margin}: {names}.",
    NOT_SHOWN: "No difference shown (no interval exceeds {largest}): {names}.",
    IDENTICAL: "The same in every seed: {names}.",
    SAME: "The same by construction: {names}.",
    CANNOT_TELL: "Cannot tell, because all scores are the worst or the best possible ones: {names}.",
    NO_VERDICT: "No verdict: {names}.",
}
"""The sentence on several contrasts with the same verdict, beside those that have a sentence of their own."""

MORE = "The tables have {number}."
"""The sentence on the contrasts that the others leave no room for."""

PARTIAL = "On the finished seeds: {answer}"


def answer(analysis: Analysis, most: int = MAX_SENTENCES) -> tuple[str, ...]:
    """Return the sentences of the answer to the experiment's question, or the one on why there is none.

    There is one for each main contrast, in the order of `largest_first`; of ``most`` contrasts or more, the smaller and
    the undetected ones share sentences. The last sentences state what the brackets and the margin are, if there are
    any. If the answer is about the pairs of two axes (`ranks_pairs`), the sentences are those of `two_way_answer`, and
    ``most`` is ignored. With ``allow_partial`` and missing seeds, an answer begins with *On the finished seeds*.

    Args:
        analysis: The analysis.
        most: Maximum number of sentences on contrasts and brackets; at least 3.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    contrasts = analysis.main_contrasts
    if all(contrast.paired is None for contrast in contrasts):
        return (_no_answer(analysis, contrasts),)
    if ranks_pairs(analysis) and analysis.two_way:
        sentences = two_way_answer(analysis, analysis.two_way)
    else:
        sentences = _contrast_sentences(analysis, largest_first(analysis, contrasts), most)
    if analysis.allow_partial and analysis.missing_seeds:
        first, *others = sentences
        return (PARTIAL.format(answer=first), *others)
    return tuple(sentences)


def _contrast_sentences(
    analysis: Analysis, contrasts: Sequence[ContrastResult], most: int
) -> list[str]:
    """Return at most ``most`` sentences on contrasts, in this order, and last what brackets and margin are.

    Contrasts without a sentence of their own follow in the sentences of `_rest_sentences`. The metric is named in the
    first sentence alone if it is that of all contrasts.
    """
    room = most - 1  # the last sentence is that on the brackets
    single = _with_own_sentence(contrasts, room)
    rest = [contrast for contrast in contrasts if contrast not in single]
    has_one_metric = len({contrast.metric for contrast in contrasts}) == 1
    sentences: list[str] = []
    for contrast in single:
        names_metric = not has_one_metric or not sentences
        sentences.append(sentence(analysis, contrast, names_metric=names_metric))
    sentences += _rest_sentences(rest, room - len(sentences))
    note = brackets_note(analysis, single)
    return [*sentences, note] if note else sentences


def _with_own_sentence(contrasts: Sequence[ContrastResult], most: int) -> list[ContrastResult]:
    """Return the contrasts with a sentence of their own: all, or the first ones with a shown difference.

    They leave room for a sentence on each verdict of the others, and are not fewer than one if a difference is shown.
    """
    if len(contrasts) <= most:
        return list(contrasts)
    with_sentence = [contrast for contrast in contrasts if contrast.detected][:most]
    while len(with_sentence) > 1:
        rest = [contrast for contrast in contrasts if contrast not in with_sentence]
        if len(with_sentence) + len(_by_verdict(rest)) <= most:
            break
        with_sentence.pop()
    return with_sentence


def _by_verdict(
    contrasts: Sequence[ContrastResult],
) -> dict[tuple[Direction, str], list[ContrastResult]]:
    """Return contrasts by direction and margin, the directions in the order of their sentences."""
    groups: dict[tuple[Direction, str], list[ContrastResult]] = {}
    for contrast in sorted(contrasts, key=lambda contrast: ORDER.index(contrast.direction)):
        groups.setdefault((contrast.direction, contrast.margin_text), []).append(contrast)
    return groups


def _rest_sentences(contrasts: Sequence[ContrastResult], most: int) -> list[str]:
    """Return a sentence for each verdict and margin of contrasts that have no sentence of their own, at most ``most``.

    The verdicts are in the order of `REST`. A sentence names at most ``MAX_NAMED + 1`` contrasts; of more, the first
    ``MAX_NAMED`` and the number of the others. That on contrasts without a shown difference has the largest difference
    in one of their intervals. If more than ``most`` sentences were needed, the last one has the number of the contrasts
    that no other sentence covers.
    """
    groups = _by_verdict(contrasts)
    sentences: list[str] = []
    for (direction, margin), members in groups.items():
        if len(sentences) == most - 1 and len(groups) > most:
            left_out = [*groups.values()][len(sentences) :]
            number = sum(len(group) for group in left_out)
            sentences.append(MORE.format(number=counted(number, "more contrast")))
            break
        names = [contrast.name for contrast in members]
        if len(names) > MAX_NAMED + 1:
            names = [*names[:MAX_NAMED], f"{len(names) - MAX_NAMED} more"]
        sentences.append(
            REST[direction].format(
                names="; ".join(names), margin=margin, largest=_largest_text(members)
            )
        )
    return sentences


def _largest_text(contrasts: Sequence[ContrastResult]) -> str:
    """Return the largest absolute difference in the intervals of contrasts, of several metrics that of each.

    The metrics are in the order of their first contrasts.
    """
    largest: dict[str, ContrastResult] = {}
    for contrast in contrasts:
        other = largest.setdefault(contrast.metric, contrast)
        if contrast.judgement.largest_possible > other.judgement.largest_possible:
            largest[contrast.metric] = contrast
    if len(largest) == 1:
        return f"±{largest_text(largest.popitem()[1])}"
    texts = []
    for metric, contrast in largest.items():
        texts.append(IN_METRIC.format(size=largest_text(contrast), metric=readable(metric)))
    return listed(texts)


IN_METRIC = "±{size} in {metric}"

ORDER = tuple(REST)
"""The verdicts in the order of their sentences."""


def ranks_pairs(analysis: Analysis) -> bool:
    """Return whether the answer is the ranking of all pairs of two axes.

    This is the case with a `two_way` result, unless the file declares contrasts or compares two configurations.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    kinds = {contrast.family for contrast in analysis.main_contrasts}
    return analysis.two_way is not None and not kinds & {"declared", "added", "taken"}


def largest_first(analysis: Analysis, contrasts: Sequence[ContrastResult]) -> list[ContrastResult]:
    """Return contrasts by metric, the primary one first, and of each metric the largest absolute difference first.

    The other metrics are in the order of their first contrasts. Contrasts without a test have size 0.
    """
    metrics = list(dict.fromkeys([analysis.metric, *(contrast.metric for contrast in contrasts)]))

    def rank(contrast: ContrastResult) -> tuple[int, float]:
        size = abs(contrast.paired.mean) if contrast.paired else 0.0
        return metrics.index(contrast.metric), -size

    return sorted(contrasts, key=rank)


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


def two_way_answer(analysis: Analysis, result: TwoWayResult) -> list[str]:
    """Return the sentences on the best of all pairs of two crossed axes, and on the others.

    The first names all combinations with the scores of the best in every seed, with its mean and interval. The second
    has the number of the others by verdict. It is missing without others, and without comparisons, which need two
    shared seeds for every two combinations.
    """
    metric = analysis.metric
    leader = result.ranking[0]
    best = [combination.name for combination in result.ranking if combination.is_best]
    others = [combination for combination in result.ranking if not combination.is_best]
    template = ONE_BEST if len(best) == 1 else SEVERAL_BEST
    first = template.format(
        number=len(result.ranking),
        axes=" and ".join(analysis.frames.record.axis_name(axis) for axis in result.axes),
        best=listed(best, most=MAX_NAMED),
        level="highest" if higher_is_better(metric) else "lowest",
        metric=readable(metric),
        score=with_ends(leader.summary, metric),
    )
    if leader.comparison is None or not others:
        return [first]
    counts = Counter(map(verdict_of, others))
    margin = result.margin
    if margin is None:
        second = OTHERS.format(number=len(others), **_counts(counts))
    else:
        template = OTHERS_WITH_LATE_MARGIN if margin.late else OTHERS_WITH_MARGIN
        value = show(margin.value, metric, like=margin.value)
        second = template.format(number=len(others), margin=value, **_counts(counts))
    return [first, second]


def _counts(counts: Counter[str]) -> dict[str, int]:
    """Return the counts as the slots of a template; verdicts that do not occur have 0."""
    return {verdict: counts[verdict] for verdict in ("equivalent", "worse", "undecided")}


def verdict_of(combination: Combination) -> str:
    """Return the verdict on a ranked combination other than the first one.

    ``equal``: it has the scores of the first in every seed. ``no verdict``: too few shared seeds. ``equivalent`` to the
    best within the margin, ``worse`` than another combination, or ``undecided``.
    """
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
    """Return a mean with its 95 % interval in parentheses; without one, the mean alone, a dash if it is NaN."""
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

    Args:
        analysis: The analysis.
        contrasts: The main contrasts, none of which has a test; can be empty.
    """
    frames, metric = analysis.frames, analysis.metric
    finished = int(frames.has_result.sum())
    if finished < len(frames.runs):
        return NOT_YET.format(finished=finished, runs=len(frames.runs))

    is_single = len(frames.by_slug) == 1
    if analysis.ranked and is_single:
        score = with_ends(analysis.summaries[frames.baseline], metric)
        return SINGLE_VARIANT.format(metric=readable(metric), score=score)

    reasons = [contrast.reason for contrast in contrasts]
    if contrasts:
        has_other_data = all(reason == OTHER_DATA for reason in reasons)
    else:
        has_other_data = DATA_AXIS in frames.record.axes
    if analysis.ranked and has_other_data:
        texts = []
        for slug, variant in frames.by_slug.items():
            if slug in analysis.ranked:
                texts.append(f"{variant.title} {with_ends(analysis.summaries[slug], metric)}")
        return DIFFERENT_DATA.format(metric=readable(metric), scores="; ".join(texts))

    if contrasts and all(contrast.direction == SAME for contrast in contrasts):
        return NO_ANSWER.format(reason=ALL_SAME)
    if is_single:
        return NO_ANSWER.format(reason=ONE_VARIANT)
    if has_other_data:
        return NO_ANSWER.format(reason=OTHER_DATA)
    first_reason = next((reason for reason in reasons if reason), NO_CONTRAST)
    return NO_ANSWER.format(reason=first_reason)
