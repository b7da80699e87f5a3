import dataclasses
import json
import math
import re

import numpy as np
import pytest
from headtohead.report.facts import facts, pitfall_line, warnings
from scipy import stats

from headtohead.analysis.study import analyse, main_contrasts, separate_effects
from headtohead.report.answer import answer, sides
from headtohead.statistics.verdicts import EQUIVALENT, INCONCLUSIVE, WORSE
from headtohead.storage.frames import load_frames
from headtohead.storage.records import DeclaredContrast


def answered(folder, **options):
    return answer(analyse(load_frames(folder), **options))


@pytest.fixture
def study(made, tmp_path):
    def write(margin=None, late=False, **changes):
        folder = made.write_study(tmp_path, made.Study(maps=False, **changes))
        if margin:
            file = folder / "experiment.json"
            record = json.loads(file.read_text())
            since = "2026-01-01T00:00:00Z"
            record["margins"] = {record["metrics"]["primary"]: {"value": margin, "since": since, "late": late}}
            file.write_text(json.dumps(record))
        return folder

    return write


def test_the_answer_names_both_scores_of_each_effect_largest_first(quickstart):
    assert answered(quickstart) == (
        "Without positional encoding, exact match falls from 0.898 to 0.451 (95 % interval −0.452 to −0.442); with "
        "causal instead of padding-causal, it falls from 0.789 to 0.729 (−0.064 to −0.057); with rotary instead of "
        "sinusoidal, it rises from 0.898 to 0.929 (+0.029 to +0.033). These are means over the other axes. No "
        "difference in exact match could be shown with independent-heads (95 % interval −0.001 to +0.005) instead of "
        "split-heads."
    )


def test_equivalent_contrasts_are_one_sentence_with_the_margin(study):
    text = answered(study(margin=0.05, one_at_a_time=True))
    assert text.endswith(
        "The differences between sinusoidal and rotary and between split-heads and independent-heads are smaller than "
        "0.050 exact match."
    )
    assert "could be shown" not in text


@pytest.mark.slow
def test_a_margin_that_was_set_after_results_is_labelled(study):
    text = answered(study(margin=0.03, late=True))
    assert text.endswith("smaller than 0.030 exact match (margin set after results existed).")


def test_an_equivalent_average_with_large_effects_in_settings_is_stated(study):
    def score(axes, seed):
        effect = {0.003: 0.05, 0.001: -0.05}[axes["train.lr"]] * (axes["attention"] == "qk-norm")
        return 0.5 + effect + 0.001 * math.sin(seed * (3 + len(axes["attention"]) + 1000 * axes["train.lr"]))

    text = answered(study(margin=0.02, axes=QK, score=score))
    assert (
        "The average difference between split-heads and qk-norm is smaller than 0.020 exact match, but single" in text
    )
    assert "range from −0.05" in text


def test_without_factors_variants_are_compared_with_the_baseline(study):
    text = answered(study(one_at_a_time=True))
    assert text.startswith("Without positional encoding, exact match falls from 0.927 to 0.482 (95 % interval ")
    assert "over the other axes" not in text


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
    assert partial.startswith("On the finished seeds: Without positional encoding, exact match falls")


def test_a_factor_without_a_verdict_is_named(study):
    text = answered(study(states={("rotary-split-heads-causal", 1): "DIVERGED"}))
    assert text == (
        "Without positional encoding, exact match falls from 0.898 to 0.451 (95 % interval −0.452 to −0.442). These "
        "are means over the other axes. Not ranked: "
        "rotary against sinusoidal, independent-heads against split-heads and causal against padding-causal "
        "(rotary · split-heads · causal: 1 diverged of 6 seeds)."
    )


def test_equal_by_construction_is_stated_and_not_called_inconclusive(made, tmp_path):
    study = made.Study(
        axes={"masking.decoder": ["padding-causal", "causal"]}, maps=False, equal_to={"causal": "padding-causal"}
    )
    text = answered(made.write_study(tmp_path, study))
    assert text == "All variants are the same by construction."


def test_a_single_seed_gives_scores_and_no_verdict(study):
    text = answered(study(seeds=(1,), one_at_a_time=True, axes={"positional": ["sinusoidal", "rotary", "none"]}))
    scores = r"exact match is 0\.4\d\d with none against 0\.9\d\d with sinusoidal and 0\.9\d\d with rotary against"
    assert re.match(rf"Too few seeds for a test: {scores}", text)


def test_differences_without_variance_are_not_called_too_few_seeds(study):
    score = {"sinusoidal": 1.0, "none": 0.0625, "shape": 0.125}
    axes = {"positional": list(score)}
    text = answered(study(axes=axes, one_at_a_time=True, score=lambda axes, seed: score[axes["positional"]]))
    assert text == (
        "Exact match is 0.062 with none against 1.000 with sinusoidal and 0.125 with shape against 1.000 with "
        "sinusoidal; the differences are the same in every seed."
    )


