"""The tuning of an experiment in ``experiment.json``: every tuning run with its scores, and the rule that chose."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import Field, JsonValue, StrictBool

from headtohead.storage.record import Count, Fraction, NonNegative, Number, Record, Seed
from headtohead.storage.results import MetricName

TUNING_METRIC = "valid/loss"
"""Metric that chooses a setting; lower is better."""

AboveZero = Annotated[Number, Field(gt=0)]


class Rule(StrEnum):
    """How the setting of a variant was chosen from its tuning runs."""

    CURVE = "curve"
    """The minimum of a parabola in the logarithm of the value."""

    MORE_SEEDS = "more seeds"
    """The best mean of the two best settings, which were trained with further seeds."""

    ONE_SEED = "one seed"
    """The best setting of a single seed."""

    ONE_SETTING = "one setting"
    """The only setting without a diverged run, or the only one that was tried."""


RULES = {
    Rule.CURVE: "minimum of the parabola",
    Rule.MORE_SEEDS: "best mean of {seeds} seeds; {reason}",
    Rule.ONE_SEED: "best of 1 seed",
    Rule.ONE_SETTING: "only setting without a diverged run",
}
"""How a setting was chosen, as a phrase."""


def number_of(values: Mapping[str, JsonValue], field: str) -> float:
    """Return the value of a field that has a number."""
    value = values[field]
    assert isinstance(value, int | float)
    return float(value)


class TrialRun(Record):
    """A tuning run with its scores by metric; a run that diverged has no scores."""

    run_hash: str
    seed: Seed
    scores: Mapping[MetricName, Number]


class TrialRecord(Record):
    """A setting of a sweep with its runs: first the seeds of the sweep, then further seeds.

    ``is_further`` is whether the setting was added beyond the values that the experiment file lists.
    """

    values: Mapping[str, JsonValue]
    runs: tuple[TrialRun, ...]
    is_further: StrictBool = False

    def scores(self, metric: str) -> list[float]:
        """Return the score of each run in a metric; NaN for a run without this score."""
        return [run.scores.get(metric, math.nan) for run in self.runs]

    @property
    def mean(self) -> float | None:
        """The mean of the metric that chooses; None if a run diverged."""
        mean = statistics.fmean(self.scores(TUNING_METRIC))
        return None if math.isnan(mean) else mean

    @property
    def sd(self) -> float | None:
        """The standard deviation of the metric that chooses; None with one run, or if a run diverged."""
        if len(self.runs) < 2 or self.mean is None:
            return None
        return statistics.stdev(self.scores(TUNING_METRIC))


class Curve(Record):
    """The parabola ``offset + slope · u + curvature · u²`` with ``u = ln(value / centre)``.

    Attributes:
        lack_of_fit_p: The p-value of the F-test for lack of fit.
        residual_sd: The standard deviation of the scores around the parabola, without the effects of seeds.
        degrees: The degrees of freedom of ``residual_sd``.
    """

    centre: AboveZero
    offset: Number
    slope: Number
    curvature: Number
    lack_of_fit_p: Fraction
    residual_sd: NonNegative
    degrees: Count

    @property
    def minimum(self) -> float | None:
        """The value at which the parabola is smallest; None if it has no minimum."""
        if self.curvature <= 0:
            return None
        exponent = -self.slope / (2 * self.curvature)
        # A parabola that is almost a line has its minimum beyond every number.
        return self.centre * math.exp(max(-700.0, min(700.0, exponent)))

    def at(self, value: float) -> float:
        """Return the parabola at a value above 0."""
        exponent = math.log(value / self.centre)
        return self.offset + self.slope * exponent + self.curvature * exponent**2


class TunedVariant(Record):
    """The setting that a sweep chose for a variant.

    Attributes:
        chosen: The value of each tuned field.
        rule: The rule that chose.
        reason: Why the minimum of the parabola was not chosen; empty if it was.
        curve: The parabola through the tuning runs; None if there is none.
        at_the_edge: The fields whose best value may be outside the values of the sweep.
        tried: All tried settings.
    """

    chosen: Mapping[str, JsonValue]
    rule: Rule
    reason: str = ""
    curve: Curve | None = None
    at_the_edge: tuple[str, ...]
    tried: tuple[TrialRecord, ...]

    @property
    def how(self) -> str:
        """How the setting was chosen, as a phrase."""
        seeds = max(len(trial.runs) for trial in self.tried)
        return RULES[self.rule].format(seeds=seeds, reason=self.reason)


class TuningRecord(Record):
    """The sweep of an experiment; ``variants`` is empty until the setting of every variant is chosen.

    Attributes:
        seeds: The seeds of every setting; some settings have further seeds.
        epochs: The epochs of the tuning runs if they have another length than those of the experiment.
        coarse: Why the sweep may miss the best setting.
    """

    experiment: str
    fields: tuple[str, ...]
    metric: MetricName
    seeds: tuple[Seed, ...]
    variants: Mapping[str, TunedVariant]
    epochs: Number | None = None
    coarse: str = ""
