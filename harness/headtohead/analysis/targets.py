"""Steps to target: when the runs of each variant reach a value of a validation metric.

A run that never reaches the target has infinite steps, as in AlgoPerf (G. E. Dahl et al., Benchmarking Neural Network
Training Algorithms, 2023, arXiv 2306.07179, section 4). Medians and a sign test over seeds are defined with infinite
values; means and t-tests are not.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from headtohead.analysis.scores import OTHER_DATA, Scores, score_mismatch
from headtohead.statistics.paired_tests import ALPHA, holm, sign_test_p
from headtohead.storage import states
from headtohead.storage.metrics import higher_is_better


@dataclass(frozen=True)
class VariantTarget:
    """When the runs of a variant reach a target.

    Attributes:
        steps: By seed, the step of the first evaluation that reaches the target; infinite if none does.
        seconds: By seed, the training time of the run's stack until then, without evaluations.
        reason: Why the variant has no steps, or is not compared with the baseline; else None.
        earlier: Number of seeds in which the variant reaches the target before the baseline does.
        later: Number of seeds in which it reaches the target after the baseline does.
        holm_p: p of the sign test over seeds, adjusted for planned looks (Bonferroni) and by Holm over the variants;
            NaN without a comparison.
    """

    steps: Mapping[int, float]
    seconds: Mapping[int, float]
    reason: str | None = None
    earlier: int = 0
    later: int = 0
    holm_p: float = math.nan

    @property
    def reached(self) -> int:
        """Number of runs that reach the target."""
        return sum(map(math.isfinite, self.steps.values()))

    @property
    def median_steps(self) -> float:
        """Median over seeds; infinite if half of the runs or more never reach the target, NaN without runs."""
        return statistics.median(self.steps.values()) if self.steps else math.nan

    @property
    def median_seconds(self) -> float:
        """Median over seeds of the training time of the stack."""
        return statistics.median(self.seconds.values()) if self.seconds else math.nan

    @property
    def verdict(self) -> str | None:
        """Whether the target is reached in fewer or more steps than by the baseline; None without a comparison."""
        if math.isnan(self.holm_p):
            return None
        if self.holm_p > ALPHA:
            return "inconclusive"
        return "faster" if self.earlier > self.later else "slower"


class Target(NamedTuple):
    """A target of a validation metric; ``value`` is None for the final value of the baseline with the same seed."""

    metric: str
    value: float | None
    variants: Mapping[str, VariantTarget]


def targets(scores: Scores) -> tuple[Target, ...]:
    """Return the declared targets with the results of all variants."""
    return tuple(
        _target(scores, metric, None if value == "baseline" else float(value))
        for metric, value in scores.frames.record.metrics.target.items()
    )


def _target(scores: Scores, metric: str, value: float | None) -> Target:
    frames = scores.frames
    rows = frames.histories[frames.histories["metric"] == metric].sort_values("step", kind="stable")
    curves = {str(run): curve for run, curve in rows.groupby("run", observed=True, sort=False)}
    found = {slug: _variant(scores, slug, metric, value, curves) for slug in frames.by_slug}
    baseline = found[frames.baseline]
    looks = len(frames.looks.seeds) if frames.looks else 1
    compared: dict[str, VariantTarget] = {}
    for slug, variant in found.items():
        seeds = sorted(variant.steps.keys() & baseline.steps.keys())
        is_same = frames.trained(slug) == frames.trained(frames.baseline)
        if variant.reason or baseline.reason or is_same or len(seeds) < 2:
            continue
        ours, theirs = (np.array([side.steps[seed] for seed in seeds]) for side in (variant, baseline))
        p = min(1.0, looks * sign_test_p(ours, theirs))
        compared[slug] = replace(
            variant, earlier=int((ours < theirs).sum()), later=int((ours > theirs).sum()), holm_p=p
        )
    adjusted = holm([variant.holm_p for variant in compared.values()])
    for (slug, variant), p in zip(compared.items(), adjusted, strict=True):
        found[slug] = replace(variant, holm_p=p)
    return Target(metric, value, found)


def _variant(
    scores: Scores, slug: str, metric: str, value: float | None, curves: Mapping[str, pd.DataFrame]
) -> VariantTarget:
    frames = scores.frames
    mismatch = score_mismatch(frames, slug, frames.baseline, metric)
    if mismatch and (value is None or mismatch != OTHER_DATA):
        return VariantTarget({}, {}, mismatch)
    rows, final = frames.rows(slug), frames.scores(frames.baseline, metric)
    steps: dict[int, float] = {}
    seconds: dict[int, float] = {}
    for run, row in rows[rows["state"].isin(states.RESULTS)].iterrows():
        seed, curve = int(row["seed"]), curves.get(str(run))
        target = final.get(seed) if value is None else value
        if target is not None and curve is not None:
            is_higher = higher_is_better(metric)
            steps[seed] = first_step(curve["step"].to_numpy(), curve["value"].to_numpy(), target, is_higher)
            seconds[seed] = steps[seed] * row.get("system/step_ms", math.nan) / 1000
    incomplete = None if scores.allow_partial else scores.incomplete.get(slug)
    return VariantTarget(steps, seconds, mismatch or incomplete)


def first_step(steps: np.ndarray, values: np.ndarray, target: float, higher: bool) -> float:
    """Return the step of the first evaluation that reaches the target, infinite if none does; NaN never reaches it."""
    reached = values >= target if higher else values <= target
    return float(steps[reached.argmax()]) if reached.any() else math.inf
