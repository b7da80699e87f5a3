"""The section of a report on a path: the table of choices, and what was not sampled."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from headtohead.analysis.shapley import Change, PathAnalysis, Share
from headtohead.analysis.study import Analysis
from headtohead.report.rows import Score
from headtohead.statistics.paired_tests import Paired
from headtohead.storage.metrics import readable, show, show_p

COUNTED_IN_TOKENS = ("token_accuracy", "loss", "perplexity")
"""Metrics whose value depends on what a token is."""


@dataclass(frozen=True)
class ChoiceRow:
    """One line of the table of choices; ``orders`` is the range over walked orders."""

    name: str
    before: str
    after: str
    share: Score
    orders: str
    order_error: str
    alone: Score
    without: Score
    verdict: str
    word: str
    reason: str
    holm_p: str
    sign_flip_p: str
    effect: str


@dataclass(frozen=True)
class PathSection:
    """What a report says of a path beside its figure."""

    analysis: Analysis
    path: PathAnalysis

    @cached_property
    def rows(self) -> list[ChoiceRow]:
        """The choices, largest share first."""
        return [self._row(share) for share in self.path.shares]

    @cached_property
    def distance(self) -> Score:
        """The whole distance."""
        return _score(self.path.distance.paired, self.path.distance.metric)

    @cached_property
    def remainder(self) -> str | None:
        """What the shares leave of the distance, where some are not known."""
        left = self.path.remainder
        if left == 0 or math.isnan(left):
            return None
        return show(left, self.path.distance.metric, signed=True)

    @cached_property
    def undetected(self) -> str | None:
        """The choices that made no detectable difference, by name."""
        names = [
            share.name for share in self.path.shares if share.known and not share.contrast.found and not share.mixed
        ]
        if not any(share.undetected or share.nothing for share in self.path.shares):
            return None
        return f"No detectable difference: {', '.join(names)}."

    @cached_property
    def sampled(self) -> list[str]:
        """What was walked and what was not."""
        return [*self._orders(), self._points(), *self._blocked(), *self._tokens()]

    @cached_property
    def apart(self) -> list[str]:
        """The differences that have no meaning apart from one another."""
        return [*self._alone(), *self._together()]

    def _row(self, share: Share) -> ChoiceRow:
        contrast, metric = share.contrast, share.contrast.metric
        paired = contrast.paired
        spread = [show(end, metric, signed=True) for end in contrast.spread or ()]
        return ChoiceRow(
            name=share.name,
            before=share.before,
            after=share.after,
            share=Score("0", reason=contrast.reason or "")
            if share.nothing
            else _score(paired, metric, contrast.reason),
            orders=" to ".join(spread) or "–",
            order_error=show(share.order_error, metric),
            alone=_change(share.alone, metric),
            without=_change(share.without, metric),
            verdict=contrast.words if contrast.verdict else "–",
            word=contrast.verdict if contrast.found else "none",
            reason=contrast.reason or "",
            holm_p=show_p(contrast.holm_p),
            sign_flip_p=show_p(paired.sign_flip_p if paired else None),
            effect=show(paired.effect if paired else None, "system/effect", signed=True),
        )

    def _orders(self) -> list[str]:
        walked, possible = self.path.walked, self.path.possible
        if walked == possible:
            return [
                f"All {possible} orders of the {len(self.path.record.choices)} choices "
                "were walked: the shares are Shapley values of these runs."
            ]
        return [
            f"{walked} of {possible:,} orders were walked, drawn at random (seed "
            f"{self.path.record.orders.seed}), each with its reverse where both have a "
            "meaning. A share is the average over these; the other orders were not sampled. The "
            "range is over the walked orders, ± the standard error of a share as an estimate of "
            "the average over all orders; the interval is over seeds and knows nothing of orders."
        ]

    def _points(self) -> str:
        choices = len(self.path.record.choices)
        trained = len(self.analysis.frames.variants)
        return f"{choices} choices make {2**choices:,} points; {trained} of them are part of this study."

    def _blocked(self) -> list[str]:
        orders = self.path.record.orders
        number = sum(orders.blocked.values())
        if not number:
            return []
        reasons = "; ".join(f"{reason} ({times})" for reason, times in orders.blocked.items())
        return [
            f"{number} of the {orders.tried} orders looked at pass a point that has no meaning: "
            f"{reasons}. Orders that pass none were walked first, so that shares are averages "
            "over orders of that kind."
        ]

    def _tokens(self) -> list[str]:
        metric = self.path.distance.metric
        counted = metric.rsplit("/", 1)[-1].removesuffix("_alone") in COUNTED_IN_TOKENS
        prints = self.analysis.frames.runs["fingerprint"].dropna().nunique()
        if not counted or prints < 2:
            return []
        return [
            f"The points make tokens of the sentences in {prints} ways; {readable(metric)} is "
            "taken over each point's own tokens, boundary tokens included, so that a choice can "
            "move it by changing what is counted."
        ]

    def _alone(self) -> list[str]:
        told = []
        start, end = self.path.names
        for one in self.path.record.apart:
            where = f"applied alone to {start}" if one.end == "from" else f"taken out of {end}"
            partners = f"; it has one together with {' or '.join(one.needs)}"
            told.append(f"{one.choice} {where} has no meaning: {one.reason}{partners if one.needs else ''}.")
        return told

    def _together(self) -> list[str]:
        steps = Counter(
            frozenset(step.choices) for walk in self.path.record.walks for step in walk if len(step.choices) > 1
        )
        names = [choice.name for choice in self.path.record.choices]
        return [
            f"{' and '.join(name for name in names if name in group)} were applied together in "
            f"{times} of {self.path.walked} walks, being undefined apart there; that joint effect "
            "is a row of its own, and the shares of each alone are of the other walks."
            for group, times in steps.items()
        ]


def path_section(analysis: Analysis) -> PathSection | None:
    """Return the section, None for an experiment without a path."""
    return PathSection(analysis, analysis.path) if analysis.path else None


def _change(change: Change, metric: str) -> Score:
    return _score(change.paired, metric, change.reason)


def _score(paired: Paired | None, metric: str, reason: str | None = None) -> Score:
    if paired is None:
        return Score("–", reason=reason or "")
    mean = show(paired.mean, metric, signed=True)
    if not math.isfinite(paired.low):
        return Score(mean)
    low, high = show(paired.low, metric), show(paired.high, metric)
    return Score(mean, f"{low} to {high}")
