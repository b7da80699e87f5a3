import itertools
import math
import random
import statistics
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from recompute import half_width

from headtohead import HeadToHeadError
from headtohead.analysis.scores import OTHER_DATA
from headtohead.analysis.study import Analysis
from headtohead.report.content import Report
from headtohead.report.data import data_section
from headtohead.storage.experiment import MarginRecord
from headtohead.storage.frames import load_frames
from headtohead_judge.block_model import block_model
from headtohead_judge.verdicts import BY_MORE
from headtohead_notebooks.quirks import NotebookOptions
from made.block_oracle import expected_test, expected_tests, scores_of
from made.fake_study import CEILING

METRIC = "test/exact_match"


def by_name(family):
    return {contrast.name: contrast for contrast in family.contrasts}


def over_seeds(difference):
    """Return mean, standard error over seeds and its degrees of freedom, without further sources of variance."""
    seeds = difference.sources[0]
    return difference.mean, math.sqrt(seeds.variance), seeds.degrees


def expected_family(scores, contrasts, baseline):
    """Return the expected tests of the differences of variants from the baseline, which are a family."""
    family = [{contrast.variant: 1, baseline: -1} for contrast in contrasts]
    return expected_tests(scores, family)


def test_variants_are_paired_with_the_baseline_by_seed(quickstart):
    frames = load_frames(quickstart)
    family = Analysis(frames, METRIC).families.variants
    assert family.tested == 11
    scores = scores_of(frames, METRIC)
    expected = expected_family(scores, family.contrasts, frames.baseline)
    for contrast, test in zip(family.contrasts, expected, strict=True):
        paired = scipy.stats.ttest_rel(scores[contrast.variant], scores[frames.baseline])
        assert over_seeds(contrast.paired) == pytest.approx(test[:], rel=1e-6)
        assert contrast.paired.paired_p == pytest.approx(paired.pvalue)
        assert contrast.judgement.adjusted_p == pytest.approx(1 - (1 - contrast.paired.p) ** 11)


def test_an_unknown_metric_is_refused_before_anything_is_computed(quickstart):
    frames = load_frames(quickstart)
    with pytest.raises(HeadToHeadError, match="declares the metric 'test/unheard_of'"):
        Analysis(frames, "test/unheard_of")
    margin = MarginRecord(value=0.1, since="2026-01-01T00:00:00+00:00")
    record = frames.record.model_copy(update={"margins": {"test/unheard_of": margin}})
    with pytest.raises(HeadToHeadError, match="declares the metric 'test/unheard_of'"):
        Analysis(replace(frames, record=record))


def test_every_interval_has_the_level_that_makes_those_of_the_family_simultaneous(quickstart):
    family = Analysis(load_frames(quickstart), METRIC).families.variants
    for contrast in family.contrasts:
        sources = [(source.variance, source.degrees) for source in contrast.paired.sources]
        half = half_width(sources, 1 - 0.95 ** (1 / 11))
        ends = contrast.judgement.interval.low, contrast.judgement.interval.high
        mean = contrast.paired.mean
        assert ends == pytest.approx((mean - half, mean + half))
        assert 1 - contrast.level == pytest.approx(0.95 ** (1 / 11))


def test_a_remark_names_the_contrasts_whose_verdict_the_paired_test_does_not_share(quickstart):
    analysis = Analysis(load_frames(quickstart), METRIC)
    for contrast in analysis.families.variants.contrasts:
        adjusted = 1 - (1 - contrast.paired.paired_p) ** 11
        assert contrast.is_unlike_paired_test == ((adjusted <= 0.05) != contrast.detected)


def test_factor_contrast_averages_over_other_axes_within_each_seed(quickstart):
    frames = load_frames(quickstart)
    found = by_name(Analysis(frames, METRIC).families.factors)["without positions"]
    weights = {}
    for attention, masking in itertools.product(
        ("split-heads", "independent-heads"), ("padding-causal", "causal")
    ):
        weights |= {f"none-{attention}-{masking}": 0.25, f"sinusoidal-{attention}-{masking}": -0.25}
    values = np.array([frames.scores(slug, METRIC)[1] * weight for slug, weight in weights.items()])
    assert found.by_seed[1] == pytest.approx(values.sum())
    assert found.verdict == "worse"


