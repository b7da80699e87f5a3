"""Sources of uncertainty of a study: sentences from its translations, and whether pairing by seed helps."""

import math

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF

from headtohead.analysis.study import Analysis
from headtohead.analysis.uncertainty import sentence_values
from headtohead.data.metrics import TRANSLATION
from headtohead.report.content import Report
from headtohead.report.contrasts import uncertainty_section
from headtohead.storage.frames import load_frames
from headtohead.storage.translations import Translation, translations_of
from headtohead.training.evaluate import Translations
from headtohead_judge.variance import with_sentences
from made import case_table


@pytest.mark.parametrize(
    ("metric", "scorer"), [("test/bleu", BLEU(tokenize="none", force=True)), ("test/chrf", CHRF())]
)
def test_values_by_sentence_are_jackknife_values_of_the_corpus_score(metric, scorer):
    texts = np.random.default_rng(1).choice(["a b c d e", "a b c x e", "z b c d", "f"], size=12)
    references = [("a b c d e", "z b c d f") if i % 3 else ("a b c d e",) for i in range(12)]

    def score(indices):
        streams = [
            [references[i][k] if k < len(references[i]) else None for i in indices] for k in (0, 1)
        ]
        return scorer.corpus_score([texts[i] for i in indices], streams).score

    rows = [
        Translation(str(i), own, text, text in own)
        for i, (own, text) in enumerate(zip(references, texts, strict=True))
    ]
    full = score(range(12))
    without = [score([i for i in range(12) if i != left_out]) for left_out in range(12)]
    found = sentence_values(rows, metric)
    assert found.mean() == pytest.approx(full)
    assert found - full == pytest.approx([11 * (np.mean(without) - rest) for rest in without])
    scores = Translations(
        tuple(row.source for row in rows), tuple(references), tuple(texts)
    ).scores(TRANSLATION)
    assert found.mean() == pytest.approx(scores[metric.removeprefix("test/")], abs=1e-12)


def test_the_interval_with_sentences_is_that_of_the_translations(quickstart):
    analysis = Analysis(load_frames(quickstart))
    found = analysis.uncertainty
    assert (found.reason, found.num_sentences) == (None, 250)
    (none,) = (row for row in found.contrasts if row.contrast.value == "none")
    settings = [
        f"{style}-{mask}"
        for style in ("split-heads", "independent-heads")
        for mask in ("padding-causal", "causal")
    ]

    def exact(slug):
        rows = [translations_of(analysis.frames, slug, seed) for seed in analysis.frames.seeds]
        return np.array([[row.exact for row in by_seed] for by_seed in rows], dtype=float)

    difference = np.mean(
        [exact(f"none-{rest}") - exact(f"sinusoidal-{rest}") for rest in settings], axis=0
    )
    expected, over_seeds = with_sentences(none.contrast.paired, difference), none.contrast.paired
    assert difference.mean() == pytest.approx(over_seeds.mean)
    assert (none.with_sentences.low, none.with_sentences.high) == pytest.approx(
        (expected.low, expected.high)
    )
    assert expected.low <= over_seeds.low < over_seeds.high <= expected.high


def test_scores_that_are_not_those_of_the_translations_are_not_analysed(analysed):
    analysis = analysed(
        axes={"positional": ["sinusoidal", "rotary"]}, score=lambda axes, seed: 0.5011
    )
    assert analysis.uncertainty.reason.startswith("the scores are not those")


def score_with(shared):
    """Return a score with a seed effect of which the fraction ``shared`` is common to all variants."""

    def score(axes, seed):
        own = math.sin(1e3 * seed * (3 + len(axes["positional"])))
        return 0.6 + 0.02 * (shared * math.sin(1e4 * seed) + (1 - shared) * own)

    return score


@case_table(("shared", "low", "high"), [(0.9, 0.7, 1.0), (0.0, -0.3, 0.3)], default=1)
def test_the_report_has_the_correlation_of_seeds_with_its_interval(analysed, shared, low, high):
    axes = {"positional": ["sinusoidal", "rotary", "none", "alibi"]}
    analysis = analysed(axes=axes, seeds=range(1, 25), score=score_with(shared))
    correlation, interval = analysis.uncertainty.correlation
    assert low < interval.low < correlation < interval.high < high
    (line,) = [
        line for line in uncertainty_section(Report(analysis)).lines if "correlation" in line
    ]
    assert f"{interval.low:.2f} to {interval.high:.2f}".replace("-", "−") in line


def test_a_negative_estimate_of_a_variance_is_not_estimable(analysed):
    analysis = analysed(
        axes={"positional": ["sinusoidal", "rotary"]},
        score=lambda axes, seed: (
            0.5 + (0.01 if axes["positional"] == "rotary" else -0.01) * (-1) ** seed
        ),
    )
    assert analysis.uncertainty.variant_sd is None
    table = uncertainty_section(Report(analysis)).frame.set_index("source")["standard deviation"]
    assert table["true means of the variants"] == "not estimable"


def test_components_are_standard_deviations_by_source(analysed):
    found = analysed(axes={"positional": ["sinusoidal", "rotary", "none"]}).uncertainty
    # The true means are 0.93, 0.96 and 0.48; the sd of a run is that of 0.008 and 0.006 (and less at 1.0).
    assert found.variant_sd == pytest.approx(np.std([0.93, 0.96, 0.48], ddof=1), abs=0.01)
    assert 0.005 < found.seed_sd < 0.015
    assert found.sentence_sd < 0.02
