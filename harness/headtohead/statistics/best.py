"""Comparisons of every variant with the best of all others, which the data do not know for certain."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from headtohead.statistics.paired_tests import ALPHA, holm, one_sided_p


@dataclass(frozen=True)
class BestComparison:
    """A variant compared with the best of all others.

    ``worse_p`` tests whether the variant is worse than at least one other variant. ``equivalence_p`` tests whether it
    is worse than no other variant by the margin or more; NaN without a margin.
    """

    worse_p: float
    equivalence_p: float = math.nan

    @property
    def is_worse(self) -> bool:
        """Whether the variant is significantly worse than another variant, so that it is not the best."""
        return self.worse_p <= ALPHA

    @property
    def is_equivalent(self) -> bool:
        """Whether the variant is worse than the best by less than the margin."""
        return self.equivalence_p <= ALPHA


def compare_with_best(
    scores: ArrayLike, *, margin: float | None = None, higher_is_better: bool = True
) -> list[BestComparison]:
    """Return the comparison of each variant with the best of all others, paired by seed.

    Any other variant can be the best, so each variant is compared with all others by one-sided paired t-tests. This
    accounts for the selection of the best (D. G. Edwards and J. C. Hsu, Multiple comparisons with the best treatment,
    JASA 78, 1983; here without equal variances).

    - ``worse_p`` is the smallest p, adjusted by Bonferroni for the number of other variants. The variants with a larger
      ``worse_p`` than 5 % include a best variant with a probability of at least 95 %.
    - ``equivalence_p`` is the largest p of the tests that the variant is not worse than another by the margin: all must
      reject, so there is no correction over the others (intersection-union test: R. L. Berger, Multiparameter
      hypothesis testing and acceptance sampling, Technometrics 24, 1982). It is adjusted by Holm over the variants.

    Args:
        scores: ``[variant, seed]``, at least two variants and seeds.
        margin: The smallest difference that matters.
        higher_is_better: Whether a higher score is better.
    """
    x = np.asarray(scores, dtype=np.float64) * (1 if higher_is_better else -1)
    variants, seeds = x.shape
    if min(variants, seeds) < 2:
        raise ValueError(f"a comparison with the best needs two variants and two seeds, got {variants} and {seeds}")
    scale = float(np.abs(x).max())
    worse, equivalence = [], []
    for own, row in enumerate(x):
        differences = np.delete(x, own, axis=0) - row
        worse.append(min(1.0, (variants - 1) * float(one_sided_p(differences, 0.0, scale).min())))
        if margin:
            equivalence.append(float(one_sided_p(-differences, -margin, scale).max()))
    adjusted = holm(equivalence) if margin else [math.nan] * variants
    return [BestComparison(*pair) for pair in zip(worse, adjusted, strict=True)]
