"""The settings of a question combined: a random-effects mean, and an interval for a setting that was not studied.

Settings are studies of the same change, for example at several widths or on several texts. Their true differences vary
around a mean. The variance between settings is that of R. DerSimonian and N. Laird (Meta-analysis in clinical trials,
Controlled Clinical Trials 7, 1986), the interval of the mean that of J. Hartung and G. Knapp (A refined method for the
meta-analysis of controlled clinical trials with binary outcome, Statistics in Medicine 20, 2001), which is never
narrower than that of known variances (C. Rover, G. Knapp and T. Friede, BMC Medical Research Methodology 15, 2015), and
the prediction interval that of J. P. T. Higgins, S. G. Thompson and D. J. Spiegelhalter (A re-evaluation of
random-effects meta-analysis, Journal of the Royal Statistical Society A 172, 2009).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from headtohead_judge.paired_tests import CONFIDENCE, Difference, Interval, t_quantile

MIN_SETTINGS = 3
"""Smallest number of settings that are combined."""


@dataclass(frozen=True)
class CombinedSettings:
    """The estimates of several settings, combined.

    Attributes:
        settings: Number of settings.
        mean: The mean of the true values.
        interval: Its 95 % interval.
        between: Standard deviation of the true values between settings, at least 0.
        prediction: Prediction interval of the true value of another setting, by default at 95 %. For differences of
            five settings of six seeds that differ by about their errors, it contained the true difference in 91 % of
            simulated questions.
    """

    settings: int
    mean: float
    interval: Interval
    between: float
    prediction: Interval


def combine(settings: Sequence[Difference]) -> CombinedSettings:
    """Return the random-effects mean of the differences of independent settings.

    Args:
        settings: At least `MIN_SETTINGS` differences that vary over seeds, with the variance of all their sources.

    Raises:
        ValueError: If there are fewer settings, or a difference has no variance.
    """
    means = [setting.mean for setting in settings]
    variances = [setting.error**2 for setting in settings]
    return combine_estimates(means, variances)


def combine_estimates(
    estimates: ArrayLike, variances: ArrayLike, prediction_confidence: float = CONFIDENCE
) -> CombinedSettings:
    """Return the random-effects mean of the estimates of independent settings.

    Args:
        estimates: An estimate for each setting, at least `MIN_SETTINGS`.
        variances: The squared standard error of each estimate.
        prediction_confidence: The confidence of the prediction interval.

    Raises:
        ValueError: If there are fewer settings, or an estimate has no variance.
    """
    means = np.asarray(estimates, dtype=np.float64)
    squared_errors = np.asarray(variances, dtype=np.float64)
    number = len(means)
    if number < MIN_SETTINGS:
        raise ValueError(f"at least {MIN_SETTINGS} settings can be combined, got {number}")
    if not (squared_errors > 0).all():
        raise ValueError("a setting without variance cannot be combined with others")
    between = _variance_between(means, squared_errors)
    weights = 1 / (squared_errors + between)
    mean = float(weights @ means / weights.sum())
    spread = float(weights @ (means - mean) ** 2) / (number - 1)
    error = math.sqrt(max(1.0, spread) / weights.sum())
    half = t_quantile(number - 1) * error
    quantile = t_quantile(number - 2, prediction_confidence)
    half_of_prediction = quantile * math.hypot(error, math.sqrt(between))
    return CombinedSettings(
        settings=number,
        mean=mean,
        interval=Interval(mean - half, mean + half),
        between=math.sqrt(between),
        prediction=Interval(mean - half_of_prediction, mean + half_of_prediction),
    )


def _variance_between(means: np.ndarray, variances: np.ndarray) -> float:
    """Return the variance between settings of DerSimonian and Laird: the excess of the weighted sum of squares."""
    weights = 1 / variances
    mean = weights @ means / weights.sum()
    squares = float(weights @ (means - mean) ** 2)
    expected = len(means) - 1
    scale = float(weights.sum() - (weights**2).sum() / weights.sum())
    return max(0.0, (squares - expected) / scale)
