"""The answer: a sentence per verdict, and a row per main contrast with the numbers of the analysis."""

import json
import math
import re

import numpy as np
import pytest

from headtohead.analysis.findings import rules
from headtohead.analysis.study import Analysis
from headtohead.analysis.wording import ends
from headtohead.report.answer import answer
from headtohead.report.differences import MAX_ROWS, differences
from headtohead.report.section import table, text_lines
from headtohead.storage.frames import load_frames
from made import case_table
from made.block_oracle import expected_test, scores_of

QK = {"attention": ["split-heads", "qk-norm"], "train.lr": [0.003, 0.001]}


def test_the_answer_names_the_contrasts_by_verdict_and_has_rows_largest_first(quickstart):
    analysis = Analysis(load_frames(quickstart))
    text, rows = answer(analysis), differences(analysis)
    assert text.startswith(
        "Better in exact match: rotary against sinusoidal. Worse: positional none against sinusoidal; causal against "
        "padding-causal. No difference shown: independent-heads against split-heads; could be up to 0.006. With 6 "
        "seeds, a difference of 0.00"
    )
    names = [row["contrast"].split(" against ")[0] for row in rows]
    assert names == ["positional none", "causal", "rotary", "independent-heads"]
    notes = [row["contrast"].partition("\n")[2] for row in rows]
    assert ["non-embedding parameters" in note for note in notes] == [False, False, False, True]
    assert notes[3].startswith("+58 % non-embedding parameters")
    sds = [analysis.summaries[slug].sd for slug in analysis.ranked]
    (remark,) = (
        found.text for found in rules.find(analysis) if found.text.startswith("The baseline, ")
    )
    assert remark.endswith(
        f"pooled over all variants, it is {np.sqrt(np.mean(np.square(sds))):.3f}."
    )
    assert (
        f"has a mean exact match of {analysis.summaries[analysis.frames.baseline].mean:.3f}, with"
        in remark
    )


def test_the_pooled_deviation_of_several_sizes_is_that_of_the_baselines_size(analysed):
    analysis = analysed(axes={"positional": ["sinusoidal", "none"], "size": ["small", "large"]})
    (remark,) = (
        found.text for found in rules.find(analysis) if found.text.startswith("The baseline, ")
    )
    sds = [analysis.summaries[slug].sd for slug in ("sinusoidal-small", "none-small")]
    pooled = f"{np.sqrt(np.mean(np.square(sds))):.3f}"
    assert remark.endswith(f"pooled over all variants of its data and size, it is {pooled}.")


def test_a_true_difference_of_the_stated_size_is_shown_in_80_percent_of_studies(analysed):
    noise = np.array([-3, 3, -1, 1, -2, 2]) / 100
    axes = {"positional": ["sinusoidal", "none"]}
    score = lambda a, seed: 0.5011 + (a["positional"] == "none") * noise[seed - 1]  # noqa: E731
    text = answer(analysed(axes=axes, score=score, margin=0.015))
    assert text.startswith("No difference shown in exact match: positional none")
    (effect,) = map(float, re.findall(r"With 6 seeds, a difference of (0\.\d+) would", text))
    draws = np.random.default_rng(5).normal(effect, noise.std(ddof=1), size=(20_000, 6))
    statistics = draws.mean(axis=1) / (draws.std(axis=1, ddof=1) / math.sqrt(6))
    assert np.mean(np.abs(statistics) > 2.5706) == pytest.approx(0.8, abs=0.02)


def test_too_few_seeds_are_stated_if_no_possible_difference_is_detectable(analysed):
    axes = {"positional": ["sinusoidal", "none"]}
    text = answer(
        analysed(axes=axes, score=lambda a, seed: float((a["positional"] == "none") == seed % 2))
    )
    assert text.endswith(
        "6 seeds are too few: even the largest possible difference may not be shown."
    )


