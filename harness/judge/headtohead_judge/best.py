"""Comparisons of many variants with the best of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from headtohead_judge.looks import Looks
from headtohead_judge.paired_tests import ALPHA, holm, one_sided_p


@dataclass(frozen=True)
class BestComparison:
    """A variant compared with the best of all others.

    ``worse_p`` tests whether the variant is worse than at least one other variant. ``equivalence_p`` tests whether no
    other variant is better by the margin or more; NaN without a margin.
    """

    worse_p: float
    equivalence_p: float = math.nan

    @property
    def is_worse(self) -> bool:
        """Whether the variant is significantly worse than another variant, so that it is not the best."""
        return self.worse_p <= ALPHA

    @property
    def is_equivalent(self) -> bool:
        """Whether the variant is equivalent to the best, whichever that is."""
        return self.equivalence_p <= ALPHA


def compare_with_best(
    scores: ArrayLike,
    *,
    margin: float | None = None,
    higher_is_better: bool = True,
    looks: Looks | None = None,
) -> list[BestComparison]:
    """Return the comparison of each variant with the best, paired by seed.

    - ``worse_p``: any other variant can be the best, so each variant is compared with all others by one-sided paired
      t-tests. The smallest p is adjusted by Bonferroni for the number of others. This accounts for the selection of the
      best: the variants with a larger ``worse_p`` than 5 % include a best variant with a probability of at least 95 %
      (D. G. Edwards and J. C. Hsu, Multiple comparisons with the best treatment, JASA 78, 1983; here without equal
      variances).
    - ``equivalence_p``: any other variant can be the best, so one-sided paired t-tests must show of every other
      variant that it is not better by the margin or more (R. L. Berger, Multiparameter hypothesis testing and
      acceptance sampling, Technometrics 24, 1982). The largest p is adjusted by Holm over the variants.

    Args:
        scores: ``[variant, seed]``, at least two variants and seeds. NaN is a score that does not count; two variants
            are compared on the seeds of both.
        margin: The smallest difference that matters.
        higher_is_better: Whether a higher score is better.
        looks: The planned looks of a study with sequential seeds; every p-value is first adjusted for them.
    """
    sign = 1 if higher_is_better else -1
    x = np.asarray(scores, dtype=np.float64) * sign
    variants, seeds = x.shape
    if min(variants, seeds) < 2:
        raise ValueError(
            f"a comparison with the best needs two variants and two seeds, got {variants} and {seeds}"
        )
    scale = float(np.nanmax(np.abs(x)))
    differences = x - x[:, None]  # [variant, other, seed]: other minus variant
    others = ~np.eye(variants, dtype=bool)

    def over_looks(p: float) -> float:
        return looks.adjusted(p, sides=1) if looks else p

    smallest = one_sided_p(differences, 0.0, scale).min(axis=1, initial=1.0, where=others)
    equivalence = [math.nan] * variants
    if margin:
        largest = one_sided_p(-differences, -margin, scale).max(axis=1, initial=0.0, where=others)
        equivalence, _ = holm([over_looks(float(p)) for p in largest])
    comparisons = []
    for p, equivalence_p in zip(smallest, equivalence, strict=True):
        worse_p = (variants - 1) * over_looks(float(p))
        comparisons.append(BestComparison(min(1.0, worse_p), equivalence_p))
    return comparisons
