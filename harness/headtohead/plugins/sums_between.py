"""Sums over the tokens between two positions, as of the logarithms of decays."""

from __future__ import annotations

import torch
from torch import Tensor


def sums_between(terms: Tensor, queries: int | None = None) -> Tensor:
    """Return the sum of the terms j+1..i for every query i and key j, ``[..., query, key]``.

    Where i is smaller than j, the result is minus the sum of the terms i+1..j.

    The sums are differences of a cumulative sum over the whole sequence. In float32 such a difference would lose the
    digits by which the cumulative sum is larger than it. The cumulative sum is therefore float64, as a float32 number
    and a float32 remainder, and every result has the relative precision of its own dtype.

    Args:
        terms: ``[..., time]``.
        queries: Number of queries, the last of the keys; by default all keys are queries.

    Returns:
        The dtype of ``terms``, float32 for terms of less precision.
    """
    dtype = torch.promote_types(terms.dtype, torch.float32)
    queries = terms.shape[-1] if queries is None else queries
    exact = terms.double().cumsum(-1)
    sums = exact.to(dtype)
    differences = sums[..., -queries:, None] - sums[..., None, :]
    if dtype == torch.float64:
        return differences
    # The remainder is a rounding error, so the gradient flows through the rounded sums alone.
    remainder = (exact.detach() - sums.detach()).to(dtype)
    differences += remainder[..., -queries:, None]
    differences -= remainder[..., None, :]
    return differences
