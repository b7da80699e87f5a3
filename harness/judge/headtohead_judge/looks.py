"""Sequential looks: a study that is judged at several numbers of seeds keeps its error rates.

Every look tests at the same nominal level, as Pocock (1977, Biometrika 64) proposed. With few seeds his normal
boundaries are too lenient for t-tests (Rom and McTague 2020, Journal of Biopharmaceutical Statistics 30), so the joint
distribution of the t-tests of all looks is simulated, as exactly as ``STUDIES`` permit. A p-value is replaced by the
probability that the smallest p of all looks is as small (the repeated p-value of Jennison and Turnbull, 1984), to which
the correction for the number of contrasts applies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

STUDIES = 200_000
"""Number of simulated studies without a difference; a rate of 5 % has a standard error of 0.05 %."""

BLOCK = 10_000
"""Number of studies that are simulated at once; 1,000 seeds then need 80 MB."""

MIN_SEEDS = 3
"""Smallest number of seeds of a look; with two seeds, a t-test has almost no power."""


@dataclass(frozen=True)
class Looks:
    """The planned numbers of seeds at which a study is judged, in ascending order.

    >>> Looks.planned(4, 20).seeds
    (5, 10, 15, 20)
    """

    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.seeds or self.seeds[0] < 2 or list(self.seeds) != sorted(set(self.seeds)):
            raise ValueError(
                f"looks must be ascending numbers of at least 2 seeds, got {self.seeds}"
            )

    @classmethod
    def planned(cls, number: int, most: int) -> Looks:
        """Return ``number`` looks at equal intervals up to ``most`` seeds, none before ``MIN_SEEDS``."""
        seeds = set()
        for look in range(1, number + 1):
            seeds.add(max(MIN_SEEDS, math.ceil(most * look / number)))
        return cls(tuple(sorted(seeds)))

    @classmethod
    def single(cls) -> Looks:
        """Return the looks of a study that is judged once; `adjusted` and `level` return their arguments."""
        return cls((MIN_SEEDS,))

    def next(self, seeds: int) -> int | None:
        """Return the number of seeds of the first look with more than ``seeds``, or None after the last."""
        return next((planned for planned in self.seeds if planned > seeds), None)

    def adjusted(self, p: float) -> float:
        """Return the probability, without a difference, that the smallest p of all looks is at most ``p``.

        ``p`` is two-sided; NaN stays NaN.
        """
        if math.isnan(p) or len(self.seeds) == 1:
            return p
        smallest = _smallest_p(self.seeds)
        at_most = np.searchsorted(smallest, p, side="right")
        return float(min(1.0, (at_most + 1) / (STUDIES + 1)))

    def level(self, alpha: float) -> float:
        """Return the nominal level of every look with an overall level of ``alpha``.

        It is the largest p that `adjusted` maps to at most ``alpha``.
        """
        if len(self.seeds) == 1:
            return alpha
        count = math.floor(alpha * (STUDIES + 1)) - 1
        if count < 1:
            return 0.0
        return float(_smallest_p(self.seeds)[count - 1])


@lru_cache(maxsize=16)
def _smallest_p(looks: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the smallest two-sided p of all looks in simulated studies without a difference, ascending."""
    generator = np.random.default_rng(1977)
    smallest = np.ones(STUDIES)
    for block in np.split(smallest, STUDIES // BLOCK):
        draws = generator.standard_normal((BLOCK, looks[-1]))
        for seeds in looks:
            scores = draws[:, :seeds]
            error = scores.std(axis=1, ddof=1) / math.sqrt(seeds)
            t = scores.mean(axis=1) / error
            p = 2 * scipy.special.stdtr(seeds - 1, -np.abs(t))
            np.minimum(block, p, out=block)
    smallest.sort()
    return smallest
