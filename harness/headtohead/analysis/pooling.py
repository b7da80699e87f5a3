"""Compute test scores over several length buckets from the counts per bucket."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd


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
        return bleu(np.array(rows[counts].tolist(), dtype=np.int64).sum(axis=0).tolist())
    return float(np.average(rows[leaf], weights=rows[counts]))


COUNTS = {"exact_match": "n", "loss": "target_tokens", "bleu": "bleu_counts"}
"""The column of counts that a score over several buckets is computed from, by metric."""


def bleu(counts: Sequence[int]) -> float:
    """Return corpus BLEU, smoothed as sacreBLEU does by default.

    Args:
        counts: Ten numbers: matched n-grams and total n-grams of orders 1 to 4, the length of the translations
            and the length of the references.
    """
    score = bleu_class().compute_bleu(list(counts[:4]), list(counts[4:8]), *counts[8:], smooth_method="exp")
    return float(score.score)


def bleu_class() -> Any:
    """Return sacreBLEU's class ``BLEU``, imported without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sacrebleu.metrics.bleu import BLEU
    return BLEU
