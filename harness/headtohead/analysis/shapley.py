"""A path, analysed: how much of the distance between two configurations is whose.

A choice's share is the change in the metric when it is applied, averaged over the walked orders:
over all n! orders the Shapley value (Shapley, Annals of Mathematics Studies 28, 1953), over a
sample of them its estimate (Castro, Gómez and Tejada, Computers & Operations Research 36(5), 2009).
Along each walk the changes add up to the whole distance, and so do the shares.

Two uncertainties are kept apart. Seeds: a share is averaged over orders within each seed, and its
interval is the t-interval over seeds. Orders: a choice may do much in one order and nothing in
another; smallest and largest are given, and the standard error of the average over all orders, of
which only a sample was walked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headtohead.analysis.contrasts import (
    EQUAL,
    IDENTICAL,
    UNDETECTED,
    Contrast,
    Families,
    Family,
    factor_differences,
    families,
    score_mismatch,
    unranked,
)
from headtohead.statistics.paired_tests import Paired, paired_differences, rounded
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import label
from headtohead.storage.records import ChoiceContrast, PathRecord


@dataclass(frozen=True)
class Change:
    """What a single change does at one end of the path; ``reason`` says why nothing is known."""

    paired: Paired | None = None
    reason: str = ""


@dataclass(frozen=True)
class Share:
    """A choice's part of the distance, or that of choices which are undefined apart.

    ``contrast`` is the change that it makes, summed over the ``orders`` in which it is made and
    divided by the number of walks: shares add up to the distance also where choices were applied
    together in some orders. ``by_seed`` holds what the contrast is the mean of, ``by_order`` the
    changes that are summed. ``order_error`` is the standard error from orders that were not walked.
    ``alone`` is the change at the start, and ``without`` that at the end, where it comes last.
    """

    contrast: Contrast
    choices: tuple[str, ...]
    before: str
    after: str
    orders: int
    by_seed: Mapping[int, float]
    by_order: tuple[float, ...]
    order_error: float
    alone: Change
    without: Change

    @property
    def name(self) -> str:
        """The choice, or the choices that come together."""
        return self.contrast.name

    @property
    def nothing(self) -> bool:
        """Whether the choice cannot make a difference at any of its steps."""
        return self.contrast.reason == EQUAL

    @property
    def mixed(self) -> bool:
        """Whether no difference is detected on average, but one in a single order."""
        return self.contrast.verdict in (UNDETECTED, IDENTICAL) and self.contrast.settings_differ

    @property
    def undetected(self) -> bool:
        """Whether no difference is detected, on average or in a single order."""
        return self.contrast.verdict == UNDETECTED and not self.mixed

    @property
    def known(self) -> bool:
        """Whether there is a share; not where runs are missing or metrics do not compare."""
        return self.nothing or self.contrast.paired is not None

    @property
    def mean(self) -> float:
        """The share; NaN where it is not known."""
        if self.contrast.paired is None:
            return 0.0 if self.nothing else math.nan
        return self.contrast.paired.mean


@dataclass(frozen=True)
class PathAnalysis:
    """The distance between the ends of a path and its parts, largest first.

    ``names`` are those of the ends, ``singles`` the slugs of single differences at either end,
    ``record`` is the path as planned.
    """

    start: str
    end: str
    names: tuple[str, str]
    distance: Contrast
    by_seed: Mapping[int, float]
    shares: tuple[Share, ...]
    family: Family
    singles: tuple[str, ...]
    record: PathRecord

    @property
    def walked(self) -> int:
        """The number of walked orders."""
        return len(self.record.walks)

    @property
    def possible(self) -> int:
        """The number of all orders."""
        return self.record.orders.possible

    @cached_property
    def known(self) -> tuple[Share, ...]:
        """The shares that are known."""
        return tuple(share for share in self.shares if share.known)

    @property
    def remainder(self) -> float:
        """What the known shares leave of the distance; exactly 0 where they add up to it."""
        if self.distance.paired is None:
            return math.nan
        whole = self.distance.paired.mean
        left = whole - math.fsum(share.mean for share in self.known)
        size = max([abs(whole), *(abs(share.mean) for share in self.known)])
        return 0.0 if abs(left) <= 1e-9 * size else left

    def is_most(self, share: Share) -> bool:
        """Whether a share is more than half of the distance, by its 95 % interval over seeds."""
        whole = self.distance.paired
        if whole is None or self.by_seed.keys() != share.by_seed.keys():
            return False
        sign = 1 if whole.mean > 0 else -1
        excess = [sign * (share.by_seed[seed] - change / 2) for seed, change in self.by_seed.items()]
        return paired_differences(excess).low > 0


def analyse_path(
    frames: Frames, metric: str, found: Families | None = None, *, allow_partial: bool = False
) -> PathAnalysis | None:
    """Analyse the path of an experiment by one metric; None if it has none.

    ``found`` are the contrasts of this metric, where they are computed already.
    """
    record = frames.record.path
    if record is None:
        return None
    found = found or families(frames, metric, allow_partial=allow_partial)
    family = found.choices
    declared = [contrast for contrast in frames.record.contrasts if isinstance(contrast, ChoiceContrast)]
    reader = _Reader(frames, record, metric, allow_partial)
    shares = [reader.share(one, contrast) for one, contrast in zip(declared, family.contrasts, strict=True)]
    shares.sort(key=lambda share: -abs(share.mean) if share.known else math.inf)
    distance = found.variants.contrasts[0]
    start, end = record.start, record.end
    single = [*(choice.alone for choice in record.choices), *(choice.without for choice in record.choices)]
    return PathAnalysis(
        start=start.slug,
        end=end.slug,
        names=(start.name, end.name),
        distance=distance,
        by_seed=_by_seed(*reader.changes(distance)),
        shares=tuple(shares),
        family=family,
        singles=tuple(dict.fromkeys(one for one in single if one and one not in (start.slug, end.slug))),
        record=record,
    )


def order_error(orders: Sequence[Sequence[str]], changes: Sequence[float], possible: int) -> float:
    """Return the standard error of the mean change as an estimate of that over all orders.

    An order and its reverse were drawn as one, and count as one. NaN where only one was drawn.

    Args:
        orders: Choices in the order in which each walk applies them.
        changes: The change that one of them makes, by walk.
        possible: The number of all orders.
    """
    walked = len(orders)
    if walked == possible:
        return 0.0
    draws: dict[frozenset[tuple[str, ...]], list[float]] = {}
    for order, change in zip(map(tuple, orders), changes, strict=True):
        draws.setdefault(frozenset([order, order[::-1]]), []).append(change)
    number = len(draws)
    if number < 2:
        return math.nan
    mean = math.fsum(changes) / walked
    parts = (math.fsum(change - mean for change in both) / walked for both in draws.values())
    squares = math.fsum(part**2 for part in parts)
    return math.sqrt(number / (number - 1) * squares * (1 - walked / possible))


@dataclass(frozen=True)
class _Reader:
    """Changes between points of one path, in one metric."""

    frames: Frames
    record: PathRecord
    metric: str
    allow_partial: bool

    def share(self, declared: ChoiceContrast, contrast: Contrast) -> Share:
        choices = declared.choices
        part = len(declared.pairs) / len(self.record.walks)
        known = {choice.name: choice for choice in self.record.choices}
        single = known[choices[0]] if len(choices) == 1 else None
        seeds, changes = self.changes(contrast)
        scale = float(np.abs(changes).max(initial=0.0))
        by_order = tuple(rounded(changes.mean(axis=1), scale).tolist()) if seeds else ()
        return Share(
            contrast=_scaled(contrast, part),
            choices=choices,
            before=", ".join(label(known[name].before) for name in choices),
            after=", ".join(label(known[name].after) for name in choices),
            orders=len(declared.pairs),
            by_seed=_by_seed(seeds, part * changes),
            by_order=by_order,
            order_error=self._order_error(by_order),
            alone=self._change(single.alone if single else None, self.record.start.slug),
            without=self._change(self.record.end.slug, single.without if single else None),
        )

    def changes(self, contrast: Contrast) -> tuple[list[int], NDArray[np.float64]]:
        """Return seeds and changes ``[step, seed]`` of a contrast; none where it is not known."""
        if contrast.paired is None:
            return [], np.zeros((0, 0))
        slugs = {slug for pair in contrast.pairs for slug in pair}
        scores = {slug: self.frames.scores(slug, self.metric) for slug in slugs}
        return factor_differences(scores, contrast.pairs)

    def _order_error(self, by_order: tuple[float, ...]) -> float:
        """Return the error from orders that were not walked; NaN if some walk lacks the choice."""
        walks = [[name for step in walk for name in step.choices] for walk in self.record.walks]
        if len(by_order) != len(walks):
            return math.nan
        return order_error(walks, by_order, self.record.orders.possible)

    def _change(self, left: str | None, right: str | None) -> Change:
        """Describe a single change; it is not tested."""
        if left is None or right is None:
            return Change(reason="has no meaning")
        mismatch = score_mismatch(self.frames, left, right, self.metric)
        lacking = [reason for slug in (left, right) if (reason := unranked(self.frames, slug, self.metric))]
        if mismatch or (lacking and not self.allow_partial):
            return Change(reason=mismatch or f"not ranked: {lacking[0]}")
        scores = {slug: self.frames.scores(slug, self.metric) for slug in (left, right)}
        seeds, differences = factor_differences(scores, [(left, right)])
        if not seeds:
            return Change(reason=f"not ranked: {lacking[0]}")
        scale = max(abs(value) for one in scores.values() for value in one.values())
        return Change(paired_differences(differences[0], scale=scale))


def _scaled(contrast: Contrast, part: float) -> Contrast:
    """Turn the average over some of the orders into the part of the distance; p stays."""
    one = contrast.paired
    if one is None or part == 1:
        return contrast
    scaled = replace(one, mean=part * one.mean, sd=part * one.sd, low=part * one.low, high=part * one.high)
    return replace(contrast, paired=scaled, mde=part * contrast.mde)


def _by_seed(seeds: list[int], changes: NDArray[np.float64]) -> dict[int, float]:
    """Average changes ``[step, seed]`` within each seed."""
    return dict(zip(seeds, changes.mean(axis=0).tolist(), strict=True)) if seeds else {}
