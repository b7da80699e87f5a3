import json
import math

import numpy as np
import pytest
from scipy import stats

from headtohead.analysis.study import analyse, separate_effects
from headtohead.report.answer import answer, short_answer
from headtohead.report.facts import facts
from headtohead.storage.frames import load_frames


def answered(folder, **options):
    return answer(analyse(load_frames(folder), **options))


@pytest.fixture
def study(made, tmp_path):
    def write(**changes):
        return made.write_study(tmp_path, made.Study(maps=False, **changes))

    return write


def test_the_answer_of_the_quickstart_is_one_sentence_by_axis(quickstart):
    text = answered(quickstart)
    assert text.startswith("Positional rotary is better than sinusoidal by 0.031 exact match (97.5 %")
    assert "; positional none is worse than sinusoidal by 0.447 exact match (98.75 % interval 0.4" in text
    assert ("; attention independent-heads against split-heads: inconclusive (+0.00") in text
    assert text.endswith(".")
    assert ". " not in text


def test_the_short_answer_has_a_line_per_axis_without_intervals(quickstart):
    analysis = analyse(load_frames(quickstart))
    question, *lines, note = short_answer(analysis)
    assert question == analysis.frames.record.question
    assert [line.split()[0] for line in lines] == ["positional", "attention", "masking"]
    assert "rotary against sinusoidal: better by 0.031 exact match; none against sinusoidal: worse by 0.447" in lines[0]
    assert lines[1].endswith("independent-heads against split-heads: inconclusive")
    assert note.startswith("  Inconclusive: ")
    assert "interval" not in "".join(lines)


def test_without_factor_contrasts_the_short_answer_is_the_answer(study):
    analysis = analyse(load_frames(study(one_at_a_time=True)))
    assert short_answer(analysis) == (answer(analysis),)


def test_effect_sizes_and_intervals_are_positive_for_either_sign_of_the_difference(quickstart):
    text = answered(quickstart)
    assert "by −" not in text
    assert "interval −" not in text.replace("inconclusive (+0.002 exact match, 95 % interval −", "")


def test_without_factors_variants_are_compared_with_the_baseline(study):
    text = answered(study(one_at_a_time=True))
    assert text.startswith("Compared with the baseline, positional rotary is better by 0.030")
    assert "positional none is worse by 0.4" in text
    assert "split-heads" not in text  # Choices shared with the baseline are not repeated.


def test_an_unfinished_study_has_no_answer_and_no_ranking(made, tmp_path):
    slugs = [
        f"{p}-{a}-{m}"
        for p in ("sinusoidal", "rotary", "none")
        for a in ("split-heads", "independent-heads")
        for m in ("padding-causal", "causal")
    ]
    states = {(slug, 6): "PLANNED" for slug in slugs}
    folder = made.write_study(tmp_path, made.Study(states=states, maps=False))
    text = answered(folder)
    assert text.startswith("No answer yet: 60 of 72 runs have a result")
    partial = answered(folder, allow_partial=True)
    assert partial.startswith("On the finished seeds, positional rotary is better")


def test_a_factor_without_a_verdict_is_named(study):
    text = answered(study(states={("rotary-split-heads-causal", 1): "DIVERGED"}))
    assert text.startswith("Positional none is worse than sinusoidal")
    assert text.endswith(
        "not ranked: positional rotary against sinusoidal, attention independent-heads against "
        "split-heads, masking causal against padding-causal "
        "(rotary · split-heads · causal: 1 diverged of 6 seeds)."
    )


def test_equal_by_construction_is_stated_and_not_called_inconclusive(made, tmp_path):
    study = made.Study(
        axes={"masking.decoder": ["padding-causal", "causal"]}, maps=False, equal_to={"causal": "padding-causal"}
    )
    text = answered(made.write_study(tmp_path, study))
    assert text == "All variants are the same by construction."


def test_a_single_seed_gives_no_verdict(study):
    text = answered(study(seeds=(1,)))
    assert "better" not in text
    assert "worse" not in text
    assert "too few seeds for a test" in text


def test_a_single_variant_has_no_comparison(study):
    text = answered(study(axes={"positional": ["sinusoidal"]}))
    assert text.startswith("The experiment has a single variant and no comparison: exact match 0.9")


def test_an_effect_with_opposite_signs_in_settings_is_stated(study):
    def score(axes, seed):
        gain = -0.1 if axes["attention"] == "independent-heads" else 0.3
        return (
            0.5
            + (gain if axes["positional"] == "rotary" else 0.0)
            + 0.003 * seed * (1 + (axes["positional"] == "rotary"))
        )

    text = answered(
        study(
            axes={"positional": ["sinusoidal", "rotary"], "attention": ["split-heads", "independent-heads"]},
            score=score,
        )
    )
    assert "is better than sinusoidal by 0.111" in text
    assert "but not in every setting (−0.089 to +0.311)" in text


