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
from headtohead.data.metrics import find_metric
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
NOT_LOADED = "the dataset of this metric is not loaded; load its plugin with --plugin"
NOT_BY_SENTENCE = "this metric is not computed from single translations"

Floats = NDArray[np.float64]


class SentenceValues(NamedTuple):
    """The values ``[sentence]`` of each variant by seed; none of any variant if there is a ``reason`` against them."""

    values: Mapping[str, Mapping[int, Floats]]
    reason: str | None = None


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
    """Return the sources of uncertainty, or None with fewer than two seeds that all variants share.

    The variances of variants and seeds, and the correlation, are those of the shared seeds. The variance of sentences
    is the mean over variants, each over all its seeds. A contrast has the seeds of its test. Variants that are not
    ranked, or not comparable with the baseline, and seeds with a collapsed run are omitted.

    Args:
        scores: The scores of the experiment in the metric of the analysis.
        contrasts: The main contrasts in this metric; those without a test, or of omitted variants, are left out.
    """
    scores_of_slug = _comparable_scores(scores)
    seeds = shared_seeds([*scores_of_slug.values()])
    if len(seeds) < 2:
        return None
    table = score_matrix([*scores_of_slug.values()], seeds)
    sentences = _values_by_sentence(scores.frames, scores.metric, scores_of_slug)
    variances = []
    num_sentences = 0
    for by_seed in sentences.values.values():
        rows = [*by_seed.values()]
        variances.append(sentence_variance(rows))
        num_sentences = len(rows[0])  # of every run
    results = []
    for contrast in contrasts:
        slugs = {side.variant for side in contrast.trained.sides}
        if contrast.paired and slugs <= scores_of_slug.keys():
            interval = None
            if sentences.values and len(contrast.seeds) > 1:
                by_sentence = _contrast_by_sentence(contrast, sentences.values)
                interval = with_sentences(contrast.paired, by_sentence)
            results.append(ContrastUncertainty(contrast, interval))
    return Uncertainty(
        variant_sd=_deviation(variant_variance(table)),
        seed_sd=math.sqrt(float(table.var(axis=1, ddof=1).mean())),
        sentence_sd=_deviation(float(np.mean(variances))) if variances else math.nan,
        num_sentences=num_sentences,
        correlation=intraclass_correlation(table),
        contrasts=tuple(results),
        reason=sentences.reason,
    )


def _comparable_scores(scores: Scores) -> dict[str, dict[int, float]]:
    """Return the scores by seed, without collapsed runs, of the ranked variants that are comparable with the baseline.

    A variant that equals another one counts once, as that one.
    """
    frames = scores.frames
    scores_of_slug = {}
    for slug in scores.ranked:
        trained = frames.trained(slug)
        if score_mismatch(frames, trained, frames.baseline, scores.metric) is None:
            scores_of_slug[trained] = scores.healthy(Side(trained, scores.metric))
    return scores_of_slug


def _deviation(variance: float) -> float | None:
    """Return the standard deviation; None for a negative estimate of a variance."""
    return None if variance < 0 else math.sqrt(variance)


def _contrast_by_sentence(
    contrast: ContrastResult, values: Mapping[str, Mapping[int, Floats]]
) -> Floats:
    """Return the values of a contrast ``[seed, sentence]``, from those of its trained variants in all its seeds."""
    total: Floats = np.zeros(())
    for side, weight in contrast.trained.weights.items():
        by_seed = np.array([values[side.variant][seed] for seed in contrast.seeds])
        total = total + weight * by_seed
    return total


def _values_by_sentence(
    frames: Frames, metric: str, scores: Mapping[str, Mapping[int, float]]
) -> SentenceValues:
    """Return the values of the test sentences, or why there are none.

    All runs must have at least two saved translations, of the same sentences, whose values have the score as their
    mean.

    Args:
        frames: The experiment.
        metric: The metric of the scores.
        scores: The scores by trained variant and seed.
    """
    num_runs = sum(len(by_seed) for by_seed in scores.values())
    first_sentences = None
    values: dict[str, dict[int, Floats]] = {}
    for slug, by_seed in scores.items():
        values[slug] = {}
        for seed, score in by_seed.items():
            rows = translations_of(frames, slug, seed)
            if len(rows) < 2:
                return SentenceValues({}, "a run has fewer than two translations")
            if len(rows) * num_runs > MAX_SENTENCES:
                return SentenceValues({}, f"there are more than {MAX_SENTENCES:,} translations")
            sentences = [(row.source, row.references) for row in rows]
            first_sentences = first_sentences or sentences
            if sentences != first_sentences:
                return SentenceValues({}, "the variants translate different sentences")
            by_sentence = sentence_values(rows, metric)
            if by_sentence is None:
                is_loaded = find_metric(metric) is not None
                return SentenceValues({}, NOT_BY_SENTENCE if is_loaded else NOT_LOADED)
            if not math.isclose(by_sentence.mean(), score, rel_tol=1e-6, abs_tol=1e-6):
                return SentenceValues({}, "the scores are not those of the saved translations")
            values[slug][seed] = by_sentence
    return SentenceValues(values)


def sentence_values(rows: Sequence[Translation], metric: str) -> Floats | None:
    """Return values ``[sentence]`` with the score as their mean.

    They are jackknife values; for a mean over sentences, these are the values of the sentences. None for metrics that
    are not computed from counts of single translations, and for a score that is not defined without one of them.

    Args:
        rows: Translations of a run; at least two.
        metric: Name of the metric, with its split.
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
