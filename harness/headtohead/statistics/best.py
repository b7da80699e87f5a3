"""Comparisons of many variants with the best of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from headtohead.statistics.looks import Looks
from headtohead.statistics.paired_tests import ALPHA, one_sided_p, paired
from headtohead.statistics.verdicts import judge


@dataclass(frozen=True)
class BestComparison:
    """A variant compared with the best of all others.

    ``worse_p`` tests whether the variant is worse than at least one other variant. ``equivalence_p`` tests whether it
    differs from the variant with the best mean by less than the margin; NaN without a margin.
    """

    worse_p: float
    equivalence_p: float = math.nan

    @property
    def is_worse(self) -> bool:
        """Whether the variant is significantly worse than another variant, so that it is not the best."""
        return self.worse_p <= ALPHA

    @property
    def is_equivalent(self) -> bool:
        """Whether the variant is equivalent to the variant with the best mean."""
        return self.equivalence_p <= ALPHA


def compare_with_best(
    scores: ArrayLike, *, margin: float | None = None, higher_is_better: bool = True, looks: Looks | None = None
) -> list[BestComparison]:
    """Return the comparison of each variant with the best, paired by seed.

    - ``worse_p``: any other variant can be the best, so each variant is compared with all others by one-sided paired
      t-tests. The smallest p is adjusted by Bonferroni for the number of others. This accounts for the selection of the
      best: the variants with a larger ``worse_p`` than 5 % include a best variant with a probability of at least 95 %
      (D. G. Edwards and J. C. Hsu, Multiple comparisons with the best treatment, JASA 78, 1983; here without equal
      variances).
    - ``equivalence_p``: two one-sided t-tests against the variant with the best mean, adjusted by Holm over the other
      variants. The selection makes that mean likely too high, and the tests conservative. 0 for that variant itself.

    Args:
        scores: ``[variant, seed]``, at least two variants and seeds.
        margin: The smallest difference that matters.
        higher_is_better: Whether a higher score is better.
        looks: The planned looks of a study with sequential seeds; every p-value is first adjusted for them.
    """
    x = np.asarray(scores, dtype=np.float64) * (1 if higher_is_better else -1)
    variants, seeds = x.shape
    if min(variants, seeds) < 2:
        raise ValueError(f"a comparison with the best needs two variants and two seeds, got {variants} and {seeds}")
    scale = float(np.abs(x).max())
    smallest = [float(one_sided_p(np.delete(x, own, axis=0) - row, 0.0, scale).min()) for own, row in enumerate(x)]
    worse = [(variants - 1) * (looks.adjusted(p, sides=1) if looks else p) for p in smallest]
    best = int(x.mean(axis=1).argmax())
    equivalence = [math.nan] * variants
    if margin:
        others = [row for own, row in enumerate(x) if own != best]
        judgements = judge([paired(row, x[best]) for row in others], margin=margin, looks=looks)
        tests = [judgement.equivalence for judgement in judgements]
        equivalence = [test.holm_p if test else math.nan for test in tests]
        equivalence.insert(best, 0.0)
    return [BestComparison(min(1.0, p), q) for p, q in zip(worse, equivalence, strict=True)]
