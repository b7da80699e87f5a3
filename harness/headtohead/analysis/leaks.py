"""How much of the test set is in training, and how much better that can make a score.

A score M that is a mean over examples or tokens, of which a share s is in training, is s L + (1 - s) C with the means L
of the leaked and C of the clean part. L is at best the best value b of the metric, so C is at most |b - M| / (1 - s)
away from b, and M is at most s / (1 - s) |b - M| better than C. For a loss, b is 0: the bound is the share s of the
loss of the clean part. C is also no worse than the worst value w, so the bound is at most the distance |M - w|.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headtohead.analysis.scores import Scores, same_data_set
from headtohead.data.splits import LEAKY_SHARE
from headtohead.storage.experiment import leaked_part
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import decimals, higher_is_better, span

UNIT_OF = {"test/exact_match": "examples", "test/loss": "tokens", "test/token_accuracy": "tokens"}
"""What each bounded score is a mean over. BLEU and chrF are no means, and bytes are not counted."""


@dataclass(frozen=True)
class Leak:
    """Test examples of some variants that are in training.

    Attributes:
        part: The share of the test set, as a clause.
        share: The share of the test set, from 0 to 1.
        slugs: The variants with this leak if their data are not the baseline's; empty for the baseline's data.
        metric: The score with a bound: the primary metric or the test loss; None without a bound.
        effect: By how much a variant's mean score can be better than on the clean part, rounded up.
        margin: The margin of ``metric``, or None.
    """

    part: str
    share: float
    slugs: tuple[str, ...] = ()
    metric: str | None = None
    effect: float = math.nan
    margin: float | None = None

    @property
    def is_serious(self) -> bool:
        """Whether the effect can exceed the margin; without a margin, whether the share is at least LEAKY_SHARE."""
        if self.margin is not None:
            return self.effect > self.margin
        return self.share >= LEAKY_SHARE


def leaks(scores: Scores) -> list[Leak]:
    """Return the leak of the baseline's data and the leaks of other data, each with its variants.

    Data without a measured leak, or with a leak of 0, are left out. Variants of other data are left out if none of
    their runs has a record; those with the same clause on their leak are one entry, with the bound of the last data.
    """
    frames = scores.frames
    with_baseline_data = []
    slugs_of: dict[str, list[str]] = {}
    data_of: dict[str, Mapping[str, Any]] = {}
    for slug in frames.by_slug:
        if same_data_set(frames, slug, frames.baseline):
            with_baseline_data.append(slug)
            continue
        data = recorded_data(frames, slug)
        if data.get("leak"):
            part = leaked_part(data)
            slugs_of.setdefault(part, []).append(slug)
            data_of[part] = data
    leaks_of_study = []
    if frames.record.data.get("leak"):
        leaks_of_study.append(_leak(scores, frames.record.data, with_baseline_data, ()))
    for part, slugs in slugs_of.items():
        leaks_of_study.append(_leak(scores, data_of[part], slugs, tuple(slugs)))
    return leaks_of_study


def recorded_data(frames: Frames, slug: str) -> Mapping[str, Any]:
    """Return the record of a variant's data; empty if none of its runs has a record.

    Raises:
        KeyError: If the experiment has no variant ``slug``.
    """
    for run in frames.rows(slug).index:
        if run in frames.records:
            return frames.records[run].data
    return {}


def largest_effect(metric: str, mean: float, share: float) -> float:
    """Return by how much a mean score is at most better than on its clean part.

    It is at most the distance to the worst value, and exactly that without a clean part (``share`` 1). With a share
    above 0, it is infinite for a metric without bounds; it is also infinite for a loss without a clean part.

    >>> round(largest_effect("test/exact_match", 0.9, 0.2), 3), round(largest_effect("test/loss", 1.8, 0.1), 3)
    (0.025, 0.2)

    Args:
        metric: The metric.
        mean: A mean score, in the range of the metric.
        share: The share of the examples or tokens of the score that is in training, from 0 to 1.

    Raises:
        HeadToHeadError: If neither a record that was read nor a loaded dataset declares the metric.
    """
    least, largest = span(metric)
    best, worst = (largest, least) if higher_is_better(metric) else (least, largest)
    to_worst = abs(mean - worst)
    if share >= 1:
        return to_worst
    to_best = abs(best - mean)
    return min(to_best * share / (1 - share), to_worst)


def _leak(
    scores: Scores, data: Mapping[str, Any], with_data: list[str], named: tuple[str, ...]
) -> Leak:
    """Return a leak with the bound of the first metric that has one, and of the variant with the largest bound.

    The primary metric comes before the test loss. Without a finite bound, the leak has no metric and no effect.

    Args:
        scores: The study.
        data: A data record with a measured leak.
        with_data: The variants with these data, whose scores are bounded.
        named: Those of them that the leak names.
    """
    frames = scores.frames
    part = leaked_part(data)
    for metric in dict.fromkeys([scores.metric, "test/loss"]):
        effects = _effects(scores, metric, data, with_data)
        largest = max(effects, default=math.inf)
        if not math.isfinite(largest):
            continue
        margin_value = None
        margin = frames.record.margins.get(metric)
        if margin:
            margin_value = margin.value
        steps = 10 ** decimals(metric)
        rounded_up = math.ceil(largest * steps - 1e-9) / steps
        return Leak(part, data["leak"], named, metric, rounded_up, margin_value)
    return Leak(part, data["leak"], named)


def _effects(scores: Scores, metric: str, data: Mapping[str, Any], slugs: list[str]) -> list[float]:
    """Return the `largest_effect` of a leak on the mean of each variant.

    Variants without a mean are skipped, and so are scores of a sample of the examples (``test_limit``), whose leaked
    share is not known. There are no effects for metrics that are not in UNIT_OF, and for data without a leaked share of
    their unit.

    Raises:
        KeyError: If the study has no variant of a slug.
    """
    shares = data.get("leaked_shares") or {}
    unit = UNIT_OF.get(metric)
    if unit not in shares:
        return []
    effects = []
    for slug in slugs:
        evaluation = scores.frames.by_slug[slug].config.evaluate
        is_sample = unit == "examples" and evaluation.test_limit is not None
        mean = scores.frames.summary(slug, metric).mean
        if not is_sample and not math.isnan(mean):
            effects.append(largest_effect(metric, mean, shares[unit]))
    return effects
