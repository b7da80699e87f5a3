"""Compute test scores over several length buckets from the counts per bucket."""

from __future__ import annotations

import numpy as np
import pandas as pd

from headtohead.schema.metric import UNPADDED, leaf
from headtohead.storage.metrics import find


def pooled(buckets: pd.DataFrame, metric: str) -> float | None:
    """Return a test metric over all sentences of several buckets of a run.

    None if the metric cannot be computed from counts, or the run has no counts.

    Args:
        buckets: Rows of `Frames.buckets`.
        metric: A metric of the test split, such as ``test/exact_match``.
    """
    known = find(metric)
    if not metric.startswith("test/") or metric.endswith(UNPADDED) or known is None or known.pool is None:
        return None
    if "counts" not in buckets:
        return None
    counts = [own[leaf(metric)] for own in buckets["counts"].dropna() if leaf(metric) in own]
    return known.pool(np.array(counts).sum(axis=0).tolist()) if counts else None