def test_a_better_score_within_the_margin_is_stated(study):
    def score(axes, seed):
        return 0.5 + 0.02 * (axes["positional"] == "rotary") + 0.005 * math.sin(9.0 * seed + len(axes["positional"]))

    changes = {"axes": {"positional": ["sinusoidal", "rotary"]}, "one_at_a_time": True, "score": score}
    text = answered(study(**changes, margin=0.022))
    assert re.fullmatch(
        r"With rotary instead of sinusoidal, exact match rises .* \(95 % interval \+.*; below the margin of 0\.022\)\.",
        text,
    )
    assert "margin" not in answered(study(**changes, name="small", margin=0.01))


def test_a_single_variant_has_no_comparison(study):
    text = answered(study(axes={"positional": ["sinusoidal"]}))
    assert re.fullmatch(
        r"The experiment has a single variant and no comparison: exact match is 0\.9\d\d \(95 % interval .*\)\.", text
    )


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
    assert "rises from 0.511 to 0.621 (+0.105 to +0.116), but not in every setting (−0.089 to +0.311)" in text


QK = {"attention": ["split-heads", "qk-norm"], "train.lr": [0.003, 0.001]}


def crossing(gains, noise=0.001):
    """Return scores in which the effect of qk-norm depends on the learning rate, with noise of mean zero."""

    def score(axes, seed):
        gain = gains[axes["train.lr"]] if axes["attention"] == "qk-norm" else 0.0
        wobble = noise * (-1) ** seed * (1 + 0.1 * seed) * (axes["attention"] == "qk-norm")
        return 0.5 + 0.004 * seed + gain + wobble

    return score


def test_a_factor_with_a_better_variant_shows_no_difference_on_average(study):
    text = answered(study(axes=QK, score=crossing({0.003: 0.024, 0.001: -0.024}), seeds=range(8)))
    assert (
        "No difference on average could be shown between split-heads and qk-norm, but single settings range from "
        "−0.024 to +0.024 exact match, and 1 setting is better or worse than the baseline."
    ) in text


def test_settings_that_cancel_in_every_seed_are_not_equal(study):
    text = answered(study(axes=QK, score=crossing({0.003: 0.25, 0.001: -0.25}, noise=0.0)))
    assert text.startswith(
        "The averages of split-heads and qk-norm are equal, but single settings range from −0.250 to"
    )
    assert "equal in every seed" not in text


def test_a_factor_without_a_difference_in_any_setting_has_no_difference(study):
    text = answered(study(axes=QK, score=crossing({0.003: 0.0, 0.001: 0.0})))
    assert "No difference in exact match could be shown with qk-norm (95 % interval −" in text
    assert "single settings" not in text


def test_of_many_effects_the_largest_have_scores_and_the_others_are_named_together(study):
    text = answered(
        study(
            axes={"train.lr": [round(k / 100, 2) for k in range(1, 13)]},
            one_at_a_time=True,
            score=lambda axes, seed: 0.5 + axes["train.lr"] * (1 + 0.001 * seed),
        )
    )
    assert text.startswith("With train.lr 0.12 instead of 0.01, exact match rises from 0.510 to 0.620 (95 % interval ")
    assert text.count(" it rises from ") == 2
    assert text.endswith("; train.lr 0.09, 0.08, 0.07 and 5 more are better than 0.01 (by 0.010 to 0.080).")


def test_every_difference_of_few_effects_has_an_interval(study):
    scores = {"sinusoidal": 0.5, "rotary": 0.9, "alibi": 0.8, "learned": 0.7, "none": 0.52}
    noise = dict(zip(scores, (0, 1, 2, 4, 5), strict=True))
    text = answered(
        study(
            axes={"positional": list(scores)},
            one_at_a_time=True,
            score=lambda axes, seed: scores[axes["positional"]] + 0.001 * (seed * noise[axes["positional"]] % 7),
        )
    )
    assert text.endswith("; none (+0.024; +0.022 to +0.025) is better than sinusoidal.")


def test_a_lower_primary_metric_is_better(study):
    text = answered(study(primary="test/loss", axes={"positional": ["sinusoidal", "none"]}))
    assert (
        text == "Without positional encoding, loss rises from 0.114 to 0.519 (worse; 95 % interval +0.393 to +0.416)."
    )


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
    assert "with rotary instead of sinusoidal (match none), it rises from 0.933 to 0.959" in text
    assert re.search(
        r"ith none · split-heads instead of the baseline, (exact match|it) falls from 0\.933 to 0\.47", text
    )
    assert re.search(r"ith none · single instead of the baseline, (exact match|it) falls from 0\.933 to 0\.47", text)
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


