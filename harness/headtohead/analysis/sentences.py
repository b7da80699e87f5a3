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

from headtohead.analysis.scores import Scores
from headtohead.statistics.translation_scores import corpus_score, scorer, sentence_counts
from headtohead.storage.translations import Translation, median_seed, translations_of

TRIALS = 1000
SEED = 12345
MOST_SENTENCES = 40_000
"""Maximum number of sentences over all variants; with more, a report skips the tests."""


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


def sentence_tests(scores: Scores) -> list[SentenceTest]:
    """Return the test of each ranked variant's median seed against the baseline's.

    Empty if there are more than ``MOST_SENTENCES`` sentences.
    """
    frames, metric = scores.frames, scores.metric
    baseline_seed = median_seed(frames, frames.baseline, metric)
    if baseline_seed is None:
        return []
    baseline = translations_of(frames, frames.baseline, baseline_seed)
    slugs = [slug for slug in scores.ranked if _differs_from_baseline(scores, slug)]
    if not baseline or len(baseline) * (len(slugs) + 1) > MOST_SENTENCES:
        return []
    tests = []
    for slug in slugs:
        seed = baseline_seed if frames.has_draws else median_seed(frames, slug, metric)
        rows = translations_of(frames, slug, seed) if seed is not None else []
        if seed is not None and [r.source for r in rows] == [r.source for r in baseline]:
            tests.append(SentenceTest(slug, seed, baseline_seed, *compare(rows, baseline)))
    return tests


def other_test_sentences(scores: Scores) -> list[str]:
    """Return the ranked variants with other test sentences than the baseline, for example with another split."""
    frames = scores.frames
    data = frames.by_slug[frames.baseline].config["data"]
    others = [slug for slug in scores.ranked if frames.by_slug[slug].config["data"] != data]

    def differs(slug: str) -> bool:
        for seed in frames.seeds:
            own, baseline = (
                [row.source for row in translations_of(frames, name, seed)] for name in (slug, frames.baseline)
            )
            if own and baseline:
                return own != baseline
        return False

    return list(filter(differs, others))


def compare(rows: Sequence[Translation], baseline: Sequence[Translation]) -> tuple[float, float, float]:
    """Return the BLEU of both sides and the p-value of their difference.

    Texts are not tokenised again. The references are all references of the baseline's sentences.

    Args:
        rows: Translations of a variant.
        baseline: Translations of the baseline, of the same sentences.
    """
    bleu = scorer("bleu", tuple(row.references for row in baseline))
    counts, baseline_counts = (sentence_counts(bleu, [row.hypothesis for row in side]) for side in (rows, baseline))
    totals, baseline_totals = counts.sum(axis=0), baseline_counts.sum(axis=0)
    score, baseline_score = corpus_score(bleu, totals), corpus_score(bleu, baseline_totals)
    changed = np.flatnonzero((counts != baseline_counts).any(axis=1))
    generator = np.random.default_rng(SEED)
    hits = 0
    for _ in range(TRIALS if len(changed) else 0):
        swapped = changed[generator.random(len(changed)) < 0.5]
        exchanged = (baseline_counts[swapped] - counts[swapped]).sum(axis=0)
        trial = corpus_score(bleu, totals + exchanged) - corpus_score(bleu, baseline_totals - exchanged)
        hits += abs(trial) >= abs(score - baseline_score) - 1e-9
    p = (hits + 1) / (TRIALS + 1) if len(changed) else 1.0
    return score, baseline_score, p


def _differs_from_baseline(scores: Scores, slug: str) -> bool:
    trained = scores.frames.trained
    return trained(slug) == slug and slug != trained(scores.frames.baseline)
