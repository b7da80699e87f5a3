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
from headtohead.storage.metrics import stored
from headtohead.storage.translations import translations_of
from headtohead_judge.looks import Looks
from headtohead_judge.paired_tests import ALPHA
from headtohead_judge.verdicts import (
    BY_LESS,
    EQUIVALENT,
    NO_VERDICT,
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
    def alpha_per_look(self) -> float:
        """The level of a single test at each look."""
        return self.looks.level(ALPHA)

    @property
    def next_seeds(self) -> int | None:
        """The number of seeds of the next look; None if the current look is not complete or decides all contrasts.

        None too after the last look.
        """
        if not self.complete or not self.undecided:
            return None
        return self.looks.next(self.seeds)


class Analysis(Scores):
    """Every result of an experiment in one metric, computed on first use and kept.

    `Scores` has the results per variant.

    Some files of the study are read on first use, too: the values per example of the runs, their saved translations,
    and the reference points. A property that reads one raises a `HeadToHeadError` if it is damaged. Most results depend
    on `families`, which reads the values per example.

    ``[(c.name, c.verdict) for c in Analysis(load_frames(folder)).main_contrasts]`` is the answer in short.
    """

    @cached_property
    def families(self) -> Families:
        """The contrasts by family.

        Raises:
            HeadToHeadError: If the stored values per example of a run are damaged.
        """
        return families(self)

    @cached_property
    def main_contrasts(self) -> tuple[ContrastResult, ...]:
        """The contrasts of the report's answer.

        Between two configurations, their difference, then the added and the taken changes. Otherwise the contrasts that
        the file declares. Without any, all factor contrasts if one of them has a test, then the contrasts of the
        variants that are in no factor contrast; else every variant against the baseline.

        Raises:
            HeadToHeadError: If the stored values per example of a run are damaged.
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
        """The variants that the tests support as the best, or why there are none; raises as `families`."""
        return best_variants(self, self.families.variants, self._compare)

    @cached_property
    def sweep(self) -> Sweep | None:
        """The scores over the values of a swept number, or None."""
        return sweep(self)

    @cached_property
    def two_way(self) -> TwoWayResult | None:
        """The combinations of two crossed axes, with their ranking; None without such axes.

        Raises:
            HeadToHeadError: If the stored values per example of a run are damaged.
        """
        return two_way(self, self._compare)

    @cached_property
    def convergence(self) -> Convergence:
        """Whether the variants trained far enough; raises as `families`."""
        return convergence(self.frames, self._whole_scores)

    def after_steps(self, contrast: ContrastResult) -> str:
        """Return `` after 3,672 steps`` for a contrast with a side that is still learning, else an empty text.

        The steps are the largest number of trained steps of its variants.

        Raises:
            HeadToHeadError: If the stored values per example of a run are damaged.
        """
        trained = {self.frames.trained(slug) for slug in contrast.variants}
        if not trained.intersection(self.convergence.still_learning):
            return ""
        steps = max(self.frames.steps(slug) for slug in trained)
        return f" after {steps:,} steps"

    @cached_property
    def uncertainty(self) -> Uncertainty | None:
        """The sources of uncertainty; None with fewer than two seeds that all compared variants share.

        Raises:
            HeadToHeadError: If the stored values per example of a run are damaged.
        """
        in_metric = [result for result in self._whole_scores if result.metric == self.metric]
        return uncertainty(self, in_metric)

    @cached_property
    def reference_points(self) -> Mapping[str, ReferencePoints]:
        """The scores of translations that need no training, by variant, where they were computed.

        Raises:
            HeadToHeadError: If the file of the reference points is damaged.
        """
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

        Raises:
            HeadToHeadError: If the file of the reference points is damaged.
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

        Raises:
            HeadToHeadError: If the file of the reference points is damaged.
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

        Only variants with another section ``data`` than the baseline are compared, so not those that differ in
        ``evaluate.test_limit`` alone. They are compared by the first seed of which both have saved translations;
        variants without any, such as those with ``evaluate.decode: none``, are left out.

        Raises:
            HeadToHeadError: If saved translations cannot be read or have changed since they were written.
        """
        by_slug = self.frames.by_slug
        data = by_slug[self.frames.baseline].config.data
        others = []
        for slug in self.ranked:
            if by_slug[slug].config.data != data and self._has_other_sentences(slug):
                others.append(slug)
        return others

    def _has_other_sentences(self, slug: str) -> bool:
        """Return whether a variant translated other source sentences than the baseline; references are not compared.

        They are compared in the first seed of which both have saved translations; False without such a seed.

        Raises:
            HeadToHeadError: If saved translations cannot be read or have changed since they were written.
        """
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
        ends = self.frames.runs[self.frames.has_result]["ended"].dropna()
        return any(datetime.fromisoformat(str(end)) < since for end in ends)

    @cached_property
    def looks(self) -> LooksStatus | None:
        """The status of a study with sequential seeds, or None; only main contrasts are waited for.

        Raises:
            HeadToHeadError: If the stored values per example of a run are damaged.
        """
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

    def separate_effects(self, contrast: ContrastResult) -> Mapping[str, float]:
        """Return the effects of a factor contrast by the value of the axis with which it interacts most significantly.

        Values are phrases. An interaction counts if it contains the effect of the contrast (`_interacting_axis`), and
        its interval excludes 0 and is not within the margin. An effect is the mean difference of the settings of the
        contrast with a value of that axis. Empty if there is no such interaction, or if the settings have a single
        value of the axis.

        Raises:
            HeadToHeadError: If the stored values per example of a run are damaged.
        """
        interacting = []
        for interaction in self.families.interactions.contrasts:
            if interaction.detected and interaction.size != BY_LESS:
                other_axis = _interacting_axis(contrast, interaction)
                if other_axis is not None:
                    interacting.append((interaction.judgement.adjusted_p, other_axis))
        if not interacting:
            return {}
        _, other_axis = min(interacting)
        means: dict[str, list[float]] = {}
        for setting in contrast.settings:
            value = self.frames.by_slug[setting.variant].phrase(other_axis)
            means.setdefault(value, []).append(setting.difference.mean)
        if len(means) < 2:
            return {}
        return {value: fmean(effects) for value, effects in means.items()}

    def settings_contradict(self, contrast: ContrastResult) -> bool:
        """Return whether the settings of an average differ although the average has no detected difference.

        The settings of an average that is equivalent by a margin differ if the absolute difference of one reaches the
        margin. Those of other averages differ if the range over settings exceeds the baseline's standard deviation on
        both sides of 0. False for a detected average, and for a contrast of a single setting.
        """
        if contrast.detected or contrast.spread is None:
            return False
        low, high = contrast.spread
        margin = contrast.judgement.margin
        if contrast.direction == EQUIVALENT and margin is not None:
            return max(-low, high) >= margin
        return min(-low, high) > self.baseline_sd


def _interacting_axis(factor: ContrastResult, interaction: ContrastResult) -> str | None:
    """Return the other axis of an interaction that contains the effect of a factor contrast.

    None if the contrast has no or several effects, or the interaction does not have its effect. None too if no tested
    setting of the contrast is a part of the first setting of the interaction, as in another block of the design.
    """
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
