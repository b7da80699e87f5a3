"""The scores of an experiment in one metric: means, order, and which variants can be ranked and compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headtohead.analysis.example_values import example_values
from headtohead.analysis.selection import Selections, selections
from headtohead.config.entries import label_options
from headtohead.data.metrics import find_metric
from headtohead.planning.variants import comparison_group
from headtohead.schema.metric import UNPADDED, Metric, leaf
from headtohead.schema.run_config import RunConfig
from headtohead.storage import states
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import higher_is_better, is_per_token, span, stored, unpadded
from headtohead_judge.collapse import collapsed, exact_interval, fisher_p
from headtohead_judge.contrast import ScoreTable, Side, shared_seeds
from headtohead_judge.examples import Examples
from headtohead_judge.paired_tests import CONFIDENCE, Interval, Summary, summarise

VALID_LOSS = "valid/loss"
OTHER_DATA = "the variants use different data sets"


class Scores:
    """The scores of all variants in ``metric``, by default the primary metric of the experiment.

    ``allow_partial`` ranks variants on the seeds that are finished.

    Raises:
        HeadToHeadError: If neither the record of the experiment nor a loaded dataset declares ``metric``, or the metric
            of a margin or a contrast; or if two loaded datasets declare different metrics of such a name.
    """

    def __init__(
        self, frames: Frames, metric: str | None = None, *, allow_partial: bool = False
    ) -> None:
        self.frames = frames
        self.metric = metric or frames.record.metrics.primary
        self.allow_partial = allow_partial
        self._require_known_metrics()

    def _require_known_metrics(self) -> None:
        """Raise as the class, so that no property has to."""
        names = {self.metric, *self.frames.record.margins}
        for record in self.frames.record.contrasts:
            names.update(record.contrast(self.metric).metrics)
        for name in sorted(names):
            higher_is_better(name)
            find_metric(name)

    @property
    def sign(self) -> float:
        """1 if larger values of the metric are better, else -1."""
        return 1.0 if higher_is_better(self.metric) else -1.0

    @cached_property
    def summaries(self) -> Mapping[str, Summary]:
        """Mean and interval over seeds by variant."""
        return {slug: self.frames.summary(slug, self.metric) for slug in self.frames.by_slug}

    @property
    def baseline_sd(self) -> float:
        """The standard deviation of the baseline over seeds without a collapsed run."""
        return self.healthy_summary(self.frames.baseline, self.metric).sd

    @cached_property
    def data_sets(self) -> tuple[tuple[str, ...], ...]:
        """The variants with runs of their own, grouped by data set.

        A variant joins the first group with a first variant for which `same_data_set` holds. A seed changes the same
        things in all variants of a group, so it is their block.
        """
        groups: list[list[str]] = []
        trained = dict.fromkeys(self.frames.trained(slug) for slug in self.frames.by_slug)
        for slug in trained:
            for group in groups:
                if same_data_set(self.frames, group[0], slug):
                    group.append(slug)
                    break
            else:
                groups.append([slug])
        return tuple(tuple(group) for group in groups)

    def table(self, sides: Iterable[Side]) -> ScoreTable:
        """Return the scores with which a contrast of trained variants is estimated; collapsed runs have NaN.

        For sides of a single metric and a single range of source lengths, the table has the scores of all trained
        variants, and the variants of a data set are a block. If the sides are of all lengths, it also has the values of
        single examples and the variances of the choices of tuned values, where there are any. For sides of several
        metrics or ranges, it has the scores of these sides alone.

        Raises:
            HeadToHeadError: If the stored values per example of a run are damaged.
        """
        kinds = {(side.metric, side.lengths) for side in sides}
        if len(kinds) == 1:
            return self._tables(*kinds.pop())
        return ScoreTable({side: self._with_collapsed(side) for side in sides})

    @cached_property
    def _tables(self) -> Callable[[str, tuple[int, int] | None], ScoreTable]:
        """Return the table of a metric for some source lengths; each is made once."""
        return cache(self._table)

    def _table(self, metric: str, lengths: tuple[int, int] | None) -> ScoreTable:
        """Return the scores of all trained variants, NaN for collapsed runs; the variants of a data set are a block.

        With ``lengths``, the table has neither values of test examples nor variances of choices.

        Raises:
            HeadToHeadError: If the stored values per example of a run are damaged.
        """
        blocks = []
        scores = {}
        for data_set in self.data_sets:
            block = tuple(Side(slug, metric, lengths) for slug in data_set)
            blocks.append(block)
            for side in block:
                scores[side] = self._with_collapsed(side)
        if lengths:
            return ScoreTable(scores, tuple(blocks))
        selection = {}
        for slug, variance_of_choice in self.selections(metric).by_variant.items():
            selection[Side(slug, metric)] = variance_of_choice
        test_sets = self.test_examples(metric).test_sets
        return ScoreTable(scores, tuple(blocks), test_sets, selection)

    @cached_property
    def selections(self) -> Callable[[str], Selections]:
        """Return the variance that the choice of a tuned value adds to the mean of each variant in a metric."""
        return cache(self._selections)

    def _selections(self, metric: str) -> Selections:
        return selections(self.frames.record.tuning, metric)

    @cached_property
    def test_examples(self) -> Callable[[str], TestExamples]:
        """Return the values of single examples in a metric, of all trained variants with scores."""
        return cache(self._read_test_examples)

    def _read_test_examples(self, metric: str) -> TestExamples:
        """Return the values of single examples by test set, and why other trained variants with scores have none.

        Raises:
            HeadToHeadError: If the stored values per example of a run are damaged.
        """
        test_sets: dict[str, dict[Side, dict[int, NDArray[np.float64]]]] = {}
        num_groups = {}
        reasons = {}
        for slug in dict.fromkeys(map(self.frames.trained, self.frames.by_slug)):
            if not self.frames.scores(slug, metric):
                continue
            stored = example_values(self.frames, slug, metric)
            if isinstance(stored, str):
                reasons[slug] = stored
                continue
            by_seed = dict(zip(stored.seeds, stored.values, strict=True))
            test_sets.setdefault(stored.examples_hash, {})[Side(slug, metric)] = by_seed
            num_groups[stored.examples_hash] = stored.values.shape[1]
        examples = []
        for sha256, values in test_sets.items():
            examples.append(Examples(np.arange(num_groups[sha256]), values))
        return TestExamples(tuple(examples), reasons)

    def _with_collapsed(self, side: Side) -> dict[int, float]:
        """Return the scores of a side by seed, NaN for collapsed runs."""
        failed = self.collapsed.get(self.frames.trained(side.variant), frozenset())
        by_seed = scores_of(self.frames, side)
        return {seed: math.nan if seed in failed else value for seed, value in by_seed.items()}

    @cached_property
    def collapsed(self) -> Mapping[str, frozenset[int]]:
        """The seeds of collapsed runs by variant with runs of its own, without variants that have none.

        A run collapsed if its validation loss is far above the others of its data set; see `collapsed` of the judge.
        Variants without comparable losses have none.
        """
        seeds_of: dict[str, frozenset[int]] = {}
        for group in self.data_sets:
            losses = self._comparable_losses(group)
            if not losses:
                continue
            flags = collapsed([[*by_seed.values()] for by_seed in losses.values()])
            for (slug, by_seed), flags_of_variant in zip(losses.items(), flags, strict=True):
                flagged = zip(by_seed, flags_of_variant, strict=True)
                seeds = frozenset(seed for seed, is_collapsed in flagged if is_collapsed)
                if seeds:
                    seeds_of[slug] = seeds
        return seeds_of

    def _comparable_losses(self, group: Sequence[str]) -> dict[str, dict[int, float]]:
        """Return the final validation losses by variant and seed, of the variants comparable with the reference.

        The reference is the baseline, if the data set has it, else the first variant. Variants without a loss are left
        out.

        Args:
            group: The variants of a data set; at least one.
        """
        baseline = self.frames.trained(self.frames.baseline)
        reference = baseline if baseline in group else group[0]
        losses = {}
        for slug in group:
            by_seed = self.frames.scores(slug, VALID_LOSS)
            if by_seed and not per_token_mismatch(self.frames, slug, reference, VALID_LOSS):
                losses[slug] = by_seed
        return losses

    @cached_property
    def collapses(self) -> Mapping[str, Collapse]:
        """How many runs collapsed, of the baseline and of every variant with a collapsed run; empty without any.

        A baseline without a validation loss is left out.
        """
        if not self.collapsed:
            return {}
        baseline = self.frames.trained(self.frames.baseline)
        collapses = {}
        for slug in dict.fromkeys([baseline, *self.collapsed]):
            runs = len(self.frames.scores(slug, VALID_LOSS))
            if runs:
                collapses[slug] = self._collapse(slug, runs)
        return collapses

    def _collapse(self, slug: str, runs: int) -> Collapse:
        """Return how many runs of a variant collapsed, with the scores of all its runs and of the healthy ones.

        ``p`` is that of Fisher's exact test against the baseline: NaN for the baseline itself, and 1 if no run of the
        baseline has a validation loss. ``healthy`` is NaN if all runs collapsed.

        Args:
            slug: A variant with runs of its own; another one would count as without collapsed runs.
            runs: The number of its runs with a final validation loss; at least 1.
        """
        baseline = self.frames.trained(self.frames.baseline)
        count = len(self.collapsed.get(slug, ()))
        p = math.nan
        if slug != baseline:
            baseline_count = len(self.collapsed.get(baseline, ()))
            baseline_runs = len(self.frames.scores(baseline, VALID_LOSS))
            p = fisher_p(count, runs, baseline_count, baseline_runs)
        healthy_scores = [*self.healthy(Side(slug, self.metric)).values()]
        return Collapse(
            collapsed=count,
            runs=runs,
            interval=Interval(*exact_interval(count, runs, CONFIDENCE)),
            p=p,
            all_runs=self.frames.summary(slug, self.metric),
            healthy=summarise(healthy_scores, span(self.metric)),
        )

    def healthy(self, side: Side) -> dict[int, float]:
        """Return the scores of a side by seed, without collapsed runs; empty without a score.

        Raises:
            KeyError: If the experiment has no such variant.
        """
        by_seed = self._with_collapsed(side)
        return {seed: value for seed, value in by_seed.items() if not math.isnan(value)}

    def shared_seeds(self, sides: Iterable[Side]) -> list[int]:
        """Return the seeds in which all sides have a score and no run collapsed; none without sides."""
        return shared_seeds([self._with_collapsed(side) for side in sides])

    def margin(
        self, metric: str, references: Collection[str], others: Collection[str] = ()
    ) -> float | None:
        """Return the margin for a verdict on the size of a difference; None if no verdict can use it.

        No verdict can if there is none, if scores cannot get better than the references by as much (`room`), or if
        scores cannot get worse than the better side by as much (`height`).

        Args:
            metric: A metric of the experiment.
            references: The variants that others are compared with.
            others: The variants that are compared with them. Empty if the references have the best scores.

        Raises:
            KeyError: If the experiment lacks one of the variants.
        """
        margin = self.frames.record.margins.get(metric)
        if margin is None or margin.value > self.room(metric, references):
            return None
        sides = (references, others) if others else (references,)
        return None if margin.value > self.height(metric, sides) else margin.value

    def room(self, metric: str, references: Collection[str]) -> float:
        """Return how much better a score can be than the mean of some variants.

        It is infinite if the metric has no best value, or if one of the variants has no score of a healthy run.

        Args:
            metric: A metric of the experiment.
            references: The variants. Their means have equal weight; collapsed runs do not count.

        Raises:
            KeyError: If the experiment lacks one of the variants.
        """
        lowest, highest = span(metric)
        best = highest if higher_is_better(metric) else lowest
        return self._distance(metric, references, best)

    def height(self, metric: str, sides: Iterable[Collection[str]]) -> float:
        """Return how much worse a score can be than the better side of a comparison.

        It is infinite if the metric has no worst value, or if a variant has no score of a healthy run.

        Args:
            metric: A metric of the experiment.
            sides: The variants of each side; at least one side. The mean of a side is as in `room`.

        Raises:
            KeyError: If the experiment lacks one of the variants.
        """
        worst = worst_score(metric)
        return max(self._distance(metric, slugs, worst) for slugs in sides)

    def _distance(self, metric: str, slugs: Collection[str], bound: float) -> float:
        """Return the distance of the mean of some variants from a bound, infinite without a score."""
        mean = sum(self.healthy_summary(slug, metric).mean for slug in slugs) / len(slugs)
        return math.inf if math.isnan(mean) else abs(bound - mean)

    def healthy_summary(self, slug: str, metric: str) -> Summary:
        """Return mean and standard deviation of a variant over seeds without a collapsed run, NaN without any.

        Raises:
            KeyError: If the experiment has no variant ``slug``.
        """
        return summarise([*self.healthy(Side(slug, metric)).values()])

    @cached_property
    def sd_ratios(self) -> Mapping[str, float]:
        """The variants with a significantly larger variance than the others of their data set, as a ratio of sds.

        Raises:
            HeadToHeadError: If the stored values per example of a run are damaged.
        """
        ratios = {}
        for _, larger in self._tables(self.metric, None).pooled_blocks:
            for side, ratio in larger.items():
                ratios[side.variant] = ratio
        return ratios

    @cached_property
    def missing_seeds(self) -> Mapping[str, str]:
        """The variants with a seed without a score in ``metric``, with the counts by cause of `why_seeds_missing`."""
        reasons = {}
        for slug in self.frames.by_slug:
            reason = why_seeds_missing(self.frames, slug, self.metric)
            if reason is not None:
                reasons[slug] = reason
        return reasons

    @cached_property
    def judged_on(self) -> Mapping[str, str]:
        """The metric of each variant that is judged on another metric than ``metric``.

        These are the variants of declared contrasts that have a score of every seed in the metric of the contrast and
        none in ``metric``, such as those of a text. The first such contrast of a variant counts.
        """
        metric_of: dict[str, str] = {}
        for record in self.frames.record.contrasts:
            if record.family != "declared":
                continue
            for side in record.contrast(self.metric).sides:
                has_scores = why_seeds_missing(self.frames, side.variant, side.metric) is None
                if has_scores and not self.summaries[side.variant].n:
                    metric_of.setdefault(side.variant, side.metric)
        return metric_of

    @cached_property
    def unranked(self) -> Mapping[str, str]:
        """The variants that are not ranked, with the reason of `missing_seeds`.

        These are the variants with a seed without a score in ``metric``, except those that are `judged_on` another
        metric, and with ``allow_partial`` those with a score of any seed.
        """
        reasons = {}
        for slug, reason in self.missing_seeds.items():
            is_partial = self.allow_partial and self.summaries[slug].n > 0
            if slug not in self.judged_on and not is_partial:
                reasons[slug] = reason
        return reasons

    @cached_property
    def incomplete(self) -> Mapping[str, str]:
        """The variants with seeds without a result, each with a text such as ``2 of 6 seeds without a result``.

        A run that was not run, not finished or failed has no result; a diverged one has.
        """
        seeds = len(self.frames.seeds)
        texts = {}
        for slug in self.frames.by_slug:
            has_result = self.frames.rows(slug)["state"].isin(states.RESULTS)
            missing = seeds - int(has_result.sum())
            if missing > 0:
                texts[slug] = f"{missing} of {seeds} seeds without a result"
        return texts

    @cached_property
    def order(self) -> tuple[str, ...]:
        """All variants, in groups of equal values of the axes ``data`` and ``size``, best first in each group.

        The groups are in the order of their first variants. A variant counts by its mean in the metric that it is
        judged on. Variants with missing seeds come last in their group, unless ``allow_partial``; among them and among
        the others, those without a mean come last.
        """
        group_of = {}
        for slug, variant in self.frames.by_slug.items():
            group_of[slug] = tuple(comparison_group(variant.axes).items())
        groups = list(dict.fromkeys(group_of.values()))

        def sort_key(slug: str) -> tuple[int, bool, bool, float]:
            metric = self.judged_on.get(slug, self.metric)
            mean = self.frames.summary(slug, metric).mean
            is_incomplete = slug in self.missing_seeds and not self.allow_partial
            group = groups.index(group_of[slug])
            if math.isnan(mean):
                return group, is_incomplete, True, 0.0
            if higher_is_better(metric):
                mean = -mean
            return group, is_incomplete, False, mean

        return tuple(sorted(group_of, key=sort_key))

    @cached_property
    def ranked(self) -> tuple[str, ...]:
        """The variants with a reported mean in ``metric``, best first."""
        without_mean = self.unranked.keys() | self.judged_on.keys()
        return tuple(slug for slug in self.order if slug not in without_mean)

    def leading(self, most: int, among: Collection[str] | None = None) -> list[str]:
        """Return the best variants in their `order`: at most ``most``, about equally many of every data set.

        The baseline is always one of them, if it is ``among`` the variants: it replaces the last one and comes last.

        Args:
            most: Maximum number of variants; at least 1.
            among: The slugs to choose from, by default all; others than those of the study are ignored.
        """
        order = [slug for slug in self.order if among is None or slug in among]
        ranks: list[tuple[int, str]] = []
        for group in self.data_sets:
            in_group = [slug for slug in order if self.frames.trained(slug) in group]
            ranks += enumerate(in_group)
        # The best of every data set first, then the second ones.
        ranks.sort(key=lambda ranked: ranked[0])
        chosen = [slug for _, slug in ranks][:most]
        best = sorted(chosen, key=order.index)
        baseline = self.frames.baseline
        if baseline in order and baseline not in best:
            best = [*best[:-1], baseline]
        return best

    @cached_property
    def upper_bound(self) -> float | None:
        """The bag-of-words upper bound: the highest exact match that an order-invariant encoder can reach.

        None if the data states none or one of at least 1, if the metric is not computed from exact matches, if no
        variant has an encoder, or if the baseline is scored on a sample of the test set (``test_limit``).
        """
        bound = self.frames.record.data.get("bag_of_words_upper_bound")
        if bound is None or float(bound) >= 1 or leaf(stored(self.metric)) != "exact_match":
            return None
        variants = self.frames.by_slug.values()
        has_encoder = any("encoder" in variant.config.roles for variant in variants)
        if not has_encoder or not self._has_bound(self.frames.baseline):
            return None
        return float(bound)

    @cached_property
    def upper_bound_verdicts(self) -> Mapping[str, str]:
        """Whether the best score of each order-invariant variant respects the bag-of-words upper bound, as a clause.

        Empty without an upper bound. Variants without scores, on other data, or scored on a sample are left out. Scores
        without padding are used where they were evaluated: padding that a mask does not hide reveals the sentence
        length to the encoder, which a bag of words does not.
        """
        if self.upper_bound is None:
            return {}
        verdicts = {}
        metric = stored(self.metric)
        for slug, variant in self.frames.by_slug.items():
            scores = self.frames.scores(slug, unpadded(metric)) or self.frames.scores(slug, metric)
            if not scores or not variant.order_invariant or not self._has_bound(slug):
                continue
            if max(scores.values()) > self.upper_bound + 1e-9:
                verdicts[slug] = "exceeds the upper bound: suspect"
            else:
                verdicts[slug] = "within the upper bound"
        return verdicts

    def _has_bound(self, slug: str) -> bool:
        """Return whether the upper bound of the baseline's test data is that of a variant's scores."""
        limit = self.frames.by_slug[slug].config.evaluate.test_limit
        scores_all = limit is None or limit >= self.frames.record.data["counts"]["test"]
        return scores_all and self.frames.same_data((slug, self.frames.baseline))


class TestExamples(NamedTuple):
    """The values of single examples in a metric.

    Attributes:
        test_sets: The values of the variants that are tested on the same examples, for each test set.
        reasons: Why a trained variant has no values, by its slug.
    """

    test_sets: tuple[Examples[Side], ...]
    reasons: Mapping[str, str]


class Collapse(NamedTuple):
    """How many of a variant's runs collapsed.

    Attributes:
        collapsed: Number of collapsed runs.
        runs: Number of runs with a final validation loss.
        interval: Exact interval of the rate.
        p: p of Fisher's test against the rate of the baseline.
        all_runs: The scores of all runs.
        healthy: The scores of the runs that did not collapse.
    """

    collapsed: int
    runs: int
    interval: Interval
    p: float
    all_runs: Summary
    healthy: Summary


def worst_score(metric: str) -> float:
    """Return the worst possible value of a metric; infinite without a bound.

    Raises:
        HeadToHeadError: If neither a record that was read nor a loaded dataset declares the metric.
    """
    lowest, highest = span(metric)
    return lowest if higher_is_better(metric) else highest


def scores_of(frames: Frames, side: Side) -> dict[int, float]:
    """Return the scores of a side of a contrast by seed, those of its source lengths if it has some.

    Seeds without a score are missing; collapsed runs are included.
    """
    if side.lengths is None:
        return frames.scores(side.variant, side.metric)
    return pooled_scores(frames, side.variant, side.metric, side.lengths)


def missing_scores(frames: Frames, side: Side, scores: Mapping[int, float]) -> str | None:
    """Return how many seeds of a side have no score and why, or how to compute the scores; None if none is missing.

    If seeds lack the metric for all lengths, only these are counted, also for a side of some source lengths.

    Args:
        frames: The experiment.
        side: A side of a contrast.
        scores: The scores of the side by seed.

    Raises:
        KeyError: If the experiment has no such variant, unless a score of masked heads is missing.
    """
    missing = [seed for seed in frames.seeds if seed not in scores]
    if missing and side.metric.startswith("heads/"):
        return f"no head ablation; run h2h ablate-heads {frames.record.name}, then h2h report"
    reason = why_seeds_missing(frames, side.variant, side.metric)
    if reason or not missing:
        return reason
    return f"{len(missing)} of {len(frames.seeds)} seeds without {side.metric} at these lengths"


_CAUSES = {
    states.PLANNED: "not run",
    states.LEASED: "not finished",
    states.RUNNING: "not finished",
    states.INTERRUPTED: "not finished",
    states.OOM: "out of memory",
    states.TIMEOUT: "timed out",
}
"""Why a seed has no score, by the state of its run; other states are named in lower case."""


def why_seeds_missing(frames: Frames, slug: str, metric: str) -> str | None:
    """Return how many seeds of a variant have no score in a metric: ``2 out of memory, 1 not run of 5 seeds``.

    None if every seed of the experiment has a score. For a variant that equals another one, the runs of that one count.

    Raises:
        KeyError: If the experiment has no variant ``slug``.
    """
    scores = frames.scores(slug, metric)
    rows = frames.rows(slug)
    state_of = dict(zip(rows["seed"].tolist(), rows["state"].tolist(), strict=True))
    cause_of = {**_CAUSES, states.DONE: f"without {metric}"}
    counts: Counter[str] = Counter()
    for seed in frames.seeds:
        if seed not in scores:
            state = state_of.get(seed, states.PLANNED)
            cause = cause_of.get(state, state.lower())
            counts[cause] += 1
    if not counts:
        return None
    by_cause = ", ".join(f"{count} {cause}" for cause, count in counts.items())
    return f"{by_cause} of {len(frames.seeds)} seeds"


def score_mismatch(frames: Frames, left: str, right: str, metric: str) -> str | None:
    """Return why the scores of two variants cannot be compared, or None.

    Raises:
        KeyError: If the experiment lacks one of the variants.
    """
    if not same_data_set(frames, left, right):
        return OTHER_DATA
    return per_token_mismatch(frames, left, right, metric)


def same_data_set(frames: Frames, left: str, right: str) -> bool:
    """Return whether two variants have the same dataset, languages, and values of the axes ``data`` and ``size``.

    Number of examples and split can differ. The languages are those in the records of the runs. A variant without a
    record has the same languages as any other, so the relation is not transitive: it can hold for A and B, and for B
    and C, but not for A and C.

    Raises:
        KeyError: If the experiment lacks one of the variants.
    """
    data_sets = set()
    languages = set()
    for slug in (left, right):
        variant = frames.by_slug[slug]
        group = comparison_group(variant.axes)
        data_sets.add((*group.items(), variant.config.data.dataset))
        for run in frames.rows(slug).index:
            if run not in frames.records:
                continue
            languages_of_run = tuple(frames.records[run].data["languages"])
            if languages_of_run:  # empty for data without languages, or with unknown ones
                languages.add(languages_of_run)
    return len(data_sets) == 1 and len(languages) < 2


def per_token_mismatch(frames: Frames, left: str, right: str, metric: str) -> str | None:
    """Return why the scores per token of two variants cannot be compared, or None for other metrics and if they can.

    Losses, perplexities and token accuracies are comparable if all runs have the same data, and the configurations
    equal tokens, vocabularies, target boundaries and options of quirks that change labels; training losses also need
    equal label smoothing and z-loss.

    Raises:
        KeyError: If the experiment lacks one of the variants, and ``metric`` is a score per token.
    """
    if not is_per_token(metric):
        return None
    fields: dict[str, Callable[[RunConfig], object]] = {
        "vocabularies": attrgetter("data.tokens", "data.vocabulary"),
        "labels": lambda config: (label_options(config), config.data.target_boundaries),
    }
    if metric.startswith("train/"):
        fields["label smoothing values"] = attrgetter("train.label_smoothing")
        fields["z-losses"] = attrgetter("train.z_loss")
    left_config = frames.by_slug[left].config
    right_config = frames.by_slug[right].config
    differing = []
    for name, values in fields.items():
        if values(left_config) != values(right_config):
            differing.append(name)
    # Vocabularies are made from the data.
    if "vocabularies" not in differing and not frames.same_data((left, right)):
        differing.insert(0, "vocabularies")
    if not differing:
        return None
    return f"scores per token are not comparable: {' and '.join(differing)} differ"


def pooled_scores(
    frames: Frames, slug: str, metric: str, lengths: tuple[int, int]
) -> dict[int, float]:
    """Return a variant's score over the test sentences of these source lengths, by seed.

    Only buckets that lie inside the lengths count. Runs without counts at these lengths are left out. The result is
    empty for metrics that cannot be computed from counts, and if no run of the experiment stored counts.

    Args:
        frames: The experiment.
        slug: The variant.
        metric: A metric of the padded test sentences; others have no scores.
        lengths: The shortest and the longest source, in tokens.

    Raises:
        KeyError: If the experiment has no variant ``slug``, and the result is not empty for one of these two reasons.
    """
    table = frames.buckets
    declared = of_test_sentences(metric)
    if declared is None or declared.pool is None or "counts" not in table:
        return {}
    shortest, longest = lengths
    is_inside = (table["low"] >= shortest) & (table["high"] <= longest)
    buckets = table[is_inside].dropna(subset=["counts"])
    name = declared.counts_of or declared.name
    scores = {}
    for run, seed in frames.rows(slug)["seed"].items():
        counts_of_run = buckets.loc[buckets["run"] == run, "counts"]
        counts = [by_name[name] for by_name in counts_of_run if name in by_name]
        if counts:
            totals = np.array(counts).sum(axis=0)
            scores[int(seed)] = declared.pool(totals.tolist())
    return scores


def of_test_sentences(metric: str) -> Metric | None:
    """Return a metric of the padded test sentences with its functions.

    None for other data, no padding, or a metric that no loaded dataset declares.
    """
    if not metric.startswith("test/") or metric.endswith(UNPADDED):
        return None
    return find_metric(metric)