@pytest.mark.default_cases(1)
@pytest.mark.parametrize(("score", "is_stated"), [(0.0, True), (0.01, False)])
def test_the_worst_score_in_all_runs_is_stated(tmp_path, made, score, is_stated):
    folder = made.write_study(tmp_path)
    paths = sorted(folder.glob("*/results.json"))
    for number, path in enumerate(paths):
        results = json.loads(path.read_text())
        results["metrics"]["test/exact_match"] = score if number == 0 else 0.0
        path.write_text(json.dumps(results))
        made.record_checksums(path.parent)
    statements = [fact for fact in warnings(analyse(load_frames(folder))) if "worst possible exact match" in fact]
    assert bool(statements) is is_stated
    assert not is_stated or statements[0].startswith("Every run has the worst possible exact match, 0.000")


@pytest.mark.parametrize(("score", "is_stated"), [(0.02, True), (0.05, False)])
def test_a_margin_wider_than_every_score_is_a_warning(tmp_path, made, score, is_stated):
    folder = made.write_study(tmp_path, made.Study(score=lambda axes, seed: score, maps=False))
    record = json.loads((folder / "experiment.json").read_text())
    record["margins"] = {"test/exact_match": {"value": 0.03, "since": "2026-01-01T00:00:00Z"}}
    (folder / "experiment.json").write_text(json.dumps(record))
    found = [text for text in warnings(analyse(load_frames(folder))) if "so equivalence shows nothing" in text]
    assert bool(found) is is_stated


def test_changed_code_and_pitfalls_are_warned_of_beside_the_answer(tmp_path, made):
    folder = made.write_study(tmp_path)
    record = json.loads((folder / "experiment.json").read_text())
    assert not warnings(analyse(load_frames(folder)))
    run = folder / record["runs"][0]["directory"] / "run.json"
    content = json.loads(run.read_text())
    content["plugins"][0]["source_sha256"] = "ab" * 32
    run.write_text(json.dumps(content))
    pitfall = {"name": "open future", "consequence": "worthless", "field": "masking.decoder"}
    record["variants"][1]["pitfalls"] = [pitfall]
    (folder / "experiment.json").write_text(json.dumps(record))
    analysis = analyse(load_frames(folder))
    (stale,) = warnings(analysis)
    assert stale.startswith("STALE: the source of ")
    assert stale not in facts(analysis)
    count = len(record["variants"])
    assert pitfall_line(analysis) == f"Pitfalls in 1 of {count} variants, explained below: open future."


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
    opening = "The effect of independent-heads instead of split-heads depends on model.heads: +0.002 exact match with"
    assert first.startswith(opening)
    assert re.search(r"\) and \+0\.040 with 4 \(\+0\.040 to \+0\.040\)\.$", first)
    small = answered(study(name="small", axes=axes, score=score, interactions=True, margin=0.05))
    assert small == (
        "The differences between split-heads and independent-heads and between model.heads 2 and 4 are smaller than "
        "0.050 exact match."
    )

    def opposite(axes, seed):
        return score(axes | {"attention": "split-heads"}, seed) - 0.02 * (
            (axes["attention"] == "independent-heads") != (axes["model.heads"] == 4)
        )

    single = study(name="single", axes=axes, score=score, interactions=True, seeds=(1,))
    assert "depends on" not in answered(single)

    noted = answered(study(name="opposite", axes=axes, score=opposite, interactions=True, margin=0.03))
    assert "depends on" in noted
    assert "; the margin is 0.030" in noted
    assert "the margin" not in answered(study(name="large", axes=axes, score=score, interactions=True, margin=0.03))
    assert "the effect of model.heads" not in text
    assert "rises" not in text
    assert "depends on" not in answered(
        study(name="same", axes=axes, score=lambda a, s: score(a | {"model.heads": 2}, s), interactions=True)
    )


