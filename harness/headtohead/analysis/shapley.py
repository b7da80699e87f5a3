"""Analyse a Shapley path: how much of the difference between two configurations each choice causes.

The Shapley value of a choice is the change of the metric when the choice is applied, averaged over all
n! permutations (Shapley, Annals of Mathematics Studies 28, 1953); over sampled permutations it is an
estimate (Castro, Gómez and Tejada, Computers & Operations Research 36(5), 2009). The changes of every
permutation add up to the total difference, and so do the Shapley values.

Two uncertainties are reported separately. Training seeds: a value is averaged over permutations within
each seed, and its interval is the t-interval over seeds. Permutations: the effect of a choice can depend
on the choices applied before it; the analysis gives the smallest and the largest change, and the
standard error of the average as an estimate of the average over all permutations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headtohead.analysis.contrasts import (
    Contrast,
    Families,
    Family,
    factor_differences,
    families,
    score_mismatch,
    unranked,
)
from headtohead.statistics.paired_tests import Paired, paired_differences, rounded
from headtohead.statistics.shapley import permutation_error
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
    ``by_permutation`` holds the summed changes. ``permutation_error`` is the standard error from permutations
    that were not evaluated. ``alone`` is the effect at the start, ``without`` the effect at the end.
    """

    contrast: Contrast
    choices: tuple[str, ...]
    before: str
    after: str
    num_permutations: int
    by_seed: Mapping[int, float]
    by_permutation: tuple[float, ...]
    permutation_error: float
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


@dataclass(frozen=True)
class PathAnalysis:
    """The total difference between the ends of a path and the Shapley values, largest first.

    ``names`` are the display names of the ends, ``singles`` the slugs of the single differences at both ends,
    ``by_seed`` the total difference by seed.
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

    @property
    def num_permutations(self) -> int:
        """The number of evaluated permutations."""
        return len(self.record.permutations)

    @property
    def possible(self) -> int:
        """The number of all permutations."""
        return self.record.orders.possible

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

    def is_most(self, value: ShapleyValue) -> bool:
        """Return whether a value is more than half of the total difference, by its 95 % interval over seeds."""
        total = self.total.paired
        if total is None or self.by_seed.keys() != value.by_seed.keys():
            return False
        sign = 1 if total.mean > 0 else -1
        excess = [sign * (value.by_seed[seed] - change / 2) for seed, change in self.by_seed.items()]
        return paired_differences(excess).low > 0


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
            permutation_error=self._permutation_error(by_permutation),
            alone=self._end_difference(single.alone if single else None, self.record.start.slug),
            without=self._end_difference(self.record.end.slug, single.without if single else None),
        )

    def changes(self, contrast: Contrast) -> tuple[list[int], NDArray[np.float64]]:
        """Return the seeds and the changes ``[pair, seed]`` of a contrast; empty if it is unknown."""
        if contrast.paired is None:
            return [], np.zeros((0, 0))
        slugs = {slug for pair in contrast.pairs for slug in pair}
        scores = {slug: self.frames.scores(slug, self.metric) for slug in slugs}
        return factor_differences(scores, contrast.pairs)

    def _permutation_error(self, by_permutation: tuple[float, ...]) -> float:
        """Return the standard error from missing permutations; NaN if some permutations apply a group instead."""
        permutations = [
            [name for step in permutation for name in step.choices] for permutation in self.record.permutations
        ]
        if len(by_permutation) != len(permutations):
            return math.nan
        return permutation_error(permutations, by_permutation, self.record.orders.possible)

    def _end_difference(self, left: str | None, right: str | None) -> EndDifference:
        """Return the difference between two variants, which is not tested."""
        if left is None or right is None:
            return EndDifference(reason="incompatible")
        mismatch = score_mismatch(self.frames, left, right, self.metric)
        missing = [reason for slug in (left, right) if (reason := unranked(self.frames, slug, self.metric))]
        if mismatch or (missing and not self.allow_partial):
            return EndDifference(reason=mismatch or f"not ranked: {missing[0]}")
        scores = {slug: self.frames.scores(slug, self.metric) for slug in (left, right)}
        seeds, differences = factor_differences(scores, [(left, right)])
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
    interval = contrast.judgement.interval
    if interval is not None:
        interval = replace(interval, low=fraction * interval.low, high=fraction * interval.high)
    return replace(contrast, paired=scaled, judgement=replace(contrast.judgement, interval=interval))


def _by_seed(seeds: list[int], changes: NDArray[np.float64]) -> dict[int, float]:
    """Return the mean over pairs of changes ``[pair, seed]`` by seed."""
    return dict(zip(seeds, changes.mean(axis=0).tolist(), strict=True)) if seeds else {}