def test_small_differences_are_within_a_margin_even_if_their_direction_is_detected(analysed):
    plain, found, late = (
        by_name(analysed(margin=margin, late=late).families.factors)
        for margin, late in ((None, False), (0.05, False), (0.05, True))
    )
    assert {contrast.size for contrast in plain.values()} == {None}
    assert "equivalent" not in {contrast.direction for contrast in plain.values()}
    attention, rotary = (
        found["independent instead of split heads"],
        found["rotary instead of sinusoidal"],
    )
    assert (attention.verdict, attention.reason) == ("equivalent", None)
    assert attention.margin_text == "0.050"
    assert rotary.verdict == "better by less than the margin"
    for name in ("without positions", "a causal instead of a padding and causal mask"):
        assert (found[name].verdict, found[name].size) == ("worse", BY_MORE)
    for contrast in found.values():
        interval = contrast.judgement.interval
        assert contrast.is_within_margin == (interval.low > -0.05 and interval.high < 0.05)
    text = late["independent instead of split heads"].margin_text
    assert text == "0.050 (margin set after results existed)"


def test_settings_equal_by_construction_are_excluded_from_averages(analysed):
    def score(axes, seed):
        lost = 0.06 if axes["masking"] == "causal" else 0.0
        return 0.5 + 0.01 * seed - lost * (1 + 0.1 * seed) * (axes["positional"] != "none")

    analysis = analysed(
        axes={
            "positional": ["sinusoidal", "rotary", "none"],
            "masking": ["padding-causal", "causal"],
        },
        equal_to={"none-causal": "none-padding-causal"},
        score=score,
    )
    found = by_name(analysis.families.factors)["a causal instead of a padding and causal mask"]
    weights = {}
    for positional in ("sinusoidal", "rotary"):
        weights |= {f"{positional}-causal": 0.5, f"{positional}-padding-causal": -0.5}
    others = [
        {f"{positional}-{mask}": sign / 2}
        for positional, sign in (("rotary", 1), ("sinusoidal", -1))
        for mask in ("padding-causal", "causal")
    ]
    rotary = {slug: weight for own in others for slug, weight in own.items()}
    none = {"none-padding-causal": 1} | {
        f"sinusoidal-{mask}": -0.5 for mask in ("padding-causal", "causal")
    }
    expected, *_ = expected_tests(scores_of(analysis.frames, METRIC), [weights, rotary, none])
    assert over_seeds(found.paired) == pytest.approx(expected[:])
    assert found.spread == pytest.approx((found.paired.mean, found.paired.mean))
    assert len(found.settings) == 2
    assert found.reason == "1 of 3 settings same by construction, excluded"


def test_a_contrast_of_the_same_runs_is_counted_once(analysed):
    effects = {"sinusoidal": 0.0, "rotary": 0.01, "none": 0.02, "alibi": 0.01}
    without, family = (
        analysed(
            axes={"positional": [*effects]},
            score=lambda axes, seed: 0.5 + effects[axes["positional"]] * (1 + seed % 3),
            equal_to=equal_to,
        ).families.variants
        for equal_to in ({}, {"alibi": "rotary"})
    )
    assert (without.tested, family.tested) == (3, 2)
    found = by_name(family)
    rotary, alibi = (
        found["rotary instead of sinusoidal"],
        found["ALiBi instead of sinusoidal"],
    )
    assert alibi.judgement == rotary.judgement
    assert alibi.reason == "the same runs as rotary instead of sinusoidal, counted once"
    for contrast in (rotary, found["without positions"]):
        assert contrast.judgement.adjusted_p == pytest.approx(1 - (1 - contrast.paired.p) ** 2)


def test_variants_with_missing_seeds_are_not_ranked_unless_partial_is_allowed(messy):
    frames = load_frames(messy)
    name = "rotary instead of sinusoidal and independent instead of split heads"
    refused = by_name(Analysis(frames, METRIC).families.variants)[name]
    assert refused.paired is None
    assert refused.reason.endswith("1 not run, 1 not finished of 6 seeds")
    allowed = by_name(Analysis(frames, METRIC, allow_partial=True).families.variants)[name]
    assert allowed.seeds == (1, 2, 3, 4)
    assert allowed.reason.startswith("partial: ")


