"""Compare the translations of two trained models by approximate randomisation on BLEU counts.

The outputs of two runs are exchanged at random sentence by sentence; p is the fraction of exchanges
with a BLEU difference at least as large as the observed one. The test covers the draw of the test
sentences for these two trained models, not other training seeds.

sacreBLEU's own test is not used: it counts only exchanges with a larger difference, so two models with
equal outputs, or outputs that differ in a single sentence, would get the smallest possible p.
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
"""Maximum number of sentences over all variants; with more, a report skips the tests."""

NgramCounts = NDArray[np.int64]


@dataclass(frozen=True)
class SentenceTest:
    """BLEU of a variant's median seed and of the baseline's median seed, on the same sentences.

    If each seed has its own draw of the data, the variant's seed is that of the baseline.
    """

    slug: str
    seed: int
    baseline_seed: int
    bleu: float
    baseline_bleu: float
    p: float


def sentence_tests(analysis: Analysis) -> list[SentenceTest]:
    """Return the test of each ranked variant's median seed against the baseline's.

    Empty if there are more than ``MOST_SENTENCES`` sentences.
    """
    frames, metric = analysis.frames, analysis.metric
    baseline_seed = median_seed(frames, frames.baseline, metric)
    if baseline_seed is None:
        return []
    baseline = translations_of(frames, frames.baseline, baseline_seed)
    slugs = [slug for slug in analysis.ranked if _differs_from_baseline(analysis, slug)]
    if not baseline or len(baseline) * (len(slugs) + 1) > MOST_SENTENCES:
        return []
    tests = []
    baseline_counts = _counts([row.hypothesis for row in baseline], _references(baseline))
    for slug in slugs:
        seed = baseline_seed if frames.has_draws else median_seed(frames, slug, metric)
        rows = translations_of(frames, slug, seed) if seed is not None else []
        if seed is not None and [r.source for r in rows] == [r.source for r in baseline]:
            tests.append(SentenceTest(slug, seed, baseline_seed, *compare(rows, baseline, baseline_counts)))
    return tests


def other_test_sentences(analysis: Analysis) -> list[str]:
    """Return the ranked variants with other test sentences than the baseline, for example with another split."""
    frames, seed = analysis.frames, analysis.frames.seeds[0]
    data = frames.by_slug[frames.baseline].config["data"]
    others = [slug for slug in analysis.ranked if frames.by_slug[slug].config["data"] != data]
    if not others:
        return []
    sources = [row.source for row in translations_of(frames, frames.baseline, seed)]
    found = [(slug, [row.source for row in translations_of(frames, slug, seed)]) for slug in others]
    return [slug for slug, own in found if sources and own and own != sources]


def compare(
    rows: Sequence[Translation], baseline: Sequence[Translation], baseline_counts: NgramCounts | None = None
) -> tuple[float, float, float]:
    """Return the BLEU of both sides and the p-value of their difference.

    Texts are not tokenised again. The references are all references of the baseline's sentences.

    Args:
        rows: Translations of a variant.
        baseline: Translations of the baseline, of the same sentences.
        baseline_counts: Counts of the baseline; computed if None.
    """
    references = _references(baseline)
    counts = _counts([row.hypothesis for row in rows], references)
    if baseline_counts is None:
        baseline_counts = _counts([row.hypothesis for row in baseline], references)
    totals, baseline_totals = counts.sum(axis=0), baseline_counts.sum(axis=0)
    observed = _bleu(totals) - _bleu(baseline_totals)
    changed = np.flatnonzero((counts != baseline_counts).any(axis=1))
    generator = np.random.default_rng(SEED)
    hits = 0
    for _ in range(TRIALS if len(changed) else 0):
        swapped = changed[generator.random(len(changed)) < 0.5]
        exchanged = (baseline_counts[swapped] - counts[swapped]).sum(axis=0)
        trial = _bleu(totals + exchanged) - _bleu(baseline_totals - exchanged)
        hits += abs(trial) >= abs(observed) - 1e-9
    p = (hits + 1) / (TRIALS + 1) if len(changed) else 1.0
    return _bleu(totals), _bleu(baseline_totals), p


def _references(baseline: Sequence[Translation]) -> list[list[str]]:
    return [row.references.split(" ||| ") for row in baseline]


def _counts(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> NgramCounts:
    """Return the counts per sentence ``[sentence, 10]``, in the order of `pooling.bleu`."""
    # effective_order only suppresses a warning; the counts do not depend on it.
    scorer = bleu_class()(tokenize="none", effective_order=True)
    scores = [scorer.sentence_score(h, list(r)) for h, r in zip(hypotheses, references, strict=True)]
    return np.array([[*s.counts, *s.totals, s.sys_len, s.ref_len] for s in scores], dtype=np.int64)


def _bleu(sums: NgramCounts) -> float:
    return bleu(sums.tolist())


def _differs_from_baseline(analysis: Analysis, slug: str) -> bool:
    trained = analysis.frames.trained
    return trained(slug) == slug and slug != trained(analysis.frames.baseline)
