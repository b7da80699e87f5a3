"""Sources of uncertainty of the scores: variants, seeds and test sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.scores import Scores, of_test_sentences, score_mismatch
from headtohead.storage.frames import Frames
from headtohead.storage.translations import Translation, translations_of
from headtohead_judge.contrast import Side, score_matrix, shared_seeds
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

    contrast: ContrastResult
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


def uncertainty(scores: Scores, contrasts: Sequence[ContrastResult]) -> Uncertainty | None:
    """Return the sources of uncertainty, or None with fewer than two seeds; ``contrasts`` are the main contrasts.

    Variants that are not ranked, or not comparable with the baseline, and seeds with a collapsed run are omitted; each
    contrast has its own seeds.
    """
    frames, metric = scores.frames, scores.metric
    scores_of_slug: dict[str, dict[int, float]] = {}
    for slug in scores.ranked:
        trained = frames.trained(slug)
        if score_mismatch(frames, trained, frames.baseline, metric) is None:
            scores_of_slug[trained] = scores.healthy(Side(trained, metric))
    seeds = shared_seeds([*scores_of_slug.values()])
    if len(seeds) < 2:
        return None
    table = score_matrix([*scores_of_slug.values()], seeds)
    values = _values_by_sentence(frames, metric, scores_of_slug)
    reason = None
    if isinstance(values, str):
        reason, values = values, {}
    variances = []
    num_sentences = 0
    for by_seed in values.values():
        rows = [*by_seed.values()]
        variances.append(sentence_variance(rows))
        num_sentences = len(rows[0])
    results = []
    for contrast in contrasts:
        slugs = {side.variant for side in contrast.trained.sides}
        if contrast.paired and slugs <= scores_of_slug.keys():
            widened = None
            if values and len(contrast.seeds) > 1:
                by_sentence = _contrast_by_sentence(contrast, values)
                widened = with_sentences(contrast.paired, by_sentence)
            results.append(ContrastUncertainty(contrast, widened))
    return Uncertainty(
        variant_sd=_deviation(variant_variance(table)),
        seed_sd=math.sqrt(float(table.var(axis=1, ddof=1).mean())),
        sentence_sd=_deviation(float(np.mean(variances))) if variances else math.nan,
        num_sentences=num_sentences,
        correlation=intraclass_correlation(table),
        contrasts=tuple(results),
        reason=reason,
    )


def _deviation(variance: float) -> float | None:
    return None if variance < 0 else math.sqrt(variance)


def _contrast_by_sentence(
    contrast: ContrastResult, values: Mapping[str, Mapping[int, Floats]]
) -> Floats:
    """Return the values of a contrast ``[seed, sentence]`` from those of each variant."""
    total: Floats = np.zeros(())
    for side, weight in contrast.trained.weights.items():
        by_seed = np.array([values[side.variant][seed] for seed in contrast.seeds])
        total = total + weight * by_seed
    return total


def _values_by_sentence(
    frames: Frames, metric: str, scores: Mapping[str, Mapping[int, float]]
) -> dict[str, dict[int, Floats]] | str:
    """Return the values ``[sentence]`` of each variant by seed, or why there are none."""
    num_runs = sum(len(by_seed) for by_seed in scores.values())
    first_sentences = None
    values: dict[str, dict[int, Floats]] = {}
    for slug, by_seed in scores.items():
        values[slug] = {}
        for seed, score in by_seed.items():
            rows = translations_of(frames, slug, seed)
            if len(rows) < 2:
                return "a run has fewer than two translations"
            if len(rows) * num_runs > MAX_SENTENCES:
                return f"there are more than {MAX_SENTENCES:,} translations"
            sentences = [(row.source, row.references) for row in rows]
            first_sentences = first_sentences or sentences
            if sentences != first_sentences:
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
    entry = of_test_sentences(metric)
    if entry is None or entry.per_example is None or entry.pool is None:
        return None
    hypotheses = [row.hypothesis for row in rows]
    references = tuple(row.references for row in rows)
    counts = np.asarray(entry.per_example(hypotheses, references))
    total = counts.sum(axis=0)
    try:
        score = entry.pool(total.tolist())
        without_each = [entry.pool((total - row).tolist()) for row in counts]
    except ArithmeticError:  # the score is not defined without one of the sentences
        return None
    values: Floats = jackknife([score], [without_each])[0]
    return values