def test_a_diverged_seed_is_a_result_but_its_variant_has_no_mean(messy):
    analysis = Analysis(load_frames(messy))
    assert "rotary-split-heads-causal" not in analysis.incomplete
    assert analysis.unranked["rotary-split-heads-causal"] == "1 diverged of 6 seeds"
    assert set(analysis.incomplete) == {
        "rotary-independent-heads-padding-causal",
        "none-split-heads-causal",
    }
    means = [analysis.summaries[slug].mean for slug in analysis.ranked]
    assert means == sorted(means, reverse=True)
    assert set(analysis.order[-3:]) == set(analysis.unranked)
    for contrast in analysis.families.factors.contrasts:
        assert contrast.paired is None
        assert contrast.reason.startswith("not ranked: ")


def test_contrasts_equal_by_construction_are_not_tested_or_corrected_for(messy):
    family = Analysis(load_frames(messy), METRIC).families.variants
    name = "a causal instead of a padding and causal mask (sinusoidal, split heads)"
    contrast = by_name(family)[name]
    assert contrast.verdict == "same by construction"
    assert contrast.paired is None
    assert family.tested == sum(c.paired is not None for c in family.contrasts) == 6


def test_different_label_smoothing_makes_only_training_losses_incomparable(analysed):
    frames = analysed(
        axes={"train.label_smoothing": [0.0, 0.1]},
        config=lambda axes: {
            "train": dict.fromkeys(("label_smoothing", "z_loss"), axes["train.label_smoothing"])
        },
    ).frames
    for metric in ("valid/loss", "valid/perplexity", "test/loss", "test/loss_unpadded", METRIC):
        (contrast,) = Analysis(frames, metric).families.variants.contrasts
        left = frames.scores(contrast.variant, metric)
        right = frames.scores(contrast.against, metric)
        mean = sum(left[seed] - right[seed] for seed in frames.seeds) / len(frames.seeds)
        assert contrast.paired is not None, metric
        assert contrast.paired.mean == pytest.approx(mean)
    (contrast,) = Analysis(frames, "train/loss").families.variants.contrasts
    assert contrast.paired is None
    assert (
        contrast.reason
        == "scores per token are not comparable: label smoothing values and z-losses differ"
    )
    for variant, shifted in zip(frames.by_slug.values(), (True, False), strict=True):
        quirks = {"notebooks": NotebookOptions(shift_targets=shifted)}
        vars(variant.config)["quirks"] = quirks
    for metric in ("valid/loss", "test/token_accuracy"):
        (contrast,) = Analysis(frames, metric).families.variants.contrasts
        assert contrast.reason == "scores per token are not comparable: labels differ"


def test_scores_of_different_language_pairs_are_not_comparable(analysed):
    families = analysed(
        axes={"data.pair": ["eng-spa", "eng-fra"], "positional": ["sinusoidal", "rotary"]},
        run_data=lambda axes: {"languages": axes["data.pair"].split("-")},
    ).families
    assert {
        c.name: c.reason
        for family in (families.variants, families.factors)
        for c in family.contrasts
    } == {
        "rotary instead of sinusoidal": None,
        "rotary instead of sinusoidal with eng-spa": None,
        "eng-fra instead of eng-spa": OTHER_DATA,
        "eng-fra instead of eng-spa with sinusoidal": OTHER_DATA,
        "eng-fra instead of eng-spa and rotary instead of sinusoidal": OTHER_DATA,
    }


@pytest.mark.parametrize("axes", [("data.pair", "positional"), ("positional", "data.pair")])
def test_differences_within_language_pairs_are_compared_in_either_order_of_the_axes(analysed, axes):
    values = {"data.pair": ["eng-spa", "eng-fra"], "positional": ["sinusoidal", "rotary"]}
    analysis = analysed(
        axes={axis: values[axis] for axis in axes},
        run_data=lambda axes: {"languages": axes["data.pair"].split("-")},
        interactions=True,
    )
    (interaction,) = analysis.families.interactions.contrasts
    means = {
        frozenset(variant.axes.values()): analysis.summaries[slug].mean
        for slug, variant in analysis.frames.by_slug.items()
    }
    effects = [
        means[frozenset({pair, "rotary"})] - means[frozenset({pair, "sinusoidal"})]
        for pair in ("eng-fra", "eng-spa")
    ]
    assert interaction.paired.mean == pytest.approx(effects[0] - effects[1])


