"""Which variants of an experiment may be printed as the best."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from headtohead.analysis.contrasts import Family
from headtohead.analysis.scores import Scores, Side, score_mismatch
from headtohead.storage.metrics import counted, higher_is_better
from headtohead_judge.best import BestComparison, compare_with_best
from headtohead_judge.verdicts import BETTER


@dataclass(frozen=True)
class BestVariants:
    """The variants that are the best, or with ``reason`` why no variant can be named."""

    slugs: frozenset[str] = frozenset()
    reason: str = ""


def best_variants(scores: Scores, family: Family) -> BestVariants:
    """Return the variants that the tests support as the best; ``family`` compares all variants with the baseline.

    The variant with the best mean is among them if every other variant is equal to it in every seed, equivalent to it
    within the margin, or significantly worse than another variant. Equal and equivalent variants are among them too.
    If the baseline is not, the verdict on each of them must be better.
    """
    frames, metric, ranked = scores.frames, scores.metric, scores.ranked
    if scores.incomplete:
        return BestVariants(reason="variants are incomplete")
    if scores.unranked:
        return BestVariants(reason="not all variants are ranked")
    if scores.judged_on:
        return BestVariants(reason="the scores of some variants are those of another metric")
    if any(score_mismatch(frames, slug, frames.baseline, metric) for slug in ranked):
        return BestVariants(reason="the scores of the variants are not comparable")
    if scores.collapsed:
        return BestVariants(reason="runs collapsed")
    compared = compare_variants(scores, ranked)
    if not compared:
        return BestVariants(reason="there are too few seeds or variants for a test")
    leader = max(ranked, key=lambda slug: scores.sign * scores.summaries[slug].mean)
    best = frozenset(
        slug
        for slug in ranked
        if compared[frames.trained(slug)].is_equivalent
        or frames.scores(slug, metric) == frames.scores(leader, metric)
    )
    if undecided := sum(
        slug not in best and not compared[frames.trained(slug)].is_worse for slug in ranked
    ):
        return BestVariants(
            reason=f"{undecided} of {counted(len(ranked) - 1, 'other variant')} can still be the best: neither "
            "equivalent to the best mean nor significantly worse than another variant"
        )
    verdicts = {contrast.left: contrast.direction for contrast in family.contrasts}
    if frames.baseline not in best and any(verdicts.get(slug) != BETTER for slug in best):
        return BestVariants(reason="the best mean is not significantly better than the baseline")
    return BestVariants(best)


def compare_variants(scores: Scores, slugs: Iterable[str]) -> dict[str, BestComparison]:
    """Return the comparisons with the best by slug of the trained variants; empty if there are too few seeds.

    Collapsed runs do not count.
    """
    frames, metric = scores.frames, scores.metric
    trained = sorted({frames.trained(slug) for slug in slugs})
    found = [frames.scores(slug, metric) for slug in trained]
    seeds = sorted(set.intersection(*map(set, found))) if found else []
    if min(len(trained), len(seeds)) < 2:
        return {}
    healthy = [scores.healthy(Side(slug, metric)) for slug in trained]
    leader = max(trained, key=lambda slug: scores.sign * scores.healthy_summary(slug, metric).mean)
    compared = compare_with_best(
        [[by_seed.get(seed, math.nan) for seed in seeds] for by_seed in healthy],
        margin=scores.margin(metric, [leader]),
        higher_is_better=higher_is_better(metric),
        looks=frames.looks,
    )
    return dict(zip(trained, compared, strict=True))