def random_study(number):
    """Return the changes of a study with random design, seeds, effects, noise, failures and margin."""
    random = np.random.default_rng(number)
    axes = {"positional": ["sinusoidal", "rotary", "none"], "attention": ["split-heads", "qk-norm"]}
    axes |= {"model.heads": [2, 4]} if random.random() < 0.5 else {}
    axes = {name: values[: random.integers(2, 4)] for name, values in axes.items()}
    if random.random() < 0.3:
        axes = dict([next(iter(axes.items()))])
    seeds = range(int(random.choice([1, 2, 3, 6, 6, 6])))
    sizes = random.choice([0.0, 0.01, 0.03, 0.3], size=50) * random.choice([-1, 1], size=50)
    noise = random.choice([0.0, 0.002, 0.002, 0.01])
    effects = dict(zip((value for values in axes.values() for value in values[1:]), sizes, strict=False))
    crossed = random.random() < 0.4

    def score(point, seed):
        draw = np.random.default_rng([number, seed, *map(ord, "".join(map(str, point.values())))])
        effect = sum(effects.get(value, 0.0) for value in point.values())
        both = point.get("attention") == "qk-norm" and point.get("positional") == "rotary"
        return float(np.clip(0.5 + effect + 0.1 * (crossed and both) + noise * draw.normal(), 0, 1))

    slugs = [
        "-".join(map(str, [values[1], *(v[0] for v in list(axes.values())[1:])])) for values in [axes["positional"]]
    ]
    failed = {(slugs[0], 0): "DIVERGED"} if random.random() < 0.2 and len(seeds) > 1 else {}
    return {
        "axes": axes,
        "seeds": seeds,
        "score": score,
        "states": failed,
        "one_at_a_time": bool(random.random() < 0.4),
        "interactions": bool(random.random() < 0.5) and len(axes) > 1,
        "margin": float(random.choice([0.005, 0.02])) if random.random() < 0.6 else None,
        "late": bool(random.random() < 0.5),
    }


def contradictions(analysis, text):
    """Return the claims of an answer that the verdicts do not support, from the text and the contrasts alone."""
    contrasts = main_contrasts(analysis)
    named = {}
    for contrast in contrasts:
        names = sides(analysis, contrast)
        named[names.instead().partition(" ")[2]] = named[names.both()] = contrast
    found = []
    for change, verb in re.findall(r"[Ww]ith(?:out)? ([^,;.]+), (?:it|exact match) (rises|falls)", text):
        contrast = named.get(change)
        if contrast is None or not contrast.detected or (verb == "falls") != (contrast.verdict == WORSE):
            found.append(f"{change} {verb}")
    allowed = {"smaller than": (EQUIVALENT,), "could be shown": (INCONCLUSIVE,), "equal": ("identical",)}
    for sentence in re.split(r"(?<=[.;])\s", re.sub(r" \([\d.]+ % interval [^)]*\)", "", text)):
        for claim, verdicts in allowed.items():
            if claim in sentence:
                for pair, contrast in named.items():
                    if re.search(rf"(between|with) {re.escape(pair)}", sentence) and contrast.verdict not in verdicts:
                        found.append(f"{claim}: {pair}")
                if not any(contrast.verdict in verdicts for contrast in contrasts):
                    found.append(claim)
    late = any(contrast.late_margin and contrast.verdict == EQUIVALENT for contrast in contrasts)
    if late != ("margin set after results existed" in text):
        found.append("late margin")
    dependent = [contrast for contrast in contrasts if contrast.paired and separate_effects(analysis, contrast)]
    if ("he effect of " in text) != bool(dependent):
        found.append("interactions")
    unranked = any(contrast.paired is None for contrast in contrasts)
    if unranked != ("ot ranked" in text or "No a" in text):
        found.append("unranked")
    return found


@pytest.mark.default_cases(6)
@pytest.mark.parametrize("number", range(24))
def test_no_claim_of_an_answer_contradicts_the_verdicts(study, number):
    analysis = analyse(load_frames(study(**random_study(number))))
    assert contradictions(analysis, answer(analysis)) == []


def test_the_check_of_claims_finds_planted_claims(quickstart):
    analysis = analyse(load_frames(quickstart))
    text = answer(analysis)
    planted = {
        "rises from 0.898": text.replace("falls from 0.898", "rises from 0.898"),
        "smaller": text.replace(
            "No difference in exact match could be shown with", "The difference is smaller than 0.1 with"
        ),
        "inconclusive": text + " No difference in exact match could be shown with rotary instead of sinusoidal.",
        "new effect": "With independent-heads instead of split-heads, exact match rises from 0.1 to 0.2. " + text,
    }
    assert contradictions(analysis, text) == []
    for name, claim in planted.items():
        assert claim != text
        assert contradictions(analysis, claim) != [], name


def test_names_of_declared_contrasts_are_in_the_answer(study):
    frames = load_frames(study(axes={"positional": ["sinusoidal", "rotary", "none"]}, one_at_a_time=True))
    declared = (
        DeclaredContrast(name="positions matter", variant="none", against="sinusoidal"),
        DeclaredContrast(name="rotary − sinusoidal", variant="rotary", against="sinusoidal"),
    )
    record = frames.record.model_copy(update={"contrasts": declared})
    text = answer(analyse(dataclasses.replace(frames, record=record)))
    assert text.startswith("Without positional encoding (positions matter), exact match falls from ")
    assert "with rotary instead of sinusoidal, it rises" in text