def test_a_single_seed_gives_a_difference_and_no_verdict(analysed):
    family = analysed(seeds=(1,)).families.variants
    assert family.tested == 0
    for contrast in family.contrasts:
        assert math.isnan(contrast.judgement.adjusted_p)
        assert contrast.verdict == "no verdict"
        assert contrast.reason == "one seed: no test"


def test_a_saturated_difference_has_no_verdict_with_too_few_seeds(analysed):
    axes = {"positional": ["sinusoidal", "rotary", "none"]}
    found = by_name(
        analysed(
            axes=axes,
            seeds=range(1, 6),
            score=lambda axes, seed: float(axes["positional"] != "none"),
        ).families.factors
    )
    assert found["rotary instead of sinusoidal"].verdict == "cannot tell"
    constant = found["without positions"]
    assert constant.verdict == "no verdict"
    assert constant.paired.mean == -1.0
    assert "the interval is a point" in constant.reason
    assert "too few seeds" in constant.reason


@pytest.mark.slow
def test_the_upper_bound_is_checked_without_padding(analysed):
    under = analysed()
    assert set(under.upper_bound_verdicts.values()) == {"within the upper bound"}
    assert len(under.upper_bound_verdicts) == 4
    # the batched score 0.5 is below 0.53, and the unpadded score of the same model is 0.56
    over = analysed(score=lambda axes, seed: 0.5 if axes["positional"] == "none" else 0.9)
    assert over.upper_bound_verdicts == {
        "none-split-heads-padding-causal": "within the upper bound",
        "none-split-heads-causal": "exceeds the upper bound: suspect",
        "none-independent-heads-padding-causal": "within the upper bound",
        "none-independent-heads-causal": "exceeds the upper bound: suspect",
    }


def test_the_upper_bound_holds_for_metrics_of_the_same_counts(analysed):
    exact = analysed(seeds=(1,), score=lambda axes, seed: 0.9)
    log_error = Analysis(exact.frames, "test/log_error")
    assert log_error.upper_bound == CEILING
    assert log_error.upper_bound_verdicts == exact.upper_bound_verdicts
    assert set(exact.upper_bound_verdicts.values()) == {"exceeds the upper bound: suspect"}
    assert Analysis(exact.frames, "test/bleu").upper_bound is None


def test_the_upper_bound_is_that_of_the_scored_sentences(analysed):
    """Other sentences have another bound: a part of the test set, or the test set of another split."""
    frames = analysed(seeds=(1,)).frames
    checked = Analysis(frames).upper_bound_verdicts
    other = next(iter(checked))
    runs = frames.runs.copy()
    runs.loc[runs["variant"] == other, "data_hash"] = "0" * 64
    assert set(Analysis(replace(frames, runs=runs)).upper_bound_verdicts) == set(checked) - {other}
    baseline = frames.by_slug[frames.baseline]
    size = frames.record.data["counts"]["test"]
    for limit, bound in ((size, CEILING), (size - 1, None)):
        vars(baseline.config.evaluate)["test_limit"] = limit
        assert Analysis(frames).upper_bound == bound


def test_no_upper_bound_is_stated_for_decoders_alone(analysed):
    frames = analysed(seeds=(1,)).frames
    for variant in frames.by_slug.values():
        assert Analysis(frames).upper_bound == CEILING
        assert "bag-of-words" in data_section(Report(Analysis(frames))).frame.to_string()
        vars(variant.config.model)["architecture"] = "decoder-only"
    assert Analysis(frames).upper_bound is None
    assert "bag-of-words" not in data_section(Report(Analysis(frames))).frame.to_string()


def depends_on_heads(axes, seed):
    """Return a score with an effect of independent heads of 0.002 with 2 heads and of 0.04 with 4 heads."""
    noise = math.sin(7.0 * seed + 3.0 * (axes["model.heads"] + len(axes["attention"])))
    effect = {2: 0.002, 4: 0.04}[axes["model.heads"]] * (axes["attention"] == "independent-heads")
    return 0.6 + 0.01 * seed + effect + 0.001 * noise


