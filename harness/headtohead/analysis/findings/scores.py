"""Rules on scores: at the end of their scale, of collapsed or copied runs, and below a model that learns nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

from headtohead.analysis.convergence import LOSS
from headtohead.analysis.findings.finding import (
    MAX_NAMED,
    Sentence,
    caution,
    note,
    of_titles,
    titles,
    warning,
)
from headtohead.analysis.reference_points import ReferenceComparison
from headtohead.analysis.scores import same_data_set, score_mismatch, worst_score
from headtohead.analysis.study import Analysis
from headtohead.config.labels import listed
from headtohead.storage.metrics import counted, higher_is_better, readable, show
from headtohead_judge.collapse import SENSITIVITY
from headtohead_judge.copies import Curve, Run, copy_warnings

NO_SCORE = "Every run has the worst possible {metric}, {worst}, so this metric cannot compare the variants. {remedy}"
TRAIN_LONGER = "Train longer, or set metrics.primary to another metric."
CHANGE_VOCABULARY = (
    "The vocabulary upper bound is {worst}, so no model can score: use data.tokens: subword, or another split or "
    "data.normalise."
)


NO_SCORE_LIMIT = "no run scores"


@warning
def no_score(analysis: Analysis) -> Iterator[Sentence]:
    """Warn if every run with a score has the worst possible one; nothing without scores.

    Raises:
        HeadToHeadError: If the file of the reference points is damaged.
    """
    frames, metric = analysis.frames, analysis.metric
    worst = worst_score(metric)
    values = [value for slug in frames.by_slug for value in frames.scores(slug, metric).values()]
    if values and all(value == worst for value in values):
        text = NO_SCORE.format(
            metric=readable(metric), worst=show(worst, metric), remedy=_remedy(analysis)
        )
        yield Sentence(text, limit=NO_SCORE_LIMIT)


WIDE_MARGIN = (
    "The margin, {margin}, is wider than the distance of every score from the worst possible {metric} (best mean "
    "{best}), so no verdict uses the margin. {remedy}"
)

WIDE_MARGIN_LIMIT = "the margin is wider than the scores"


@warning
def wide_margin(analysis: Analysis) -> Iterator[Sentence]:
    """Warn if the means of all ranked variants are closer to the worst possible score than the margin.

    Nothing without a margin of the primary metric, without a mean, or for a metric without a worst score.

    Raises:
        HeadToHeadError: If the file of the reference points is damaged.
    """
    metric = analysis.metric
    worst = worst_score(metric)
    margin = analysis.frames.record.margins.get(metric)
    means = [analysis.summaries[slug].mean for slug in analysis.ranked]
    finite = [mean for mean in means if not math.isnan(mean)]
    if margin is None or not finite or not math.isfinite(worst):
        return
    best = max(finite) if higher_is_better(metric) else min(finite)
    if abs(best - worst) >= margin.value:
        return
    text = WIDE_MARGIN.format(
        margin=show(margin.value, metric, like=margin.value),
        metric=readable(metric),
        best=show(best, metric),
        remedy=_remedy(analysis),
    )
    yield Sentence(text, limit=WIDE_MARGIN_LIMIT)


def _remedy(analysis: Analysis) -> str:
    """Return what helps against worst scores: longer training cannot if the vocabulary allows no better score."""
    worst = worst_score(analysis.metric)
    points = analysis.reference_points.get(analysis.frames.baseline)
    if points and points.scores["vocabulary_bound"].get(analysis.metric) == worst:
        return CHANGE_VOCABULARY.format(worst=show(worst, analysis.metric))
    return TRAIN_LONGER


COLLAPSED = (
    "Collapsed runs, with a final validation loss far above that of all others: {runs}. A contrast leaves out every "
    "seed in which a run of either side collapsed. A ranking of pairs leaves out the collapsed runs only. In "
    "simulations, {sensitivity}."
)

COLLAPSED_LIMIT = "{runs} collapsed and left out"


@warning
def collapsed_runs(analysis: Analysis) -> Iterator[Sentence]:
    """Warn if runs collapsed."""
    runs = []
    for slug, seeds in analysis.collapsed.items():
        runs.append(f"{len(seeds)} {of_titles(analysis, [slug])}")
    if runs:
        text = COLLAPSED.format(runs=listed(runs), sensitivity=SENSITIVITY)
        number = sum(len(seeds) for seeds in analysis.collapsed.values())
        limit = COLLAPSED_LIMIT.format(runs=counted(number, "run"))
        yield Sentence(text, tuple(analysis.collapsed), limit)


COPIED_LIMIT = "runs can be copies of each other"


@warning
def copied_runs(analysis: Analysis) -> Iterator[Sentence]:
    """Warn of runs that can be copies of each other, or do not depend on their seed: at most two sentences.

    They have the same validation losses at every step, or more equal scores than the step of the metric explains; see
    `headtohead_judge.copies`. Variants are compared by title, without those that equal another one.
    """
    frames = analysis.frames
    names = {}
    scores = {}
    for slug, variant in frames.by_slug.items():
        if frames.trained(slug) != slug:
            continue
        names[slug] = variant.title
        by_seed = frames.scores(slug, analysis.metric)
        scores[variant.title] = {str(seed): value for seed, value in by_seed.items()}
    warnings = copy_warnings(
        scores,
        _loss_curves(analysis, names),
        baseline=names[frames.trained(frames.baseline)],
        metric=readable(analysis.metric),
        is_paired=True,
    )
    for text in warnings:
        yield Sentence(f"{text}.", limit=COPIED_LIMIT)


def _loss_curves(analysis: Analysis, names: dict[str, str]) -> dict[Run, Curve]:
    """Return the validation loss by step of each run that has one.

    Args:
        analysis: The study.
        names: The name of each variant with runs of its own, by slug.

    Raises:
        KeyError: If ``names`` lacks the variant of such a run.
    """
    histories = analysis.frames.histories
    losses = histories[histories["metric"] == LOSS].dropna(subset=["value"])
    curves: dict[Run, Curve] = {}
    for name, rows in losses.groupby("run", observed=True):
        record = analysis.frames.runs.loc[name]
        run = Run(names[str(record["variant"])], str(record["seed"]))
        curves[run] = dict(zip(rows["step"].tolist(), rows["value"].tolist(), strict=True))
    return curves


SUSPECT = "Suspect: above the bag-of-words upper bound of {bound:.3f} for order-invariant encoders: {variants}."

SUSPECT_LIMIT = "a score is above the upper bound"


@warning
def above_upper_bound(analysis: Analysis) -> Iterator[Sentence]:
    """Warn of scores that a model that ignores word order cannot reach."""
    verdicts = analysis.upper_bound_verdicts
    suspect = tuple(slug for slug, verdict in verdicts.items() if "suspect" in verdict)
    if suspect:
        variants = titles(analysis, suspect)
        text = SUSPECT.format(bound=analysis.upper_bound, variants=variants)
        yield Sentence(text, suspect, SUSPECT_LIMIT)


BELOW_REFERENCE = (
    "Not better than {reference} ({score} {metric}): {variants}; the best of them has {best}."
)
BELOW_LIMIT = "{who} not better than {reference}"
ALL = "the models are"
SOME = "some models are"
SHARE = "{below} of {compared} variants"


@caution
def below_nearest_neighbour(analysis: Analysis) -> Iterator[Sentence]:
    """Name the variants that do not beat the target of the most similar training sentence.

    Raises:
        HeadToHeadError: If the file of the reference points is damaged.
    """
    yield from _below(analysis, "nearest_neighbour", "nearest-neighbour retrieval")


@caution
def below_most_frequent_target(analysis: Analysis) -> Iterator[Sentence]:
    """Name the variants that do not beat the most frequent target of the training data.

    Raises:
        HeadToHeadError: If the file of the reference points is damaged.
    """
    yield from _below(analysis, "majority", "the most frequent target")


def _below(analysis: Analysis, point: str, name: str) -> Iterator[Sentence]:
    """Yield a sentence on the variants that do not beat a reference point, if there are any.

    Compared are the ranked variants with runs of their own, a mean score and the reference point, in the metric
    `Analysis.reference_metric`, of which higher values are better. More than MAX_NAMED variants are counted, not named.

    Args:
        analysis: The study.
        point: The reference point, such as ``nearest_neighbour``. If it was not computed, nothing is yielded.
        name: Its name in the sentence.

    Raises:
        HeadToHeadError: If the file of the reference points is damaged.
    """
    compared = analysis.reference_comparisons(point)
    below = [comparison for comparison in compared if not comparison.beaten]
    if not below:
        return
    slugs = tuple(comparison.slug for comparison in below)
    best = max(below, key=lambda comparison: comparison.score)
    if len(below) > MAX_NAMED:
        variants = SHARE.format(below=len(below), compared=len(compared))
    else:
        variants = titles(analysis, slugs)
    text = BELOW_REFERENCE.format(
        reference=name,
        score=_references(below),
        metric=readable(best.metric),
        variants=variants,
        best=show(best.score, best.metric),
    )
    limit = BELOW_LIMIT.format(who=ALL if len(below) == len(compared) else SOME, reference=name)
    yield Sentence(text, slugs, limit)


def _references(compared: list[ReferenceComparison]) -> str:
    """Return the score of a reference point, or its range: variants with other test sentences have their own.

    There is at least one comparison, and all have the same metric.
    """
    metric = compared[0].metric
    references = [comparison.reference for comparison in compared]
    lowest = show(min(references), metric)
    highest = show(max(references), metric)
    return lowest if lowest == highest else f"{lowest} to {highest}"


BELOW_BIGRAM = (
    "Not better than a bigram model, which predicts a token from the preceding one (test loss {bigram:.3f} nats): "
    "{variants}. Differences may disappear with longer training."
)


@caution
def below_bigram(analysis: Analysis) -> Iterator[Sentence]:
    """Name the ranked variants whose test loss is not below that of a bigram model; nothing without this loss.

    Variants whose losses are not comparable with the baseline's, or that have no test loss, are not named.
    """
    frames = analysis.frames
    losses = frames.record.data.get("losses_without_model", {})
    if "bigram" not in losses:
        return
    slugs = []
    for slug in analysis.ranked:
        is_comparable = not score_mismatch(frames, slug, frames.baseline, "test/loss")
        if is_comparable and frames.summary(slug, "test/loss").mean >= losses["bigram"]:
            slugs.append(slug)
    if slugs:
        variants = titles(analysis, slugs)
        text = BELOW_BIGRAM.format(bigram=losses["bigram"], variants=variants)
        who = ALL if len(slugs) == len(analysis.ranked) else SOME
        limit = BELOW_LIMIT.format(who=who, reference="a bigram model")
        yield Sentence(text, tuple(slugs), limit)


SPREAD = "{name} has a mean {metric} of {mean}, with a standard deviation of {sd} over seeds"
POOLED = "pooled over {scope}, it is {sd}"


@note
def spread(analysis: Analysis) -> Iterator[Sentence]:
    """State the baseline's mean and deviation, and the deviation pooled over the ranked variants of its data set.

    Collapsed runs do not count. Nothing with fewer than two scores of the baseline; no pooled deviation in a study of
    one variant, or if no ranked variant of the data set has two scores. The pooled deviation is the root of the mean
    variance.
    """
    frames, metric, sd = analysis.frames, analysis.metric, analysis.baseline_sd
    if math.isnan(sd):
        return
    mean = analysis.healthy_summary(frames.baseline, metric).mean
    if len(frames.by_slug) == 1:
        text = spread_text("The variant", metric, mean, sd)
        yield Sentence(f"{text}.", (frames.baseline,))
        return
    alike = [slug for slug in frames.by_slug if same_data_set(frames, slug, frames.baseline)]
    ranked = [slug for slug in alike if slug in analysis.ranked]
    scope = "all variants" if len(ranked) == len(alike) else "the ranked variants"
    if len(alike) < len(frames.by_slug):
        scope += " of its data and size"
    sds = [analysis.healthy_summary(slug, metric).sd for slug in ranked]
    variances = [value**2 for value in sds if math.isfinite(value)]
    baseline = f"The baseline, {frames.by_slug[frames.baseline].title},"
    text = spread_text(baseline, metric, mean, sd)
    if variances:
        pooled = math.sqrt(fmean(variances))
        text += f"; {pooled_text(scope, metric, pooled)}"
    yield Sentence(f"{text}.", (frames.baseline,))


def spread_text(name: str, metric: str, mean: float, sd: float) -> str:
    """Return mean and standard deviation over seeds of a variant, as a clause."""
    return SPREAD.format(
        name=name, metric=readable(metric), mean=show(mean, metric), sd=show(sd, metric)
    )


def pooled_text(scope: str, metric: str, sd: float) -> str:
    """Return the standard deviation pooled over the variants of ``scope``, as a clause."""
    return POOLED.format(scope=scope, sd=show(sd, metric))


MAX_RATIO = 2.0
"""Largest ratio of the variance of contrasts to the residual variance that is not stated; equal seed effects exceed it
in about 1 % of studies."""
SEED_EFFECTS = (
    "A seed has not the same effect on all variants: the variance of the differences is {ratio} times the residual "
    "variance of the variants. The intervals have the larger of the two."
)


@note
def seed_effects_differ(analysis: Analysis) -> Iterator[Sentence]:
    """State that the variance of the differences is more than `MAX_RATIO` times the residual variance of the variants.

    The ratio is the largest of the families that judge a main contrast.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    families = {contrast.judged_as for contrast in analysis.main_contrasts if contrast.judged_as}
    ratios = [analysis.families.variance_ratio(family) for family in families]
    largest = max((ratio for ratio in ratios if math.isfinite(ratio)), default=0.0)
    if largest > MAX_RATIO:
        yield Sentence(SEED_EFFECTS.format(ratio=f"{largest:.1f}"))