def test_the_rows_fit_a_terminal_and_hold_every_cell(analysed):
    rows = differences(analysed(axes=CROSSED, score=depends, interactions=True, margin=0.03))
    lines = list(text_lines(table(rows)))
    assert max(map(len, lines)) <= 80
    words = " ".join(lines).replace(",", "").split()
    assert [
        word
        for row in rows
        for cell in row.values()
        for word in cell.replace(",", "").split()
        if word not in words
    ] == []


def test_a_row_has_one_interval_the_words_that_are_read_off_it_p_and_the_seeds(analysed):
    means = {"sinusoidal": 0.5, "rotary": 0.5, "none": 0.1, "alibi": 0.52}

    def score(axes, seed):
        name = axes["positional"]
        return means[name] + 0.01 * seed + 0.003 * math.sin(7 * seed) * (name in ("none", "alibi"))

    analysis = analysed(axes={"positional": [*means]}, score=score, margin=0.0525, late=True)
    none, alibi, rotary = differences(analysis)
    judged = {contrast.variant: contrast.judgement for contrast in analysis.main_contrasts}
    for row, name, difference, words in (
        (none, "positional none", "−0.3993", "worse by more than the margin"),
        (alibi, "alibi", "+0.0207", "better by less than the margin"),
    ):
        judgement = judged[name.removeprefix("positional ")]
        low, high = judgement.interval.low, judgement.interval.high
        assert row == {
            "contrast": f"{name} against sinusoidal",
            "difference": f"{difference}\n{low:+.4f} to {high:+.4f}".replace("-", "−"),
            "verdict": f"{words}\nmargin set after results existed",
            "p": "< 0.001",
            "seeds": "6",
        }
    assert [*rotary.values()][1:] == [
        "0.0000",
        "identical\nmargin set after results existed",
        "1.000",
        "6",
    ]


def test_a_difference_that_is_not_shown_has_the_largest_that_the_interval_contains(analysed):
    axes = {"positional": ["sinusoidal", "rotary", "none"]}
    noise = np.random.default_rng(2).normal(0, 0.01, size=(3, 7))
    names = axes["positional"]
    analysis = analysed(
        axes=axes, score=lambda a, s: 0.5011 + noise[names.index(a["positional"]), s]
    )
    largest = [contrast.judgement.largest_possible for contrast in analysis.main_contrasts]
    most = f"the largest could be up to {max(largest):.3f}."
    text = f"No difference shown in exact match: {{}} against sinusoidal; {most}"
    assert text.partition("{}")[0] in answer(analysis)
    assert (
        answer(analysis)
        .partition(" against sinusoidal")[2]
        .startswith(text.partition("sinusoidal")[2])
    )
    verdicts = sorted(row["verdict"] for row in differences(analysis))
    assert verdicts == sorted(f"no difference shown\ncould be up to {size:.3f}" for size in largest)


def test_the_name_of_a_declared_contrast_is_unchanged_and_has_its_metric_if_they_differ(analysed):
    names = {"test/exact_match": "r − s", "test/loss": "r − s", "valid/loss": "r against baseline"}
    sides = {"variant": "rotary", "against": "sinusoidal"}
    declared = [sides | {"name": name, "metric": metric} for metric, name in names.items()]
    text = answer(analysed(axes={"positional": ["sinusoidal", "rotary"]}, declared=declared))
    expected = ["r against baseline (validation loss)", "r − s (exact match)", "r − s (test loss)"]
    assert sorted(text.removeprefix("Better: ").rstrip(".").split("; ")) == expected


def test_of_many_contrasts_the_largest_have_a_row(analysed):
    rates = [round(k / 100, 2) for k in range(1, 16)]
    analysis = analysed(
        axes={"train.lr": rates},
        one_at_a_time=True,
        score=lambda a, s: 0.5 + a["train.lr"] * (1 + 0.001 * s),
    )
    names = "0.15, 0.14, 0.13, 0.12, 0.11, 0.1 and 8 more"
    assert answer(analysis) == f"Better in exact match: {names} against the baseline (0.01)."
    rows = differences(analysis)
    assert len(rows) == MAX_ROWS + 1
    assert rows[-1]["contrast"] == f"{len(rates) - 1 - MAX_ROWS} more in the tables"