QK = {"attention": ["split-heads", "qk-norm"], "train.lr": [0.003, 0.001]}


def crossing(gains, noise=0.001):
    """Return scores in which the effect of qk-norm depends on the learning rate, with noise of mean zero."""

    def score(axes, seed):
        gain = gains[axes["train.lr"]] if axes["attention"] == "qk-norm" else 0.0
        wobble = noise * (-1) ** seed * (1 + 0.1 * seed) * (axes["attention"] == "qk-norm")
        return 0.5 + 0.004 * seed + gain + wobble

    return score


def test_a_factor_with_a_better_variant_is_inconclusive_on_average(study):
    text = answered(study(axes=QK, score=crossing({0.003: 0.024, 0.001: -0.024}), seeds=range(8)))
    clause = text.split("; ")[0]
    assert clause.startswith("Attention qk-norm against split-heads: inconclusive on average, ")
    assert "−0.024 to +0.024 exact match in single settings" in clause
    assert "qk-norm · 0.003 is better than the baseline by 0.024 exact match (97.5 % int" in clause
    assert "no difference" not in clause


def test_a_factor_with_effects_of_both_signs_is_inconclusive(made, tmp_path):
    axes = {"train.lr": [0.002, 0.003, 0.001], "attention": ["split-heads", "qk-norm"]}
    folder = made.write_study(
        tmp_path,
        made.Study(
            axes=axes, seeds=range(4), maps=False, score=crossing({0.002: 0.0, 0.003: 0.1, 0.001: -0.1}, noise=0.002)
        ),
    )
    text = answered(folder)
    (clause,) = (item for item in text.split("; ") if "qk-norm against split-heads" in item)
    assert "inconclusive on average, " in clause
    assert clause.rstrip(".").endswith("−0.100 to +0.100 exact match in single settings")


def test_settings_that_cancel_in_every_seed_are_not_equal(study):
    text = answered(study(axes=QK, score=crossing({0.003: 0.25, 0.001: -0.25}, noise=0.0)))
    assert text.startswith("Attention qk-norm against split-heads: equal on average, −0.250 to +0")
    assert "scores the same" not in text


def test_a_factor_without_a_difference_in_any_setting_has_no_difference(study):
    text = answered(study(axes=QK, score=crossing({0.003: 0.0, 0.001: 0.0})))
    assert text.startswith("Attention qk-norm against split-heads: inconclusive (")


def test_factors_with_differing_settings_are_counted_separately(study):
    def score(axes, seed):
        gain = crossing({0.003: 0.1, 0.001: -0.1})(axes, seed)
        return gain - int(axes["positional"]) * 0.05 * (1 + 0.001 * seed)

    text = answered(study(axes={"positional": list(range(7)), **QK}, score=score))
    assert (
        "of the other contrasts: 1 smaller difference detected, 1 contrast inconclusive on average, with "
        "differences in single settings"
    ) in text


def test_many_contrasts_are_counted_and_the_largest_are_listed(study):
    text = answered(
        study(
            axes={"train.lr": [round(k / 100, 2) for k in range(1, 13)]},
            one_at_a_time=True,
            score=lambda axes, seed: 0.5 + axes["train.lr"] * (1 + 0.001 * seed),
        )
    )
    assert text.count(" is better by ") == 5
    assert "0.12 is better by" in text
    assert "of the other contrasts: 6 smaller differences detected" in text


def test_a_lower_primary_metric_is_better(study):
    text = answered(study(primary="test/loss", axes={"positional": ["sinusoidal", "none"]}))
    assert "positional none is worse than sinusoidal by 0.4" in text.lower()
    assert "loss (95 % interval" in text


def test_variants_outside_the_factorial_are_listed_after_the_axes(made, tmp_path):
    axes = {"positional": ["sinusoidal", "rotary", "none"], "attention": ["split-heads", "single"]}
    folder = made.write_study(tmp_path, made.Study(axes=axes, maps=False))
    file = folder / "experiment.json"
    record = json.loads(file.read_text())
    record["contrasts"] = [
        {**c, "given": {"match": "none"}} if c["kind"] == "factor" else c
        for c in record["contrasts"]
        if c["kind"] == "variant" or c["value"] == "rotary"
    ]
    file.write_text(json.dumps(record))
    text = answered(folder)
    assert text.startswith("Positional rotary (match none) is better than sinusoidal by 0.026")
    assert "none · split-heads is worse than the baseline by 0.4" in text
    assert "none · single is worse than the baseline by 0.4" in text
    assert "rotary · split-heads" not in text


