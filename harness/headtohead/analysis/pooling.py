"""Compute test scores over several length buckets from the counts per bucket."""

from __future__ import annotations

import numpy as np
import pandas as pd

from headtohead.statistics.translation_scores import bleu_of_counts


def pooled(buckets: pd.DataFrame, metric: str) -> float | None:
    """Return a test metric over all sentences of several buckets of a run.

    None if the metric cannot be computed from counts, or the run has no counts.

    Args:
        buckets: Rows of `Frames.buckets`.
        metric: ``test/exact_match``, ``test/loss`` or ``test/bleu``.
    """
    split, _, leaf = metric.rpartition("/")
    counts = COUNTS.get(leaf) if split == "test" else None
    if counts is None or not {leaf, counts} <= {*buckets}:
        return None
    rows = buckets.dropna(subset=[leaf, counts])
    if rows.empty:
        return None
    if leaf == "bleu":
        return bleu_of_counts(np.array(rows[counts].tolist(), dtype=np.int64).sum(axis=0).tolist())
    return float(np.average(rows[leaf], weights=rows[counts]))


COUNTS = {"exact_match": "n", "loss": "target_tokens", "bleu": "bleu_counts"}
"""The column of counts that a score over several buckets is computed from, by metric."""
