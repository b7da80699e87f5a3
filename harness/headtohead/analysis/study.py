"""``Analysis``: every result of an experiment, computed once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property, partial
from statistics import fmean

from headtohead.analysis.best import BestVariants, Compare, best_variants, compare_variants
from headtohead.analysis.contrasts import ContrastResult, Families, families
from headtohead.analysis.convergence import Convergence, convergence
from headtohead.analysis.reference_points import (
    ReferenceComparison,
    ReferencePoints,
    reference_points,
)
from headtohead.analysis.scores import Scores
from headtohead.analysis.sweep import Sweep, sweep
from headtohead.analysis.two_way import TwoWayResult, two_way
from headtohead.analysis.uncertainty import Uncertainty, uncertainty
from headtohead.config.labels import axis_value, text
from headtohead.storage import states
from headtohead.storage.metrics import stored
from headtohead.storage.translations import translations_of
from headtohead_judge.looks import Looks
from headtohead_judge.paired_tests import ALPHA
from headtohead_judge.verdicts import (
    BY_LESS,
    DETECTED,
    EQUIVALENT,
    IDENTICAL,
    NO_VERDICT,
    NOT_SHOWN,
)


@dataclass(frozen=True)
class LooksStatus:
    """The looks of a study with sequential seeds.

    Attributes:
        looks: The planned looks.
        taken: The numbers of seeds at which the study was judged, without a look that has runs without a result.
        seeds: Number of seeds of the current look.
        complete: Whether every run of the current look has a result.
        undecided: Names of the main contrasts that more seeds can decide.
        untested: Names of the main contrasts that have no test, for example because runs failed.
    """

    looks: Looks
    taken: tuple[int, ...]
    seeds: int
    complete: bool
    undecided: tuple[str, ...]
    untested: tuple[str, ...]

    @property
    def level(self) -> float:
        """The level of a single test at each look."""
        return self.looks.level(ALPHA)

    @property
    def next(self) -> int | None:
        """The number of seeds of the next look, or None if the study ends at this look or the look has no end yet."""
        if not self.complete or not self.undecided:
            return None
        return self.looks.next(self.seeds)


class Analysis(Scores):
    """Every result of an experiment in one metric, computed on first use and kept.

    `Scores` has the results per variant.

    Files of the study are read on first use, too. So any property or method, and any rule or function of the report
    that uses it, may raise a `HeadToHeadError`: if a file of the study is damaged, or no registered dataset declares a
    metric. Further errors, such as for an unknown variant, are listed where they are raised.

    ``[(c.name, c.verdict) for c in Analysis(load_frames(folder)).main_contrasts]`` is the answer in short.
    """

    @cached_property
    def families(self) -> Families:
        """The tested contrasts by family."""
        return families(self)

    @cached_property
    def main_contrasts(self) -> tuple[ContrastResult, ...]:
        """The contrasts of the report's answer.

        Between two configurations, their difference, then the added and the taken changes. Otherwise the contrasts that
        the file declares; without any, the tested factor contrasts and the variants that no factor contrast covers.
        Without tested factor contrasts, every variant against the baseline.
        """
        families = self.families
        variants = families.variants.contrasts
        changes = families.added.contrasts + families.taken.contrasts
        if changes:
            return variants + changes
        if families.declared.contrasts:
            return families.declared.contrasts
        factors = families.factors.contrasts
        if all(contrast.paired is None for contrast in factors):
            return variants
        covered: set[str] = set()
        for factor in factors:
            covered.update(factor.variants)
        uncovered = [contrast for contrast in variants if contrast.variant not in covered]
        return (*factors, *uncovered)

    @property
    def _whole_scores(self) -> list[ContrastResult]:
        """The main contrasts of whole test sets in a single metric, not of some source lengths or of two metrics."""
        whole = []
        for result in self.main_contrasts:
            has_lengths = any(side.lengths for side in result.contrast.sides)
            if len(result.contrast.metrics) == 1 and not has_lengths:
                whole.append(result)
        return whole

    @cached_property
    def _compare(self) -> Compare:
        return cache(partial(compare_variants, self))

    @cached_property
    def best(self) -> BestVariants:
        """The variants that the tests support as the best, or why there are none."""
        return best_variants(self, self.families.variants, self._compare)

    @cached_property
    def sweep(self) -> Sweep | None:
        """The scores over the values of a swept number, or None."""
        return sweep(self)

    @cached_property
    def two_way(self) -> TwoWayResult | None:
        """The combinations of two crossed axes: table, ranking and fractions of variance; None without such axes."""
        return two_way(self, self._compare)

    @cached_property
    def convergence(self) -> Convergence:
        """Whether the variants trained far enough."""
        return convergence(self.frames, self._whole_scores)

    def after_steps(self, contrast: ContrastResult) -> str:
        """Return `` after 3,672 steps`` for a contrast with a side that is still learning, else an empty text."""
        trained = {self.frames.trained(slug) for slug in contrast.variants}
        if not trained.intersection(self.convergence.still_learning):
            return ""
        steps = max(self.frames.steps(slug) for slug in trained)
        return f" after {steps:,} steps"

    @cached_property
    def uncertainty(self) -> Uncertainty | None:
        """The sources of uncertainty: variants, seeds and test sentences; None with fewer than two seeds."""
        in_metric = [result for result in self._whole_scores if result.metric == self.metric]
        return uncertainty(self, in_metric)

    @cached_property
    def reference_points(self) -> Mapping[str, ReferencePoints]:
        """The scores of translations that need no training, by variant, where they were computed."""
        points_of: dict[str, ReferencePoints] = {}
        for slug in self.frames.by_slug:
            points = reference_points(self.frames, slug)
            if points:
                points_of[slug] = points
        return points_of

    @cached_property
    def reference_metric(self) -> str | None:
        """The metric in which models and reference points are compared, or None.

        It is the first metric in which a model can score, as its vocabulary upper bound is above 0: the stored metric
        of the primary one, then the others of the dataset in their order, its default primary metric last. None if the
        baseline's data have no reference points, or a model can score in none of these.
        """
        points = self.reference_points.get(self.frames.baseline)
        if points is None:
            return None
        default, *others = points.scores["vocabulary_bound"]
        for metric in (stored(self.metric), *others, default):
            if metric in points.metrics:
                return metric
        return None

    def reference_comparisons(self, name: str) -> list[ReferenceComparison]:
        """Return the comparison of every ranked variant with a reference point, such as ``nearest_neighbour``.

        A variant without runs of its own, without a mean score in `reference_metric`, or whose data have no such point
        is left out.
        """
        metric = self.reference_metric
        comparisons: list[ReferenceComparison] = []
        if metric is None:
            return comparisons
        for slug in self.ranked:
            points = self.reference_points.get(slug)
            has_runs = self.frames.trained(slug) == slug
            if points is None or name not in points.scores or not has_runs:
                continue
            mean = self.frames.summary(slug, metric).mean
            if not math.isnan(mean):
                reference = points.scores[name][metric]
                comparisons.append(ReferenceComparison(slug, metric, mean, reference))
        return comparisons

    @cached_property
    def other_test_sentences(self) -> list[str]:
        """The ranked variants that translated other test sentences than the baseline, for example of another split.

        Only variants with another section ``data`` than the baseline are compared, by the saved translations of the
        first seed that both have. Variants without translations, such as those with ``evaluate.decode: none``, and
        those that differ in ``evaluate.test_limit`` alone are left out.

        Raises:
            HeadToHeadError: If no registered dataset declares the metric, by which variants are ranked, or if saved
                outputs cannot be read or have changed since they were written.
        """
        by_slug = self.frames.by_slug
        data = by_slug[self.frames.baseline].config.data
        others = []
        for slug in self.ranked:
            if by_slug[slug].config.data != data and self._has_other_sentences(slug):
                others.append(slug)
        return others

    def _has_other_sentences(self, slug: str) -> bool:
        """Return whether a variant translates other sentences than the baseline, by the first seed that both have."""
        for seed in self.frames.seeds:
            rows = translations_of(self.frames, slug, seed)
            baseline_rows = translations_of(self.frames, self.frames.baseline, seed)
            if rows and baseline_rows:
                sources = [row.source for row in rows]
                return sources != [row.source for row in baseline_rows]
        return False

    @cached_property
    def late_looks(self) -> bool:
        """Whether the number of seeds, or the looks, were set or changed after a result of the experiment existed."""
        record = self.frames.record.looks
        if record is None:
            return False
        since = datetime.fromisoformat(record.since)
        has_result = self.frames.runs["state"].isin(states.RESULTS)
        ends = self.frames.runs[has_result]["ended"].dropna()
        return any(datetime.fromisoformat(str(end)) < since for end in ends)

    @cached_property
    def looks(self) -> LooksStatus | None:
        """The status of a study with sequential seeds, or None; only main contrasts are waited for."""
        record, looks = self.frames.record.looks, self.frames.looks
        if record is None or looks is None:
            return None
        complete = not self.incomplete
        undecided = []
        untested = []
        for result in self.main_contrasts:
            if result.is_undecided:
                undecided.append(result.name)
            if result.paired is None and result.direction == NO_VERDICT:
                untested.append(result.name)
        return LooksStatus(
            looks=looks,
            taken=record.taken if complete else record.taken[:-1],
            seeds=len(self.frames.seeds),
            complete=complete,
            undecided=tuple(undecided),
            untested=tuple(untested),
        )

    def separate_effects(self, contrast: ContrastResult) -> tuple[str, Mapping[str, float]] | None:
        """Return the axis with the most significant interaction of a factor contrast and its effects by value, or None.

        An interaction counts if its interval excludes 0 and is not within the margin.
        """
        interacting = []
        for interaction in self.families.interactions.contrasts:
            if interaction.detected and interaction.size != BY_LESS:
                other_axis = _interacting_axis(contrast, interaction)
                if other_axis is not None:
                    interacting.append((interaction.judgement.adjusted_p, other_axis))
        if not interacting:
            return None
        _, other_axis = min(interacting)
        means: dict[str, list[float]] = {}
        for setting in contrast.settings:
            axes = self.frames.by_slug[setting.variant].axes
            value = text(axis_value(other_axis.split(" and "), axes))
            means.setdefault(value, []).append(setting.difference.mean)
        if len(means) < 2:
            return None
        return other_axis, {value: fmean(effects) for value, effects in means.items()}

    def settings_contradict(self, contrast: ContrastResult) -> bool:
        """Return whether an average shows no difference, or an equivalence, although its settings differ.

        This is the case if the interval of a setting excludes 0, against the baseline or among the averaged settings,
        or if the range over settings exceeds the baseline's standard deviation on both sides of zero.
        """
        if contrast.direction not in (NOT_SHOWN, EQUIVALENT, IDENTICAL) or contrast.spread is None:
            return False
        low, high = contrast.spread
        if min(-low, high) > self.baseline_sd:
            return True
        if any(setting.judgement.direction in DETECTED for setting in contrast.settings):
            return True
        keys = {setting.key for setting in contrast.trained.single_settings()}
        variants = self.families.variants.contrasts
        return any(result.detected and result.trained.key in keys for result in variants)


def _interacting_axis(factor: ContrastResult, interaction: ContrastResult) -> str | None:
    """Return the other axis of an interaction that contains the effect of a factor contrast; None for other effects."""
    if len(factor.record.effects) != 1:
        return None
    (effect,) = factor.record.effects
    first, second = interaction.record.effects
    if effect not in (first, second):
        return None
    first_setting = interaction.record.contrast(factor.metric).settings[0]
    is_in_block = any(
        setting.keys() <= first_setting.keys() for setting in factor.contrast.settings
    )
    if not is_in_block:
        return None
    return second.axis if effect == first else first.axis