def by_rate(*effects):
    def score(axes, seed):
        effect = effects[QK["train.lr"].index(axes["train.lr"])] * (axes["attention"] == "qk-norm")
        return (
            0.5
            + effect
            + 0.001 * math.sin(seed * (3 + len(axes["attention"]) + 1000 * axes["train.lr"]))
        )

    return score


def test_an_equivalent_average_with_large_effects_in_settings_is_qualified(analysed):
    analysis = analysed(margin=0.02, axes=QK, score=by_rate(0.05, -0.05))
    text = "Equivalent on average within the margin of 0.020: qk-norm against split-heads (single settings range"
    assert text in answer(analysis)
    (row,) = (
        row
        for row in differences(analysis)
        if row["contrast"].startswith("qk-norm against split-heads")
    )
    assert "\nsingle settings range from −0.05" in row["contrast"]


def test_the_settings_with_the_other_sign_are_named_beside_a_detected_direction(analysed):
    analysis = analysed(primary="test/loss", axes=QK, score=by_rate(0.05, -0.01))
    assert "qk-norm against split-heads (the other sign with 0.001)" in answer(analysis)
    (contrast,) = (
        found for found in analysis.families.factors.contrasts if found.axis == "attention"
    )
    assert [
        contrast.direction,
        *(setting.judgement.direction for setting in contrast.settings),
    ] == [
        "better",
        "better",
        "worse",
    ]


def test_an_unfinished_study_has_no_answer(analysed):
    states = {(slug, 6): "PLANNED" for slug in ("sinusoidal", "rotary")}
    options = {"axes": {"positional": ["sinusoidal", "rotary"]}, "states": states}
    assert answer(analysed(**options)).startswith("No answer yet: 10 of 12 runs have a result")
    partial = analysed(**options, allow_partial=True)
    assert answer(partial).startswith("On the finished seeds: Better in exact match: rotary")


def test_contrasts_without_a_test_have_the_reason(analysed):
    axes = {"positional": ["sinusoidal", "rotary", "none"], "masking": ["padding-causal", "causal"]}
    analysis = analysed(axes=axes, states={("rotary-causal", 1): "DIVERGED"})
    assert answer(analysis).startswith(
        "Worse in exact match: positional none against sinusoidal. No verdict: "
    )
    reasons = [row["contrast"].partition("\n")[2] for row in differences(analysis)]
    assert reasons.count("not ranked: rotary · causal: 1 diverged of 6 seeds") == 2


def test_a_study_without_contrasts_states_why(analysed):
    same = {
        "axes": {"masking.decoder": ["padding-causal", "causal"]},
        "equal_to": {"causal": "padding-causal"},
    }
    assert answer(analysed(**same)) == "No answer: all variants are the same by construction."
    assert re.fullmatch(
        r"The experiment has a single variant and no comparison. Its exact match is 0\.\d+ "
        r"\(95 % interval 0\.\d+ to 0\.\d+\)\.",
        answer(analysed(axes={"positional": ["sinusoidal"]})),
    )
    for others, text in (([], "the experiment has a single variant."), (["none"], "not ranked: ")):
        analysis = analysed(
            axes={"positional": ["sinusoidal", *others]}, states={("sinusoidal", 4): "DIVERGED"}
        )
        assert answer(analysis).startswith(f"No answer: {text}")
    other = {
        "axes": {"recipe": ["a", "b"]},
        "config": lambda axes: {"data": {"dataset": axes["recipe"]}},
    }
    for changes in (other, {"axes": {"data": ["a", "b"]}}):
        assert re.fullmatch(
            r"The variants use different data sets and are not ranked; exact match of each variant: "
            r"a 0\.\d+ \(95 % [^)]*\); b 0\.\d+ \(95 % [^)]*\)\.",
            answer(analysed(**changes)),
        )


