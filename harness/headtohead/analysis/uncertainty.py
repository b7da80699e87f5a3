"""Sources of uncertainty of the scores: variants, seeds and test sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headtohead.analysis.contrasts import Contrast
from headtohead.analysis.scores import Scores, score_mismatch
from headtohead.schema.metric import UNPADDED
from headtohead.statistics.variance import (
    CrossedEstimate,
    MeanEstimate,
    crossed,
    intraclass_correlation,
    jackknife,
    pooled,
    variant_variance,
)
from headtohead.storage.metrics import find
from headtohead.storage.translations import Translation, translations_of

LOW_CORRELATION = 0.1
"""Intra-class correlation of seeds below which pairing brings nothing."""
MOST_SENTENCES = 100_000
"""Maximum number of translations over all runs; with more, the sentences are not analysed."""
NOT_BY_SENTENCE = "this metric is not computed from single translations"
IN_DRAWS = "each seed has its own test sentences, and intervals over seeds include them"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ContrastUncertainty:
    """A contrast with an estimate that includes the sentences, and an unpaired estimate; None if not available."""

    contrast: Contrast
    with_sentences: CrossedEstimate | None
    unpaired: MeanEstimate | None


@dataclass(frozen=True)
class Uncertainty:
    """Standard deviations of a score by source, and the estimates of the main contrasts.

    ``variant_sd`` is that of the true means over variants, ``seed_sd`` that of a score over seeds, ``sentence_sd`` that
    of a mean over seeds over samples of ``num_sentences`` test sentences; NaN if unknown. ``correlation`` is the
    intra-class correlation of seeds. ``reason`` is why the sentences are not analysed. With ``has_draws`` each seed has
    its own draw of the data, so ``seed_sd`` includes draws and test sentences.
    """

    variant_sd: float
    seed_sd: float
    sentence_sd: float
    num_sentences: int
    correlation: float
    contrasts: tuple[ContrastUncertainty, ...]
    reason: str | None
    has_draws: bool = False

    @property
    def pairing_helps(self) -> bool:
        """Whether seeds correlate; also if the correlation is unknown."""
        return not self.correlation < LOW_CORRELATION


def uncertainty(scores: Scores, contrasts: Sequence[Contrast]) -> Uncertainty | None:
    """Return the sources of uncertainty, or None with fewer than two seeds; ``contrasts`` are the main contrasts.

    Variants that are not ranked, or not comparable with the baseline, are omitted.
    """
    calculator = _Samples(scores)
    table = calculator.scores
    if min(table.shape, default=0) < 1 or table.shape[1] < 2:
        return None
    sentence_variances = [crossed(values).sentence_variance for values in calculator.values.values()]
    return Uncertainty(
        variant_sd=math.sqrt(variant_variance(table)),
        seed_sd=math.sqrt(float(table.var(axis=1, ddof=1).mean())),
        sentence_sd=math.sqrt(max(0.0, float(np.mean(sentence_variances)))) if sentence_variances else math.nan,
        num_sentences=next((values.shape[1] for values in calculator.values.values()), 0),
        correlation=intraclass_correlation(table),
        contrasts=tuple(
            ContrastUncertainty(contrast, calculator.with_sentences(weights), calculator.unpaired(weights))
            for contrast in contrasts
            if contrast.paired and (weights := calculator.weights(contrast)).keys() <= {*calculator.slugs}
        ),
        reason=calculator.reason,
        has_draws=scores.frames.has_draws,
    )


@dataclass(frozen=True)
class _Samples:
    analysis: Scores

    @cached_property
    def slugs(self) -> list[str]:
        """The trained variants that are ranked and comparable with the baseline."""
        frames, metric = self.analysis.frames, self.analysis.metric
        trained = dict.fromkeys(frames.trained(slug) for slug in self.analysis.ranked)
        return [slug for slug in trained if score_mismatch(frames, slug, frames.baseline, metric) is None]

    @cached_property
    def seeds(self) -> list[int]:
        """The seeds that all these variants have."""
        found = [self.analysis.frames.scores(slug, self.analysis.metric).keys() for slug in self.slugs]
        return sorted(set.intersection(*map(set, found))) if found else []

    @cached_property
    def scores(self) -> Floats:
        """The scores ``[variant, seed]``."""
        by_slug = [self.analysis.frames.scores(slug, self.analysis.metric) for slug in self.slugs]
        return np.array([[scores[seed] for seed in self.seeds] for scores in by_slug], ndmin=2)

    def weights(self, contrast: Contrast) -> dict[str, float]:
        """Return the weight of each trained variant in a contrast."""
        weights: dict[str, float] = {}
        for left, right in contrast.pairs:
            for slug, sign in ((left, 1.0), (right, -1.0)):
                trained = self.analysis.frames.trained(slug)
                weights[trained] = weights.get(trained, 0.0) + sign / len(contrast.pairs)
        return weights

    def unpaired(self, weights: Mapping[str, float]) -> MeanEstimate:
        return pooled(self.scores, [weights.get(slug, 0.0) for slug in self.slugs])

    def with_sentences(self, weights: Mapping[str, float]) -> CrossedEstimate | None:
        if self.reason:
            return None
        return crossed(sum(weight * self.values[slug] for slug, weight in weights.items()))

    @property
    def values(self) -> Mapping[str, Floats]:
        """The values ``[seed, sentence]`` of each variant; empty if there is a ``reason``."""
        return self._read if isinstance(self._read, dict) else {}

    @property
    def reason(self) -> str | None:
        """Why there are no values by sentence."""
        return self._read if isinstance(self._read, str) else None

    @cached_property
    def _read(self) -> dict[str, Floats] | str:
        frames, metric = self.analysis.frames, self.analysis.metric
        if frames.has_draws:
            return IN_DRAWS
        sentences: list[tuple[str, tuple[str, ...]]] | None = None
        values = {}
        for slug, scores in zip(self.slugs, self.scores, strict=True):
            by_seed = []
            for seed, score in zip(self.seeds, scores, strict=True):
                rows = translations_of(frames, slug, seed)
                if len(rows) < 2:
                    return "the runs have no translations"
                if len(rows) * self.scores.size > MOST_SENTENCES:
                    return f"there are more than {MOST_SENTENCES:,} translations"
                own = [(row.source, row.references) for row in rows]
                sentences = sentences or own
                if own != sentences:
                    return "the variants translate different sentences"
                by_sentence = sentence_values(rows, metric)
                if by_sentence is None:
                    return NOT_BY_SENTENCE
                if not math.isclose(by_sentence.mean(), score, rel_tol=1e-6, abs_tol=1e-6):
                    return "the scores are not those of the saved translations"
                by_seed.append(by_sentence)
            values[slug] = np.array(by_seed)
        return values


def sentence_values(rows: Sequence[Translation], metric: str) -> Floats | None:
    """Return values ``[sentence]`` with the score as their mean, or None for other metrics.

    They are jackknife values; for a mean over sentences, these are the values of the sentences.
    """
    known = find(metric)
    if not metric.startswith("test/") or metric.endswith(UNPADDED) or known is None:
        return None
    if known.per_example is None or known.pool is None:
        return None
    counts = np.asarray(known.per_example([row.hypothesis for row in rows], tuple(row.references for row in rows)))
    total = counts.sum(axis=0)
    score, *without = (known.pool(sums.tolist()) for sums in [total, *(total - row for row in counts)])
    values: Floats = jackknife([score], [without])[0]
    return values
