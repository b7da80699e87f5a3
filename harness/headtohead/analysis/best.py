"""Which variants of an experiment may be printed as the best."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headtohead.analysis.contrasts import Family
from headtohead.analysis.scores import Scores, score_mismatch
from headtohead.storage.metrics import counted, higher_is_better
from headtohead_judge.best import BestComparison, compare_with_best
from headtohead_judge.contrast import ScoreTable, Side, shared_seeds
from headtohead_judge.verdicts import BETTER

NOT_DECIDED = "{open} of {others} can still be the best: neither equivalent to it nor worse than another variant"


@dataclass(frozen=True)
class BestVariants:
    """The variants that are the best, or with ``reason`` why no variant can be named."""

    slugs: frozenset[str] = frozenset()
    reason: str = ""


Compare = Callable[[frozenset[str]], Mapping[str, BestComparison]]
"""`compare_variants` of a study, which computes the comparisons of the same variants once."""


def best_variants(scores: Scores, family: Family, compare: Compare) -> BestVariants:
    """Return the variants that the intervals support as the best, or why no variant can be named.

    The best are the variant with the best mean, those that have its score in every seed, and those that no other
    variant can exceed by the margin. No variant is named if one of the others is not shown to be worse than some
    variant, or if the baseline is not among the best and one of them is not shown to be better than it. Neither is a
    variant named if runs collapsed, if results or scores are missing, if scores cannot be compared, with fewer than two
    trained variants, or if two of them share fewer than two seeds.

    Args:
        scores: The scores of the study.
        family: The contrasts of all variants with the baseline.
        compare: `compare_variants` of these scores.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    frames, ranked = scores.frames, scores.ranked
    reason = _why_not_comparable(scores)
    if reason:
        return BestVariants(reason=reason)
    comparisons = compare(frozenset(ranked))
    if not comparisons:
        return BestVariants(reason="there are too few seeds or variants for a test")
    leader = max(ranked, key=lambda slug: scores.sign * scores.summaries[slug].mean)
    scores_of_leader = frames.scores(leader, scores.metric)
    best = []
    num_open = 0
    for slug in ranked:
        comparison = comparisons[frames.trained(slug)]
        if comparison.is_equivalent or frames.scores(slug, scores.metric) == scores_of_leader:
            best.append(slug)
        elif not comparison.is_worse:
            num_open += 1
    if num_open:
        others = counted(len(ranked) - 1, "other variant")
        return BestVariants(reason=NOT_DECIDED.format(open=num_open, others=others))
    if frames.baseline not in best:
        directions = {contrast.variant: contrast.direction for contrast in family.contrasts}
        if any(directions.get(slug) != BETTER for slug in best):
            return BestVariants(reason="the best mean is not shown to be better than the baseline")
    return BestVariants(frozenset(best))


def _why_not_comparable(scores: Scores) -> str:
    """Return the first reason why the scores of all variants cannot be compared with each other; empty if they can."""
    frames = scores.frames
    if scores.incomplete:
        return "variants are incomplete"
    if scores.unranked:
        return "not all variants are ranked"
    if scores.judged_on:
        return "the scores of some variants are those of another metric"
    for slug in scores.ranked:
        if score_mismatch(frames, slug, frames.baseline, scores.metric):
            return "the scores of the variants are not comparable"
    return "runs collapsed" if scores.collapsed else ""


def compare_variants(scores: Scores, slugs: Iterable[str]) -> dict[str, BestComparison]:
    """Return the comparison of each variant with all others, by the slug of the variant that has the runs.

    Variants that equal each other are one. Empty with fewer than two trained variants, and if two of them share fewer
    than two seeds. Collapsed runs do not count. The margin is None without room above the best mean (`Scores.margin`).

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    frames, metric = scores.frames, scores.metric
    trained = sorted({frames.trained(slug) for slug in slugs})
    sides = [Side(slug, metric) for slug in trained]
    table = scores.table(sides)
    if len(trained) < 2 or not _every_two_share_seeds(table, sides):
        return {}
    leader = max(trained, key=lambda slug: scores.sign * scores.healthy_summary(slug, metric).mean)
    comparisons = compare_with_best(
        sides,
        table,
        margin=scores.margin(metric, [leader]),
        higher_is_better=bool(higher_is_better(metric)),
        looks=frames.looks,
    )
    return {side.variant: comparison for side, comparison in comparisons.items()}


def _every_two_share_seeds(table: ScoreTable, sides: Sequence[Side]) -> bool:
    """Return whether every two sides have a score that counts in at least two seeds."""
    for pair in itertools.combinations(sides, 2):
        if len(shared_seeds([table.scores[side] for side in pair])) < 2:
            return False
    return True
