"""Compare the translations of two trained models by approximate randomisation on counts.

The outputs of two runs are exchanged at random sentence by sentence; p is the fraction of exchanges
with a difference of the score at least as large as the observed one. The test covers the draw of the test
sentences for these two trained models, not other training seeds.

sacreBLEU's own test is not used: it counts only exchanges with a larger difference, so two models with
equal outputs, or outputs that differ in a single sentence, would get the smallest possible p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headtohead.analysis.scores import Scores
from headtohead.data.metrics import task_metrics
from headtohead.schema.metric import Metric
from headtohead.storage.frames import Frames
from headtohead.storage.translations import Translation, median_seed, translations_of

TRIALS = 1000
SEED = 12345
MOST_SENTENCES = 40_000
"""Maximum number of sentences over all variants; with more, a report skips the tests."""


@dataclass(frozen=True)
class SentenceTest:
    """Score of a variant's median seed and of the baseline's median seed, on the same sentences.

    If each seed has its own draw of the data, the variant's seed is that of the baseline.
    """

    slug: str
    seed: int
    baseline_seed: int
    score: float
    baseline_score: float
    p: float


def sentence_tests(scores: Scores) -> list[SentenceTest]:
    """Return the test of each ranked variant's median seed against the baseline's.

    Empty if there are more than ``MOST_SENTENCES`` sentences.
    """
    frames, primary, metric = scores.frames, scores.metric, sentence_metric(scores.frames)
    baseline_seed = median_seed(frames, frames.baseline, primary)
    if baseline_seed is None:
        return []
    baseline = translations_of(frames, frames.baseline, baseline_seed)
    slugs = [slug for slug in scores.ranked if _differs_from_baseline(scores, slug)]
    if not baseline or len(baseline) * (len(slugs) + 1) > MOST_SENTENCES:
        return []
    tests: list[SentenceTest] = []
    for slug in slugs:
        seed = baseline_seed if frames.has_draws else median_seed(frames, slug, primary)
        rows = translations_of(frames, slug, seed) if seed is not None else []
        if seed is not None and [r.source for r in rows] == [r.source for r in baseline]:
            tests.append(SentenceTest(slug, seed, baseline_seed, *compare(rows, baseline, metric)))
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


def sentence_metric(frames: Frames) -> Metric:
    """Return the metric of the tests: the second of the baseline's dataset, or its only one."""
    data = frames.by_slug[frames.baseline].config["data"]
    return task_metrics(data["dataset"])[:2][-1]


def compare(rows: Sequence[Translation], baseline: Sequence[Translation], metric: Metric) -> tuple[float, float, float]:
    """Return the score of both sides and the p-value of their difference.

    Texts are not tokenised again. The references are all references of the baseline's sentences.

    Args:
        rows: Translations of a variant.
        baseline: Translations of the baseline, of the same sentences.
        metric: A metric with counts per example.
    """
    assert metric.per_example is not None
    assert metric.pool is not None
    references = tuple(row.references for row in baseline)
    counts, baseline_counts = (
        np.asarray(metric.per_example([row.hypothesis for row in side], references)) for side in (rows, baseline)
    )
    totals, baseline_totals = counts.sum(axis=0), baseline_counts.sum(axis=0)
    score, baseline_score = metric.pool(totals.tolist()), metric.pool(baseline_totals.tolist())
    changed = np.flatnonzero((counts != baseline_counts).any(axis=1))
    generator = np.random.default_rng(SEED)
    hits = 0
    for _ in range(TRIALS if len(changed) else 0):
        swapped = changed[generator.random(len(changed)) < 0.5]
        exchanged = (baseline_counts[swapped] - counts[swapped]).sum(axis=0)
        trial = metric.pool((totals + exchanged).tolist()) - metric.pool((baseline_totals - exchanged).tolist())
        hits += abs(trial) >= abs(score - baseline_score) - 1e-9
    p = (hits + 1) / (TRIALS + 1) if len(changed) else 1.0
    return score, baseline_score, p


def _differs_from_baseline(scores: Scores, slug: str) -> bool:
    trained = scores.frames.trained
    return trained(slug) == slug and slug != trained(scores.frames.baseline)
