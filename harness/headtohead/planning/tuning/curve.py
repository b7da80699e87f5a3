"""Parabolas in the logarithm of a tuned value, fitted to the scores of its tuning runs.

The scores of a seed share an additive effect (a block), so that an easy seed does not shift the minimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from headtohead.storage.tuning import Curve

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]

MIN_VALUES = 4
"""Number of values from which a parabola is fitted, so that its lack of fit can be tested."""

LACK_OF_FIT_LEVEL = 0.1
"""A parabola with a smaller p-value of the F-test for lack of fit does not choose.

``benchmarks/simulated_tuning.py`` has more wrong directions at 0.05, which misses curves that are no parabolas, and
wider intervals at 0.2, which rejects more parabolas.
"""

ROUNDING = 1e-12
"""Deviations that are a smaller part of the scores are rounding errors."""


@dataclass(frozen=True)
class Fits:
    """Parabolas through tables of scores at the same values.

    Attributes:
        values: The values, above 0.
        centre: The value at which ``u = ln(value / centre)`` is 0, the geometric mean of the values.
        coefficients: ``[..., 3]``, offset, slope and curvature of each table.
        lack_of_fit: ``[...]``, the F statistic of the test for lack of fit.
        lack_degrees: The degrees of freedom of its numerator, the means around the parabola.
        within_degrees: The degrees of freedom of its denominator, the scores around the means.
        residual_sd: ``[...]``, the standard deviations around parabola and effects of seeds.
    """

    values: Floats
    centre: float
    coefficients: Floats
    lack_of_fit: Floats
    lack_degrees: int
    within_degrees: int
    residual_sd: Floats

    @property
    def degrees(self) -> int:
        """The degrees of freedom of ``residual_sd``."""
        return self.lack_degrees + self.within_degrees

    @property
    def lack_of_fit_p(self) -> Floats:
        """``[...]``, the p-values of the F-tests for lack of fit."""
        p: Floats = scipy.special.fdtrc(self.lack_degrees, self.within_degrees, self.lack_of_fit)
        return p

    @cached_property
    def minimum(self) -> Floats:
        """``[...]``, the logarithm of the value at each minimum; NaN for a parabola without a minimum."""
        slope = self.coefficients[..., 1]
        curvature = self.coefficients[..., 2]
        has_minimum = curvature > 0
        exponents = np.full(curvature.shape, np.nan)
        np.divide(-slope, 2 * curvature, out=exponents, where=has_minimum)
        minimum: Floats = np.log(self.centre) + exponents
        return minimum

    @cached_property
    def hold(self) -> Bools:
        """``[...]``, whether each parabola has a minimum and passes the test for lack of fit."""
        critical = scipy.special.fdtri(
            self.lack_degrees, self.within_degrees, 1 - LACK_OF_FIT_LEVEL
        )
        passes: Bools = self.lack_of_fit <= critical
        return passes & (self.coefficients[..., 2] > 0)

    @property
    def are_inside(self) -> Bools:
        """``[...]``, whether each minimum is between the smallest and the largest value."""
        is_above_smallest = self.minimum > np.log(self.values.min())
        is_below_largest = self.minimum < np.log(self.values.max())
        inside: Bools = is_above_smallest & is_below_largest
        return inside

    @property
    def side(self) -> Ints:
        """``[...]``, −1 or 1 for a parabola that holds with a minimum below or above all values, else 0."""
        is_above = self.minimum > np.log(self.centre)
        is_outside = self.hold & ~self.are_inside
        side: Ints = np.where(is_outside, np.where(is_above, 1, -1), 0)
        return side

    def at(self, logarithms: Floats) -> Floats:
        """Return the parabola of a single table at logarithms of values."""
        exponents = logarithms - np.log(self.centre)
        offset, slope, curvature = self.coefficients
        scores: Floats = offset + slope * exponents + curvature * exponents**2
        return scores

    @property
    def record(self) -> Curve:
        """The parabola of a single table."""
        offset, slope, curvature = self.coefficients.tolist()
        return Curve(
            centre=self.centre,
            offset=offset,
            slope=slope,
            curvature=curvature,
            lack_of_fit_p=float(self.lack_of_fit_p),
            residual_sd=float(self.residual_sd),
            degrees=self.degrees,
        )


def fit_parabolas(values: Floats, scores: Floats) -> Fits:
    """Fit a parabola to each table of scores by least squares, with an additive effect of each seed.

    The lack of fit is the variance of the means of the values around the parabola; it is tested against the variance
    within values that the effects of seeds leave.

    Args:
        values: ``[value]``, at least `MIN_VALUES` different numbers above 0.
        scores: ``[..., value, seed]``, finite, of at least two seeds.
    """
    num_values, num_seeds = scores.shape[-2:]
    basis = _basis(tuple(values.tolist()))
    # Every seed has every value, so the effects of seeds do not change the fit to the means of the values.
    of_value = scores.sum(axis=-1, keepdims=True) / num_seeds
    of_seed = scores.sum(axis=-2, keepdims=True) / num_values
    means = of_value[..., 0]
    coefficients = means @ basis.inverse.T
    around_parabola = means - coefficients @ basis.design.T
    lack_of_fit = num_seeds * (around_parabola**2).sum(axis=-1)
    within_values = scores - of_value - (of_seed - of_seed.mean(axis=-1, keepdims=True))
    within = (within_values**2).sum(axis=(-2, -1))
    smallest = ROUNDING**2 * (scores**2).sum(axis=(-2, -1))
    lack_degrees = num_values - 3
    within_degrees = (num_values - 1) * (num_seeds - 1)
    ratio = (lack_of_fit / lack_degrees) / (np.maximum(within, smallest) / within_degrees)
    return Fits(
        values=values,
        centre=basis.centre,
        coefficients=coefficients,
        lack_of_fit=np.where(lack_of_fit <= smallest, 0.0, ratio),
        lack_degrees=lack_degrees,
        within_degrees=within_degrees,
        residual_sd=np.sqrt((lack_of_fit + within) / (lack_degrees + within_degrees)),
    )


@dataclass(frozen=True)
class _Basis:
    """The powers of ``u = ln(value / centre)``: ``design`` ``[value, 3]``, and its pseudoinverse ``[3, value]``."""

    centre: float
    design: Floats
    inverse: Floats


@lru_cache(maxsize=64)
def _basis(values: tuple[float, ...]) -> _Basis:
    """Return the basis of parabolas at these values; a sweep and its resamples have the same few."""
    logarithms = np.log(values)
    exponents = logarithms - logarithms.mean()
    design = np.stack([np.ones(len(values)), exponents, exponents**2], axis=1)
    return _Basis(float(np.exp(logarithms.mean())), design, np.linalg.pinv(design))