@pytest.mark.parametrize(
    ("margin", "scores", "text"),
    [
        (None, (0.0, 0.0), "worst possible exact match, 0.000, so"),
        (None, (0.01, 0.0), ""),
        (0.03, (0.02, 0.02), "so equivalence shows nothing"),
        (0.03, (0.05, 0.05), ""),
    ],
)
def test_the_worst_score_in_all_runs_and_a_margin_wider_than_every_score_are_warnings(
    analysed, margin, scores, text
):
    axes = {"positional": ["sinusoidal", "none"]}
    analysis = analysed(margin=margin, score=lambda axes, seed: scores[seed != 1], axes=axes)
    found = [remark.text for remark in rules.find(analysis) if remark.severity == "warning"]
    assert [text in warning for warning in found] == [True] * bool(text)


CROSSED = {"attention": ["split-heads", "independent-heads"], "model.heads": [2, 4]}


def depends(axes, seed):
    effect = {2: 0.002, 4: 0.04}[axes["model.heads"]] * (axes["attention"] == "independent-heads")
    return (
        0.6
        + 0.01 * seed
        + effect
        + 0.001 * math.sin(7.0 * seed + axes["model.heads"] + len(axes["attention"]))
    )


@case_table(
    "changes",
    [
        {"margin": 0.05},  # both effects are equivalent, and so is the interaction
        {"seeds": (1,)},
        {"score": lambda axes, seed: depends(axes | {"model.heads": 2}, seed)},
    ],
    default=1,
)
def test_effects_without_an_interaction_are_not_given_separately(analysed, changes):
    analysis = analysed(**{"axes": CROSSED, "score": depends, "interactions": True} | changes)
    assert "depends on" not in str(differences(analysis))


def test_interactions_are_notes_beside_declared_contrasts_only(analysed):
    sides = {"variant": "independent-heads-4", "against": "split-heads-4"}
    declared = {"name": "Independent heads", **sides}
    weights = {
        f"{style}-heads-{heads}": 1.0 for style in ("independent", "split") for heads in (2, 4)
    }
    weights |= dict.fromkeys(("independent-heads-2", "split-heads-4"), -1.0)
    for contrasts, count in (([declared], 1), ([], 0)):
        analysis = analysed(axes=CROSSED, score=depends, interactions=True, declared=contrasts)
        notes = [
            remark.text
            for remark in rules.find(analysis)
            if remark.text.startswith("Interaction, ")
        ]
        expected = expected_test(scores_of(analysis.frames, analysis.metric), weights)
        (contrast,) = analysis.families.interactions.contrasts
        interval = contrast.judgement.interval
        shown = ends(interval.low, interval.high, analysis.metric, signed=True)
        text = f": {expected.mean:+.3f} ({shown}), larger."
        assert [note.endswith(text) for note in notes] == [True] * count


def test_an_effect_that_depends_on_another_axis_or_a_zip_is_given_by_the_values_of_its_axes(
    analysed,
):
    analysis = analysed(axes=CROSSED, score=depends, interactions=True)
    (contrast,) = (
        found for found in analysis.families.factors.contrasts if found.axis == "attention"
    )
    means = {slug: found.mean for slug, found in analysis.summaries.items()}
    effects = {
        f"{n}": pytest.approx(means[f"independent-heads-{n}"] - means[f"split-heads-{n}"])
        for n in (2, 4)
    }
    assert analysis.separate_effects(contrast) == ("model.heads", effects)
    file = analysis.frames.directory / "experiment.json"
    assert "depends on model.heads: +0.002 with 2, +0.040 with 4" in str(differences(analysis))
    assert "match: independent-heads against split-heads (depends on model.heads)" in answer(
        analysis
    )
    record = json.loads(file.read_text())
    for variant in record["variants"]:
        variant["axes"]["train.lr"] = 0.001 * variant["axes"]["model.heads"]
    for contrast in record["contrasts"]:
        for effect in contrast.get("effects", ()):
            if effect["axis"] == "model.heads":
                effect["axis"] = "model.heads and train.lr"
    file.write_text(json.dumps(record))
    effects = "+0.002 with heads 2 · train.lr 0.002, +0.040 with heads 4 · train.lr 0.004"
    assert f"depends on model.heads and train.lr: {effects}" in str(
        differences(Analysis(load_frames(file.parent)))
    )
