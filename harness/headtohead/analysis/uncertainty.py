"""Sources of uncertainty of the scores: variants, seeds and test sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headtohead.analysis.contrasts import Contrast
from headtohead.analysis.scores import Scores, Side, of_test_sentences, score_mismatch
from headtohead.storage.frames import Frames
from headtohead.storage.translations import Translation, translations_of
from headtohead_judge.differences import score_weights
from headtohead_judge.paired_tests import Interval
from headtohead_judge.variance import (
    intraclass_correlation,
    jackknife,
    sentence_variance,
    variant_variance,
    with_sentences,
)

MAX_SENTENCES = 100_000
"""Maximum number of translations over all runs; with more, the sentences are not analysed."""
NOT_BY_SENTENCE = "this metric is not computed from single translations"

Floats = NDArray[np.float64]


class ContrastUncertainty(NamedTuple):
    """A contrast with the interval that includes the sentences; None if not available."""

    contrast: Contrast
    with_sentences: Interval | None


@dataclass(frozen=True)
class Uncertainty:
    """Standard deviations of a score by source, and the estimates of the main contrasts.

    ``variant_sd`` is that of the true means over variants, ``seed_sd`` that of a score over seeds, ``sentence_sd`` that
    of a mean over seeds over samples of ``num_sentences`` test sentences; NaN if unknown, None if the estimated
    variance is negative. ``correlation`` is the intra-class correlation of seeds, with its interval. ``reason`` is why
    the sentences are not analysed.
    """

    variant_sd: float | None
    seed_sd: float
    sentence_sd: float | None
    num_sentences: int
    correlation: tuple[float, Interval]
    contrasts: tuple[ContrastUncertainty, ...]
    reason: str | None


def uncertainty(scores: Scores, contrasts: Sequence[Contrast]) -> Uncertainty | None:
    """Return the sources of uncertainty, or None with fewer than two seeds; ``contrasts`` are the main contrasts.

    Variants that are not ranked, or not comparable with the baseline, and seeds with a collapsed run are omitted; each
    contrast has its own seeds.
    """
    frames, metric = scores.frames, scores.metric
    trained = dict.fromkeys(frames.trained(slug) for slug in scores.ranked)
    slugs = [
        slug for slug in trained if score_mismatch(frames, slug, frames.baseline, metric) is None
    ]
    by_slug = [scores.healthy(Side(slug, metric)) for slug in slugs]
    seeds = sorted(set.intersection(*map(set, by_slug))) if by_slug else []
    if len(seeds) < 2:
        return None
    table = np.array([[by_seed[seed] for seed in seeds] for by_seed in by_slug])
    values = _values_by_sentence(frames, metric, dict(zip(slugs, by_slug, strict=True)))
    by_sentence, reason = ({}, values) if isinstance(values, str) else (values, None)
    variances = [sentence_variance([*found.values()]) for found in by_sentence.values()]
    found = []
    for contrast in contrasts:
        weights = score_weights(
            (frames.trained(left), frames.trained(right)) for left, right in contrast.pairs
        )
        if contrast.paired and weights.keys() <= {*slugs}:
            interval = None
            if by_sentence and len(contrast.seeds) > 1:
                sides = {
                    slug: np.array([by_sentence[slug][seed] for seed in contrast.seeds])
                    for slug in weights
                }
                total = sum(weight * sides[slug] for slug, weight in weights.items())
                interval = with_sentences(contrast.paired, total / len(contrast.pairs))
            found.append(ContrastUncertainty(contrast, interval))
    return Uncertainty(
        variant_sd=_deviation(variant_variance(table)),
        seed_sd=math.sqrt(float(table.var(axis=1, ddof=1).mean())),
        sentence_sd=_deviation(float(np.mean(variances))) if variances else math.nan,
        num_sentences=next(
            (len(own) for found in by_sentence.values() for own in found.values()), 0
        ),
        correlation=intraclass_correlation(table),
        contrasts=tuple(found),
        reason=reason,
    )


def _deviation(variance: float) -> float | None:
    return None if variance < 0 else math.sqrt(variance)


def _values_by_sentence(
    frames: Frames, metric: str, scores: Mapping[str, Mapping[int, float]]
) -> dict[str, dict[int, Floats]] | str:
    """Return the values ``[sentence]`` of each variant by seed, or why there are none."""
    sentences = None
    values: dict[str, dict[int, Floats]] = {slug: {} for slug in scores}
    for slug, seed, score in (
        (slug, *item) for slug, by_seed in scores.items() for item in by_seed.items()
    ):
        rows = translations_of(frames, slug, seed)
        if len(rows) < 2:
            return "a run has fewer than two translations"
        if len(rows) * sum(map(len, scores.values())) > MAX_SENTENCES:
            return f"there are more than {MAX_SENTENCES:,} translations"
        own = [(row.source, row.references) for row in rows]
        sentences = sentences or own
        if own != sentences:
            return "the variants translate different sentences"
        by_sentence = sentence_values(rows, metric)
        if by_sentence is None:
            return NOT_BY_SENTENCE
        if not math.isclose(by_sentence.mean(), score, rel_tol=1e-6, abs_tol=1e-6):
            return "the scores are not those of the saved translations"
        values[slug][seed] = by_sentence
    return values


def sentence_values(rows: Sequence[Translation], metric: str) -> Floats | None:
    """Return values ``[sentence]`` with the score as their mean, or None for other metrics.

    They are jackknife values; for a mean over sentences, these are the values of the sentences.
    """
    known = of_test_sentences(metric)
    if known is None or known.per_example is None or known.pool is None:
        return None
    counts = np.asarray(
        known.per_example([row.hypothesis for row in rows], tuple(row.references for row in rows))
    )
    total = counts.sum(axis=0)
    try:
        score, *without = (
            known.pool(sums.tolist()) for sums in [total, *(total - row for row in counts)]
        )
    except ArithmeticError:  # the score is not defined without one of the sentences
        return None
    values: Floats = jackknife([score], [without])[0]
    return values