def test_an_interaction_is_a_difference_of_differences_in_its_own_family(analysed):
    axes = {
        "attention": ["split-heads", "independent-heads"],
        "model.heads": [2, 4],
        "positional": ["none", "rotary"],
    }
    analysis = analysed(axes=axes, score=depends_on_heads, interactions=True)
    family = analysis.families.interactions
    assert (family.tested, len(family.contrasts)) == (1, 3)  # the others are identical
    contrast = by_name(family)[
        "independent instead of split heads together with 4 instead of 2 heads"
    ]
    weights = {
        f"{style}-{heads}-{positional}": (-1) ** ((style == "split-heads") + (heads == 2)) / 2
        for style, heads, positional in itertools.product(*axes.values())
    }
    expected = expected_test(scores_of(analysis.frames, METRIC), weights)
    assert contrast.paired.mean == pytest.approx(expected.mean)
    assert contrast.verdict == "larger"
    others = [other for other in family.contrasts if other is not contrast]
    assert {other.verdict for other in others} <= {"no difference shown", "identical"}


def test_an_interaction_that_is_zero_by_construction_is_not_tested(analysed):
    family = analysed(
        axes={"positional": ["sinusoidal", "rotary"], "masking": ["padding-causal", "causal"]},
        equal_to={
            "sinusoidal-causal": "sinusoidal-padding-causal",
            "rotary-causal": "rotary-padding-causal",
        },
        interactions=True,
    ).families.interactions
    assert [contrast.verdict for contrast in family.contrasts] == ["same by construction"]
    assert family.tested == 0


def test_each_data_set_has_its_own_block_model(analysed):
    """The scores of one dataset vary 30 times as much; an effect of a seed in one is not one in the other."""
    scale = {"addition": 0.001, "copy": 0.03}

    def score(axes, seed):
        draws = [
            random.Random(f"{axes['data']} {name} {seed}").gauss(0, 1)
            for name in (axes["positional"], "seed")
        ]
        return 0.5 + scale[axes["data"]] * sum(draws)

    axes = {"data": [*scale], "positional": ["sinusoidal", "rotary", "alibi", "none"]}
    analysis = analysed(axes=axes, score=score)
    families, scores = analysis.families, scores_of(analysis.frames, METRIC)
    by_data = {
        name: {slug: own for slug, own in scores.items() if slug.startswith(name)} for name in scale
    }
    for data, own in by_data.items():
        contrasts = [
            found for found in families.variants.contrasts if found.variant in own and found.paired
        ]
        assert len(contrasts) == 3
        expected = expected_family(own, contrasts, f"{data}-sinusoidal")
        for contrast, test in zip(contrasts, expected, strict=True):
            assert over_seeds(contrast.paired) == pytest.approx(test[:])

    average = by_name(families.factors)["rotary instead of sinusoidal"]
    models = [block_model([*own.values()]) for own in by_data.values()]
    residual = sum(2 / 4 * model.residual_variance for model in models)
    degrees = residual**2 / sum(
        (model.residual_variance / 2) ** 2 / model.degrees for model in models
    )
    tested = [found for found in families.factors.contrasts if found.by_seed]
    own = [statistics.variance(found.by_seed.values()) for found in tested]
    common = max(residual, statistics.mean(own))
    if common > residual:
        degrees = min(degrees, 5 * len(own))
    prior, own_of_average = (
        min(model.prior for model in models),
        statistics.variance(average.by_seed.values()),
    )
    variance = (prior * common + 5 * own_of_average) / (prior + 5) / 6
    expected = (average.paired.mean, math.sqrt(variance), max(5, min(prior + 5, degrees)))
    assert over_seeds(average.paired) == pytest.approx(expected)
    for found, data in zip(average.settings, scale, strict=True):
        weights = {f"{data}-rotary": 1, f"{data}-sinusoidal": -1}
        test = expected_test(by_data[data], weights)
        assert over_seeds(found.difference) == pytest.approx(test[:])


def test_a_metric_without_a_direction_has_neither_better_nor_worse(quickstart):
    """``attention/encoder/entropy`` of a declared contrast."""
    frames = load_frames(quickstart)
    entropy = "attention/encoder/entropy"
    contrasts = Analysis(frames, entropy).families.variants.contrasts
    assert {contrast.higher_is_better for contrast in contrasts} == {None}
