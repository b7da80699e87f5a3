"""Sources of uncertainty: seeds and examples in every interval, and whether pairing by seed helps."""

import math
import random

import numpy as np
import pytest
from recompute import half_width

from headtohead.analysis.study import Analysis
from headtohead.analysis.uncertainty import halving
from headtohead.analysis.wording import interval_caption
from headtohead.report.content import Report
from headtohead.report.contrasts import uncertainty_section
from headtohead.report.setup import statistics_section
from headtohead.storage.frames import load_frames
from headtohead.storage.translations import translations_of
from headtohead_judge.paired_tests import EXAMPLES, Source, paired_differences
from headtohead_judge.variance import example_variance
from made import case_table


def test_test_sentences_are_a_source_of_variance_of_every_contrast(quickstart):
    analysis = Analysis(load_frames(quickstart))
    found = analysis.uncertainty
    assert (found.reason, found.num_groups) == ("", 250)
    (none,) = (row for row in found.contrasts if row.contrast.name == "without positions")
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
    seeds, examples = none.contrast.paired.sources
    assert (seeds.name, examples.name) == ("training seeds", "examples")
    assert examples.variance == pytest.approx(max(0.0, example_variance(difference)))
    assert examples.degrees == 249
    assert [part.source for part in none.parts] == ["training seeds", "examples"]
    assert sum(part.fraction for part in none.parts) == pytest.approx(1)


def two_sources(seeds, examples):
    """Return a difference of six seeds with these variances of seeds and of 250 examples."""
    values = np.array([1.0, -1.0, 2.0, -2.0, 0.5, -0.5])
    difference = paired_differences(values)
    return difference.with_seed_variance(seeds, 5).with_source(Source(EXAMPLES, examples, 249))


@case_table(
    ("difference", "seeds", "examples", "both"),
    [
        (two_sources(1.0, 0.0), 17, None, 3),
        (two_sources(0.01, 1.0), None, 5, 4),
        (two_sources(1.0, 1.0), None, None, 4),
    ],
    default=3,
)
def test_what_halves_an_interval_does(difference, seeds, examples, both):
    found = halving(difference, 0.05)

    def width(more_seeds, factor):
        variances = [source.variance for source in difference.sources]
        sources = [(variances[0] * 6 / more_seeds, more_seeds - 1)]
        sources.append((variances[1] / factor, 250 * factor - 1))
        return half_width(sources, 0.05)

    half = width(6, 1) / 2
    for number, scaled in (
        (found.seeds, lambda count: width(count, 1)),
        (found.examples, lambda factor: width(6, factor)),
        (found.both, lambda factor: width(6 * factor, factor)),
    ):
        if number is not None:
            assert scaled(number) <= half < scaled(number - 1)
    assert (found.seeds, found.examples, found.both) == (seeds, examples, both)


def test_captions_name_the_sources_or_the_reason_why_only_seeds_are_one(analysed):
    axes = {"positional": ["sinusoidal", "rotary", "none"]}
    analysis = analysed(axes=axes)
    contrasts = analysis.main_contrasts
    scope = "Intervals: 95 %, adjusted for 2 changes; they include the variance of training seeds"
    assert interval_caption(analysis, contrasts) == f"{scope} and examples."
    losses = Analysis(analysis.frames, "valid/loss")
    reason = "a run has no values per example"
    assert interval_caption(losses, losses.main_contrasts) == (
        f"{scope}. The variance of examples is not included: {reason}."
    )


def test_the_statistics_name_variants_that_vary_more_over_seeds(analysed):
    sizes = {"sinusoidal": 0.001, "rotary": 0.001, "learned": 0.001, "none": 0.1}

    def score(axes, seed):
        draw = random.Random(f"{axes['positional']} {seed}").gauss(0, 1)
        return 0.5 + sizes[axes["positional"]] * draw

    analysis = analysed(axes={"positional": [*sizes]}, score=score)
    ratio = analysis.sd_ratios["none"]
    assert ratio > 30
    expected = (
        "Scores of these variants vary more over seeds than those of the others on the same data: without positions "
        f"({ratio:.1f} times the standard deviation of the others). Contrasts of these variants use the variance of "
        "their own differences."
    )
    assert expected in statistics_section(Report(analysis)).lines
    even = analysed(axes={"positional": ["sinusoidal", "rotary", "learned"]}, score=score)
    assert not any("vary more" in line for line in statistics_section(Report(even)).lines)


def test_scores_that_are_not_those_of_the_stored_values_are_no_source(analysed):
    analysis = analysed(
        axes={"positional": ["sinusoidal", "rotary"]},
        score=lambda axes, seed: 0.5011 + 0.001 * seed * len(axes["positional"]),
    )
    assert analysis.uncertainty.reason.startswith("the scores are not those")
    (contrast,) = analysis.main_contrasts
    assert contrast.source_names == ["training seeds"]


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
    assert found.example_sd < 0.02
