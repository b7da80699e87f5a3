"""Changes along the permutations of a Shapley path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from headtohead.statistics.paired_tests import Floats
from headtohead.statistics.shapley import SampledDifference, sampled_difference
from headtohead.storage.records import PathRecord

Pair = tuple[str, str]
"""The slugs of the variants after and before a step."""


def path_steps(path: PathRecord) -> Iterator[list[Pair]]:
    """Yield the pairs of slugs of each permutation."""
    for permutation in path.permutations:
        slugs = [path.start.slug, *(step.slug for step in permutation)]
        yield [(after, before) for before, after in pairwise(slugs)]


def changes_by_permutation(
    path: PathRecord, declared: Sequence[Pair], scored: Sequence[Pair], differences: Floats
) -> tuple[list[tuple[str, ...]], Floats]:
    """Return the permutations and the changes of a choice ``[permutation, seed]``.

    A change is 0 in a permutation that applies the choice only as a part of a group. Permutations without scores of
    the declared pair are omitted.

    Args:
        path: The path.
        declared: The pairs of slugs of the choice.
        scored: The declared pairs with scores.
        differences: ``[scored pair, seed]``.
    """
    by_pair = dict(zip(scored, differences, strict=True))
    permutations, rows = [], []
    for permutation, steps in zip(path.permutations, path_steps(path), strict=True):
        pair = next((step for step in steps if step in declared), None)
        if pair is None or pair in by_pair:
            permutations.append(tuple(name for step in permutation for name in step.choices))
            rows.append(np.zeros(differences.shape[1]) if pair is None else by_pair[pair])
    return permutations, np.array(rows)


def choice_difference(
    path: PathRecord, declared: Sequence[Pair], scored: Sequence[Pair], differences: Floats, scale: float
) -> SampledDifference:
    """Return the test of a choice over seeds and permutations; arguments as of `changes_by_permutation`."""
    permutations, changes = changes_by_permutation(path, declared, scored, differences)
    return sampled_difference(permutations, changes, path.orders.possible, scale)
