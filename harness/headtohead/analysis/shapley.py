"""Analyse a Shapley path: how much of the difference between two configurations each choice causes.

The Shapley value of a choice is the change of the metric when the choice is applied, averaged over all
n! permutations (Shapley, Annals of Mathematics Studies 28, 1953); over sampled permutations it is an
estimate (Castro, Gómez and Tejada, Computers & Operations Research 36(5), 2009). The changes of every
permutation add up to the total difference, and so do the Shapley values.

Seeds and permutations are crossed random effects; the interval and the verdict of a value include both.
Choices that work only together are found by a least-squares fit of the coalitions' scores and form a group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headtohead.analysis.contrasts import Contrast, Families, Family, families, score_mismatch, unranked
from headtohead.analysis.permutations import changes_by_permutation
from headtohead.config.labels import listed
from headtohead.statistics.differences import pair_differences
from headtohead.statistics.paired_tests import Paired, paired_differences, rounded
from headtohead.statistics.shapley import PairEffect, SampledDifference, pair_effects, sampled_difference
from headtohead.statistics.verdicts import IDENTICAL, INCONCLUSIVE, SAME
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import label
from headtohead.storage.records import ChoiceContrast, PathRecord


@dataclass(frozen=True)
class EndDifference:
    """The effect of a choice at an end of the path, or the ``reason`` why it is unknown."""

    paired: Paired | None = None
    reason: str = ""


@dataclass(frozen=True)
class ShapleyValue:
    """The Shapley value of a choice, or of a group of inseparable choices.

    ``contrast`` is the change that the choice causes, summed over the ``num_permutations`` in which it is
    applied and divided by the number of all evaluated permutations, so that the values add up to the total
    difference also if some permutations apply choices as a group. The contrast is the mean of ``by_seed``;
    ``by_permutation`` holds the summed changes. ``changes`` is ``[permutation, seed]``, 0 in permutations that apply
    the choice as a part of a group. ``alone`` is the effect at the start, ``without`` the effect at the end.
    """

    contrast: Contrast
    choices: tuple[str, ...]
    before: str
    after: str
    num_permutations: int
    by_seed: Mapping[int, float]
    by_permutation: tuple[float, ...]
    changes: NDArray[np.float64]
    alone: EndDifference
    without: EndDifference

    @property
    def name(self) -> str:
        """The choice, or the choices of the group."""
        return self.contrast.name

    @property
    def equal_by_construction(self) -> bool:
        """Whether the choice has no effect in any permutation, by construction."""
        return self.contrast.verdict == SAME

    @property
    def mixed(self) -> bool:
        """Whether the average is inconclusive or identical but the change in some permutation is significant."""
        return self.contrast.verdict in (INCONCLUSIVE, IDENTICAL) and self.contrast.settings_differ

    @property
    def inconclusive(self) -> bool:
        """Whether the average is inconclusive and no change in a permutation is significant."""
        return self.contrast.verdict == INCONCLUSIVE and not self.mixed

    @property
    def known(self) -> bool:
        """Whether the value is known: no run is missing, and the scores are comparable."""
        return self.equal_by_construction or self.contrast.paired is not None

    @property
    def mean(self) -> float:
        """The value; NaN if it is unknown."""
        if self.contrast.paired is None:
            return 0.0 if self.equal_by_construction else math.nan
        return self.contrast.paired.mean

    @property
    def sampled(self) -> SampledDifference | None:
        """The value over seeds and permutations; None if it is unknown or 0 by construction."""
        return self.contrast.sampled


@dataclass(frozen=True)
class ChoiceGroup:
    """Choices that work only together.

    For a pair, the effect beyond the sum of single effects exceeds half of the joint effect, and in every permutation
    the first of them changes the score by less than half of it.

    ``sampled`` is the sum of their Shapley values over seeds and permutations. ``first`` and ``last`` are the smallest
    and the largest change over permutations, averaged over seeds: of all members but the last, and of the last member
    that a permutation applies. ``effects`` are the effects of the pairs by which the group was found.
    """

    choices: tuple[str, ...]
    sampled: SampledDifference
    changes: NDArray[np.float64]
    first: tuple[float, float]
    last: tuple[float, float]
    effects: tuple[PairEffect, ...]

    @property
    def name(self) -> str:
        """The choices of the group."""
        return listed(self.choices)

    @property
    def detected(self) -> bool:
        """Whether the 95 % interval of the joint effect excludes 0."""
        return self.sampled.low > 0 or self.sampled.high < 0


@dataclass(frozen=True)
class PathAnalysis:
    """The total difference between the ends of a path and the Shapley values, largest first.

    ``names`` are the display names of the ends, ``singles`` the slugs of the single differences at both ends,
    ``by_seed`` the total difference by seed. ``effects`` are the significant effects of pairs of choices, ``groups``
    the choices that work only together.
    """

    start: str
    end: str
    names: tuple[str, str]
    total: Contrast
    by_seed: Mapping[int, float]
    values: tuple[ShapleyValue, ...]
    family: Family
    singles: tuple[str, ...]
    record: PathRecord
    effects: tuple[PairEffect, ...] = ()
    groups: tuple[ChoiceGroup, ...] = ()

    @property
    def num_permutations(self) -> int:
        """The number of evaluated permutations."""
        return len(self.record.permutations)

    @property
    def possible(self) -> int:
        """The number of all permutations."""
        return self.record.orders.possible

    @property
    def complete(self) -> bool:
        """Whether all permutations are evaluated."""
        return self.num_permutations == self.possible

    @cached_property
    def known(self) -> tuple[ShapleyValue, ...]:
        """The known Shapley values."""
        return tuple(value for value in self.values if value.known)

    @property
    def remainder(self) -> float:
        """The total difference minus the known values; exactly 0 within rounding errors."""
        if self.total.paired is None:
            return math.nan
        total = self.total.paired.mean
        remainder = total - math.fsum(value.mean for value in self.known)
        scale = max([abs(total), *(abs(value.mean) for value in self.known)])
        return 0.0 if abs(remainder) <= 1e-9 * scale else remainder

    def exceeds(self, part: ShapleyValue | ChoiceGroup, fraction: float) -> bool:
        """Return whether a part exceeds a fraction of the total by the interval over seeds and permutations."""
        total = self.total.paired
        changes = part.changes
        if total is None or changes.shape != (self.num_permutations, len(self.by_seed)):
            return False
        sign = 1 if total.mean > 0 else -1
        excess = sign * (changes - np.array(list(self.by_seed.values())) * fraction)
        return sampled_difference(self.orders, excess, self.possible).low > 0

    @cached_property
    def orders(self) -> list[tuple[str, ...]]:
        """The choices in the order in which each evaluated permutation applies them."""
        return [
            tuple(name for step in permutation for name in step.choices) for permutation in self.record.permutations
        ]

    def permutations_needed(self, sampled: SampledDifference, half_width: float) -> int | None:
        """Return the number of permutations with an interval of at most ± ``half_width``; None if seeds exceed it."""
        size = self.num_permutations / sampled.draws
        draws = sampled.draws_needed(half_width, math.ceil(self.possible / size))
        return None if draws is None else min(self.possible, math.ceil(draws * size))


def analyse_path(
    frames: Frames, metric: str, tested: Families | None = None, *, allow_partial: bool = False
) -> PathAnalysis | None:
    """Return the Shapley values of an experiment's path in a metric, or None without a path.

    ``tested`` are the contrasts of this metric; they are computed if None.
    """
    record = frames.record.path
    if record is None:
        return None
    tested = tested or families(frames, metric, allow_partial=allow_partial)
    family = tested.choices
    declared = [contrast for contrast in frames.record.contrasts if isinstance(contrast, ChoiceContrast)]
    calculator = _Calculator(frames, record, metric, allow_partial)
    values = [calculator.value(record, contrast) for record, contrast in zip(declared, family.contrasts, strict=True)]
    values.sort(key=lambda value: -abs(value.mean) if value.known else math.inf)
    total = tested.variants.contrasts[0]
    start, end = record.start, record.end
    effects = calculator.effects() if all(value.known for value in values) else []
    singles = [*(choice.alone for choice in record.choices), *(choice.without for choice in record.choices)]
    return PathAnalysis(
        start=start.slug,
        end=end.slug,
        names=(start.name, end.name),
        total=total,
        by_seed=_by_seed(*calculator.changes(total)),
        values=tuple(values),
        family=family,
        singles=tuple(dict.fromkeys(slug for slug in singles if slug and slug not in (start.slug, end.slug))),
        record=record,
        effects=tuple(effects),
        groups=tuple(_groups(record, values, effects)),
    )


@dataclass(frozen=True)
class _Calculator:
    """Computes Shapley values of a path in a metric."""

    frames: Frames
    record: PathRecord
    metric: str
    allow_partial: bool

    def value(self, declared: ChoiceContrast, contrast: Contrast) -> ShapleyValue:
        choices = declared.choices
        fraction = len(declared.pairs) / len(self.record.permutations)
        by_name = {choice.name: choice for choice in self.record.choices}
        single = by_name[choices[0]] if len(choices) == 1 else None
        seeds, changes = self.changes(contrast)
        scale = float(np.abs(changes).max(initial=0.0))
        by_permutation = tuple(rounded(changes.mean(axis=1), scale).tolist()) if seeds else ()
        return ShapleyValue(
            contrast=_scaled(contrast, fraction),
            choices=choices,
            before=", ".join(label(by_name[name].before) for name in choices),
            after=", ".join(label(by_name[name].after) for name in choices),
            num_permutations=len(declared.pairs),
            by_seed=_by_seed(seeds, fraction * changes),
            by_permutation=by_permutation,
            changes=changes_by_permutation(self.record, declared.pairs, contrast.pairs, changes)[1]
            if seeds
            else np.zeros((0, 0)),
            alone=self._end_difference(single.alone if single else None, self.record.start.slug),
            without=self._end_difference(self.record.end.slug, single.without if single else None),
        )

    def changes(self, contrast: Contrast) -> tuple[list[int], NDArray[np.float64]]:
        """Return the seeds and the changes ``[pair, seed]`` of a contrast; empty if it is unknown."""
        if contrast.paired is None:
            return [], np.zeros((0, 0))
        slugs = {slug for pair in contrast.pairs for slug in pair}
        scores = {slug: self.frames.scores(slug, self.metric) for slug in slugs}
        return pair_differences(scores, contrast.pairs)

    def effects(self) -> list[PairEffect]:
        """Return the significant effects of pairs of choices, from the scores of all coalitions."""
        names = [choice.name for choice in self.record.choices]
        coalitions = _coalitions(self.record)
        if len(coalitions) < 2 ** len(names):  # equal scores of coalitions that are the same by construction
            trained = {self.frames.trained(slug): slug for slug in reversed(coalitions)}
            coalitions = {slug: applied for slug, applied in coalitions.items() if slug in trained.values()}
        scores = {slug: self.frames.scores(slug, self.metric) for slug in coalitions}
        seeds = sorted(set.intersection(*(set(by_seed) for by_seed in scores.values())))
        if len(seeds) < 2:
            return []
        table = [[by_seed[seed] for seed in seeds] for by_seed in scores.values()]
        return pair_effects(list(coalitions.values()), table, names)

    def _end_difference(self, left: str | None, right: str | None) -> EndDifference:
        """Return the difference between two variants, which is not tested."""
        if left is None or right is None:
            return EndDifference(reason="incompatible")
        mismatch = score_mismatch(self.frames, left, right, self.metric)
        missing = [reason for slug in (left, right) if (reason := unranked(self.frames, slug, self.metric))]
        if mismatch or (missing and not self.allow_partial):
            return EndDifference(reason=mismatch or f"not ranked: {missing[0]}")
        scores = {slug: self.frames.scores(slug, self.metric) for slug in (left, right)}
        seeds, differences = pair_differences(scores, [(left, right)])
        if not seeds:
            return EndDifference(reason=f"not ranked: {missing[0]}")
        scale = max(abs(score) for by_seed in scores.values() for score in by_seed.values())
        return EndDifference(paired_differences(differences[0], scale=scale))


def _scaled(contrast: Contrast, fraction: float) -> Contrast:
    """Scale an average over a fraction of the permutations to the contribution to the total; p is unchanged."""
    paired = contrast.paired
    if paired is None or fraction == 1:
        return contrast
    scaled = replace(
        paired,
        mean=fraction * paired.mean,
        sd=fraction * paired.sd,
        low=fraction * paired.low,
        high=fraction * paired.high,
    )
    return replace(contrast, paired=scaled)


def _coalitions(record: PathRecord) -> dict[str, frozenset[str]]:
    """Return the applied choices by slug of the coalitions."""
    names = frozenset(choice.name for choice in record.choices)
    coalitions = {record.start.slug: frozenset[str](), record.end.slug: names}
    for choice in record.choices:
        if choice.alone:
            coalitions[choice.alone] = frozenset([choice.name])
        if choice.without:
            coalitions[choice.without] = names - {choice.name}
    for permutation in record.permutations:
        applied: frozenset[str] = frozenset()
        for step in permutation:
            applied |= frozenset(step.choices)
            coalitions[step.slug] = applied
    return coalitions


def _groups(record: PathRecord, values: Sequence[ShapleyValue], effects: Sequence[PairEffect]) -> Iterator[ChoiceGroup]:
    """Yield the groups of choices that work only together: pairs, joined if they share a choice."""
    joined: list[set[str]] = []
    for effect in effects:
        group = _group(record, values, set(effect.pair), [effect])
        if group and _works_only_together(group, effect):
            touching = [members for members in joined if members & set(effect.pair)]
            joined = [members for members in joined if members not in touching]
            joined.append(set(effect.pair).union(*touching))
    for members in joined:
        inside = [effect for effect in effects if set(effect.pair) <= members]
        if group := _group(record, values, members, inside):
            yield group


def _works_only_together(group: ChoiceGroup, effect: PairEffect) -> bool:
    """Return whether a pair meets both conditions of `ChoiceGroup`; its effect does by its interval."""
    half = abs(group.sampled.mean) / 2
    sign = 1 if group.sampled.mean > 0 else -1
    return min(sign * effect.low, sign * effect.high) > half > max(map(abs, group.first))


def _group(
    record: PathRecord, values: Sequence[ShapleyValue], members: set[str], effects: Sequence[PairEffect]
) -> ChoiceGroup | None:
    """Return the joint effect of choices, or None if no permutation applies them separately."""
    parts = {value.choices: value.changes for value in values if set(value.choices) <= members and value.changes.size}
    if not parts or len({changes.shape for changes in parts.values()}) > 1:
        return None
    joint = np.sum(list(parts.values()), axis=0)
    if len(joint) != len(record.permutations):
        return None
    orders = [tuple(name for step in permutation for name in step.choices) for permutation in record.permutations]
    last, first = [], []
    for number, permutation in enumerate(record.permutations):
        steps = [step.choices for step in permutation if set(step.choices) & members]
        if all(step in parts and len(step) == 1 for step in steps):
            change = parts[steps[-1]][number].mean()
            last.append(float(change))
            first.append(float(joint[number].mean() - change))
    if not last:
        return None
    return ChoiceGroup(
        choices=tuple(choice.name for choice in record.choices if choice.name in members),
        sampled=sampled_difference(orders, joint, record.orders.possible),
        changes=joint,
        first=(min(first), max(first)),
        last=(min(last), max(last)),
        effects=tuple(effects),
    )


def _by_seed(seeds: list[int], changes: NDArray[np.float64]) -> dict[int, float]:
    """Return the mean over pairs of changes ``[pair, seed]`` by seed."""
    return dict(zip(seeds, changes.mean(axis=0).tolist(), strict=True)) if seeds else {}
