"""Two trained models compared sentence by sentence: this model, not this architecture.

Approximate randomisation on sacreBLEU's counts: the outputs of two runs are exchanged sentence by
sentence at random, and p is the share of exchanges that differ at least as much. It says whether
these two models differ on sentences like these, nothing about what another seed would do.

sacreBLEU's own test is not used: it counts only exchanges that differ by more, so that two models
whose outputs are equal, or differ in one sentence, get the smallest p there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headtohead.analysis.pooling import bleu, bleu_class
from headtohead.analysis.study import Analysis
from headtohead.storage.translations import Translation, median_seed, translations_of

TRIALS = 1000
SEED = 12345
MOST_SENTENCES = 40_000
"""Sentences over all variants that a report has time for."""

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class SentenceTest:
    """BLEU of a variant's median seed against that of the baseline's, on the same sentences."""

    slug: str
    seed: int
    baseline_seed: int
    bleu: float
    baseline_bleu: float
    p: float


def sentence_tests(analysis: Analysis) -> list[SentenceTest]:
    """Compare the median seed of each ranked variant with the baseline's; empty if too many."""
    frames, metric = analysis.frames, analysis.metric
    baseline_seed = median_seed(frames, frames.baseline, metric)
    if baseline_seed is None:
        return []
    baseline = translations_of(frames, frames.baseline, baseline_seed)
    slugs = [slug for slug in analysis.ranked if _is_another(analysis, slug)]
    if not baseline or len(baseline) * (len(slugs) + 1) > MOST_SENTENCES:
        return []
    found, theirs = [], _counts([row.hypothesis for row in baseline], _references(baseline))
    for slug in slugs:
        seed = median_seed(frames, slug, metric)
        rows = translations_of(frames, slug, seed) if seed is not None else []
        if seed is not None and [r.source for r in rows] == [r.source for r in baseline]:
            found.append(SentenceTest(slug, seed, baseline_seed, *compare(rows, baseline, theirs)))
    return found


def compare(
    rows: Sequence[Translation], baseline: Sequence[Translation], baseline_counts: Counts | None = None
) -> tuple[float, float, float]:
    """Return BLEU of both sides and the p-value of their difference.

    The words are taken as they stand; the references are the baseline's, all of each sentence.
    ``baseline_counts`` are those of the baseline where it is compared with many.
    """
    references = _references(baseline)
    ours = _counts([row.hypothesis for row in rows], references)
    theirs = baseline_counts
    if theirs is None:
        theirs = _counts([row.hypothesis for row in baseline], references)
    observed = _bleu(ours.sum(axis=0)) - _bleu(theirs.sum(axis=0))
    changed = np.flatnonzero((ours != theirs).any(axis=1))
    generator = np.random.default_rng(SEED)
    hits = 0
    for _ in range(TRIALS if len(changed) else 0):
        swapped = changed[generator.random(len(changed)) < 0.5]
        moved = (theirs[swapped] - ours[swapped]).sum(axis=0)
        trial = _bleu(ours.sum(axis=0) + moved) - _bleu(theirs.sum(axis=0) - moved)
        hits += abs(trial) >= abs(observed) - 1e-9
    p = (hits + 1) / (TRIALS + 1) if len(changed) else 1.0
    return _bleu(ours.sum(axis=0)), _bleu(theirs.sum(axis=0)), p


def _references(baseline: Sequence[Translation]) -> list[list[str]]:
    return [row.references.split(" ||| ") for row in baseline]


def _counts(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Counts:
    """Return matched and total n-grams of orders 1 to 4 and both lengths, ``[sentence, 10]``."""
    # effective_order only silences a warning: the counts do not depend on it
    scorer = bleu_class()(tokenize="none", effective_order=True)
    scores = [scorer.sentence_score(h, list(r)) for h, r in zip(hypotheses, references, strict=True)]
    return np.array([[*s.counts, *s.totals, s.sys_len, s.ref_len] for s in scores], dtype=np.int64)


def _bleu(sums: Counts) -> float:
    return bleu(sums.tolist())


def _is_another(analysis: Analysis, slug: str) -> bool:
    trained = analysis.frames.trained
    return trained(slug) == slug and slug != trained(analysis.frames.baseline)