def test_without_factor_contrasts_the_answer_mentions_no_axis(study):
    assert "axis" not in answered(study(one_at_a_time=True))


def test_a_diverged_baseline_gives_a_reason_instead_of_an_answer(study):
    text = answered(study(states={("sinusoidal-split-heads-padding-causal", 4): "DIVERGED"}))
    assert text.startswith("No answer: not ranked: ")
    assert "sinusoidal · split-heads · padding-causal: 1 diverged of 6 seeds" in text


def test_scores_on_different_data_are_listed_and_not_compared(made, tmp_path):
    single = made.Study(
        axes={"recipe": ["here", "there"]}, config=lambda axes: {"data": {"dataset": axes["recipe"]}}, maps=False
    )
    text = answer(analyse(load_frames(made.write_study(tmp_path, single))))
    opening = "The variants use different data sets and are not ranked; exact match of each variant: "
    assert text.startswith(opening)
    scores = text.removeprefix(opening).rstrip(".").split("; ")
    assert len(scores) == 2
    assert all("95 % interval" in score for score in scores)


@pytest.mark.parametrize(("score", "is_stated"), [(0.0, True), (0.01, False)])
def test_the_worst_score_in_all_runs_is_stated(tmp_path, made, score, is_stated):
    folder = made.write_study(tmp_path)
    paths = sorted(folder.glob("*/results.json"))
    for number, path in enumerate(paths):
        results = json.loads(path.read_text())
        results["metrics"]["test/exact_match"] = score if number == 0 else 0.0
        path.write_text(json.dumps(results))
        made.record_checksums(path.parent)
    statements = [fact for fact in facts(analyse(load_frames(folder))) if "worst possible exact match" in fact]
    assert bool(statements) is is_stated
    assert not is_stated or statements[0].startswith("Every run has the worst possible exact match, 0.000")


HEADS = {
    ("split-heads", 2): (267, 268, 272, 266, 267, 263),
    ("split-heads", 4): (267, 265, 265, 263, 265, 260),
    ("independent-heads", 2): (267, 271, 274, 272, 259, 257),
    ("independent-heads", 4): (277, 276, 274, 277, 275, 274),
}
"""Exact matches of 300 sentences by seed, of trained runs of heads-split-or-independent at equal parameters."""


def test_the_interaction_of_trained_runs_is_found_and_the_effects_are_given_separately(study):
    axes = {"attention": ["split-heads", "independent-heads"], "model.heads": [2, 4]}
    folder = study(
        axes=axes, score=lambda a, seed: HEADS[a["attention"], a["model.heads"]][seed - 1] / 300, interactions=True
    )
    analysis = analyse(load_frames(folder))
    effects = {n: np.subtract(HEADS["independent-heads", n], HEADS["split-heads", n]) / 300 for n in (2, 4)}
    (interaction,) = analysis.interactions.contrasts
    assert interaction.judgement.holm_p == pytest.approx(stats.ttest_1samp(effects[4] - effects[2], 0).pvalue)
    assert interaction.verdict_name == "significant"
    (contrast,) = (found for found in analysis.factors.contrasts if found.axis == "attention")
    separate = separate_effects(analysis, contrast)
    assert separate.other_axis == "model.heads"
    text = answer(analysis)
    for heads, effect in effects.items():
        found = separate.effects[str(heads)]
        assert (found.mean, found.sd) == pytest.approx((effect.mean(), effect.std(ddof=1)))
        assert f"{effect.mean():+.3f}".replace("-", "−") in text


def test_an_effect_that_depends_on_another_axis_is_given_by_value_of_that_axis(study):
    def score(axes, seed):
        effect = {2: 0.002, 4: 0.04}[axes["model.heads"]] * (axes["attention"] == "independent-heads")
        return 0.6 + 0.01 * seed + effect + 0.001 * math.sin(7.0 * seed + axes["model.heads"] + len(axes["attention"]))

    axes = {"attention": ["split-heads", "independent-heads"], "model.heads": [2, 4]}
    text = answered(study(axes=axes, score=score, interactions=True))
    first = text.split("; ")[0]
    assert first.startswith("Attention independent-heads against split-heads: depends on model.heads (p < 0.001): ")
    assert ") with model.heads 2, +0.0" in first
    assert first.endswith(") with model.heads 4")
    assert "on average" not in text
    assert "depends on" not in answered(
        study(name="same", axes=axes, score=lambda a, s: score(a | {"model.heads": 2}, s), interactions=True)
    )
