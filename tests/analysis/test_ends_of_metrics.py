"""Settings in which all scores are the lowest or highest possible ones: they cannot tell, and do not count."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.sentences import sentence
from headtohead.analysis.study import Analysis
from headtohead_judge.verdicts import CANNOT_TELL, IDENTICAL

Analysed = Callable[..., Analysis]
VALUES = ["sinusoidal", "rotary", "none"]
EASY, HARD, FAIR = 0.001, 0.01, 0.003


def scores(low: float, high: float) -> Callable[[Any, int], float]:
    """Return scores that are ``low`` or ``high`` for two encodings, and in between for the third."""

    def score(axes: Any, seed: int) -> float:
        if axes["positional"] == "none":
            return 0.3 + 0.02 * float(np.random.default_rng(seed).normal())
        return high if axes["positional"] == "rotary" else low

    return score


def against_baseline(analysis: Analysis, value: str) -> ContrastResult:
    """Return the contrast of a value of the axis with the baseline."""
    by_variant = {result.variant: result for result in analysis.families.variants.contrasts}
    (slug,) = (
        slug for slug, variant in analysis.frames.by_slug.items() if value in variant.axes.values()
    )
    return by_variant[slug]


@pytest.mark.parametrize("end", [0.0, 1.0])
def test_two_variants_at_an_end_cannot_tell_and_are_not_counted(
    analysed: Analysed, end: float
) -> None:
    analysis = analysed(axes={"positional": VALUES}, one_at_a_time=True, score=scores(end, end))
    contrast = against_baseline(analysis, "rotary")
    assert (contrast.verdict, contrast.judgement.interval) == (CANNOT_TELL, None)
    assert analysis.families.variants.tested == 1
    expected = f": cannot tell in exact match (every score is {end:.3f})."
    assert sentence(analysis, contrast) == f"Rotary instead of sinusoidal{expected}"
    assert against_baseline(analysis, "none").verdict != CANNOT_TELL


@pytest.mark.parametrize(("low", "high"), [(0.5, 0.5), (0.999, 0.999)])
def test_equal_scores_inside_the_range_are_identical(
    analysed: Analysed, low: float, high: float
) -> None:
    analysis = analysed(axes={"positional": VALUES}, one_at_a_time=True, score=scores(low, high))
    assert against_baseline(analysis, "rotary").verdict == IDENTICAL


def test_opposite_ends_and_a_single_score_inside_are_a_difference(analysed: Analysed) -> None:
    analysis = analysed(axes={"positional": VALUES}, one_at_a_time=True, score=scores(0.0, 1.0))
    contrast = against_baseline(analysis, "rotary")
    assert contrast.paired is not None
    assert (contrast.paired.mean, contrast.verdict == CANNOT_TELL) == (1.0, False)

    def score(axes: Any, seed: int) -> float:
        return 0.004 if (axes["positional"], seed) == ("rotary", 2) else 0.0

    almost = analysed(axes={"positional": VALUES[:2]}, score=score)
    assert against_baseline(almost, "rotary").verdict not in (CANNOT_TELL, IDENTICAL)


def test_an_average_leaves_out_the_settings_at_an_end(analysed: Analysed) -> None:
    def score(axes: Any, seed: int) -> float:
        rate = axes["train.lr"]
        if rate in (EASY, HARD):
            return 1.0 if rate == EASY else 0.0
        noise = float(np.random.default_rng([seed, len(axes["positional"])]).normal())
        return 0.5 + 0.02 * noise + 0.2 * (axes["positional"] == "rotary")

    axes = {"positional": VALUES[:2], "train.lr": [FAIR, EASY, HARD]}
    analysis = analysed(axes=axes, score=score)
    (contrast,) = (
        result for result in analysis.families.factors.contrasts if result.axis == "positional"
    )
    alone = against_baseline(analysed(axes={"positional": VALUES[:2]}, score=fair(score)), "rotary")
    assert contrast.paired is not None
    assert alone.paired is not None
    assert contrast.paired.mean == pytest.approx(alone.paired.mean)
    assert contrast.paired.mean > 0.15  # a mean over three settings would be a third
    assert "2 of 3 settings cannot tell, excluded" in str(contrast.reason)


def fair(score: Callable[[Any, int], float]) -> Callable[[Any, int], float]:
    """Return the scores of a study that has the fair setting alone."""
    return lambda axes, seed: score({**axes, "train.lr": FAIR}, seed)


def test_an_average_over_ends_alone_cannot_tell(analysed: Analysed) -> None:
    axes = {"positional": VALUES[:2], "train.lr": [EASY, HARD]}
    analysis = analysed(
        axes=axes,
        interactions=True,
        score=lambda axes, seed: float(axes["train.lr"] == EASY),
    )
    (contrast,) = (
        result for result in analysis.families.factors.contrasts if result.axis == "positional"
    )
    assert contrast.verdict == CANNOT_TELL
    assert contrast.reason == "every score is 0.000 or 1.000"
    (interaction,) = analysis.families.interactions.contrasts
    assert interaction.verdict == CANNOT_TELL
