"""Scores over several length buckets of the test split, recomputed from the counts of each."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd


def pooled(buckets: pd.DataFrame, metric: str) -> float | None:
    """Return a test metric over all sentences of some buckets of one run.

    None for a metric that the counts do not give, and where the run has no counts.

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
        return bleu(np.array(rows[counts].tolist(), dtype=np.int64).sum(axis=0).tolist())
    return float(np.average(rows[leaf], weights=rows[counts]))


COUNTS = {"exact_match": "n", "loss": "target_tokens", "bleu": "bleu_counts"}
"""The column of a bucket's counts, by metric: a score over several buckets depends on no other."""


def bleu(counts: Sequence[int]) -> float:
    """Return corpus BLEU, smoothed as sacreBLEU does by default.

    Args:
        counts: Matched and total n-grams of orders 1 to 4, length of the translations and of the
            references: ten numbers.
    """
    score = bleu_class().compute_bleu(list(counts[:4]), list(counts[4:8]), *counts[8:], smooth_method="exp")
    return float(score.score)


def bleu_class() -> Any:
    """Return sacreBLEU's BLEU; the import prints no warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sacrebleu.metrics.bleu import BLEU
    return BLEU
