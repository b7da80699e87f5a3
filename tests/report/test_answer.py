"""The answer: a sentence per contrast, and a row per main contrast with the numbers of the analysis."""

import json
import math
import re

import numpy as np
import pytest

from headtohead.analysis.findings import rules
from headtohead.analysis.sentences import margin_note
from headtohead.analysis.study import Analysis
from headtohead.analysis.wording import ends, interval_text
from headtohead.report.answer import MAX_NAMED, MAX_SENTENCES, _largest_text, largest_first
from headtohead.report.answer import answer as sentences_of
from headtohead.report.content import Report
from headtohead.report.differences import MAX_ROWS, differences
from headtohead.report.section import table, text_lines
from headtohead.report.sections import opening_section
from headtohead.storage.frames import load_frames
from made import case_table
from made.block_oracle import expected_test, scores_of

QK = {"attention": ["split-heads", "qk-norm"], "train.lr": [0.003, 0.001]}


def answer(analysis):
    return " ".join(sentences_of(analysis))


def test_the_answer_has_a_sentence_for_each_contrast_and_rows_largest_first(quickstart):
    analysis = Analysis(load_frames(quickstart))
    rows = differences(analysis)
    numbers = [re.sub(r"[+−]?\d\.\d+", "#", text) for text in sentences_of(analysis)]
    assert numbers == [
        "Without positions, exact match worsens: # (# to #).",
        "With a causal instead of a padding and causal mask, exact match worsens: # (# to #).",
        "With rotary instead of sinusoidal, exact match improves: # (# to #).",
        "Independent instead of split heads: no difference shown, # (# to #); exact match could be up to # better or "
        "# worse.",
        "In brackets: 95 % confidence intervals, adjusted for multiple comparisons.",
    ]
    assert [row["contrast"].partition("\n")[0] for row in rows] == [
        "without positions",
        "a causal instead of a padding and causal mask",
        "rotary instead of sinusoidal",
        "independent instead of split heads",
    ]
    sentences = sentences_of(analysis)[:-1]
    for contrast, text in zip(
        largest_first(analysis, analysis.main_contrasts), sentences, strict=True
    ):
        shown = f"{interval_text(contrast)})"
        assert shown in text
        assert f"{contrast.difference_text} ({shown}" in text
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
    analysis = analysed(axes=axes, score=score, margin=0.015)
    assert answer(analysis).startswith("Without positions: no difference in exact match shown, ")
    text = " ".join(remark.text for remark in rules.find(analysis))
    (effect,) = map(float, re.findall(r"With 6 seeds, a difference of (0\.\d+) would", text))
    draws = np.random.default_rng(5).normal(effect, noise.std(ddof=1), size=(20_000, 6))
    statistics = draws.mean(axis=1) / (draws.std(axis=1, ddof=1) / math.sqrt(6))
    assert np.mean(np.abs(statistics) > 2.5706) == pytest.approx(0.8, abs=0.02)


def test_too_few_seeds_are_stated_if_no_possible_difference_is_detectable(analysed):
    axes = {"positional": ["sinusoidal", "none"]}
    analysis = analysed(
        axes=axes, score=lambda a, seed: float((a["positional"] == "none") == seed % 2)
    )
    text = "6 seeds are too few: even the largest possible difference may not be shown."
    assert [remark.text for remark in rules.find(analysis)].count(text) == 1


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
        (none, "without positions", "−0.3993", "worse"),
        (alibi, "ALiBi instead of sinusoidal", "+0.0207", "better by less than the margin"),
    ):
        judgement = judged["none" if row is none else "alibi"]
        low, high = judgement.interval.low, judgement.interval.high
        assert row == {
            "contrast": name,
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
    for contrast in analysis.main_contrasts:
        most = f" could be up to {contrast.judgement.largest_possible:.3f} "
        assert answer(analysis).count(most) == 1
    verdicts = sorted(row["verdict"] for row in differences(analysis))
    expected = sorted(f"no difference shown\ncould be up to {size:.3f} " for size in largest)
    assert [verdict[: len(expected[0])] for verdict in verdicts] == expected


def test_the_name_of_a_declared_contrast_is_unchanged_and_has_its_metric_if_they_differ(analysed):
    names = {"test/exact_match": "r − s", "test/loss": "r − s", "valid/loss": "r against baseline"}
    sides = {"variant": "rotary", "against": "sinusoidal"}
    declared = [sides | {"name": name, "metric": metric} for metric, name in names.items()]
    texts = sentences_of(analysed(axes={"positional": ["sinusoidal", "rotary"]}, declared=declared))
    assert sorted(text.partition(" improves, ")[0] for text in texts[:-1]) == [
        "R against baseline: validation loss",
        "R − s: exact match",
        "R − s: test loss",
    ]


def test_of_many_contrasts_the_largest_have_a_row(analysed):
    rates = [round(k / 100, 2) for k in range(1, 16)]
    analysis = analysed(
        axes={"train.lr": rates},
        one_at_a_time=True,
        score=lambda a, s: 0.5 + a["train.lr"] * (1 + 0.001 * s),
    )
    texts = sentences_of(analysis)
    assert len(texts) == MAX_SENTENCES
    *own, rest, brackets = texts
    assert brackets.startswith("In brackets: 95 % confidence intervals, adjusted")
    assert [text.partition(" instead")[0] for text in own] == [
        f"With learning rate {rate}" for rate in rates[:-8:-1]
    ]
    others = [f"learning rate {rate} instead of 0.01" for rate in rates[-8:0:-1]]
    assert len(others) == MAX_NAMED + 1
    assert rest == f"Smaller gains: {'; '.join(others)}."
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
    text = "With QK norm, exact match changes by less than 0.02 on average: # (# to #); # to # depending on "
    assert f"{text}learning rate." in re.sub(r"[+−]\d\.\d+", "#", answer(analysis))
    (row,) = (row for row in differences(analysis) if row["contrast"].startswith("with QK norm"))
    assert "\n−0.050 to +0.051 depending on learning rate" in row["contrast"]


def test_the_settings_with_the_other_sign_are_named_beside_a_detected_direction(analysed):
    analysis = analysed(primary="test/loss", axes=QK, score=by_rate(0.05, -0.01))
    assert "; the other sign with learning rate 0.001." in answer(analysis)
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
    assert answer(partial).startswith(
        "On the finished seeds: With rotary instead of sinusoidal, exact"
    )


def test_contrasts_without_a_test_have_the_reason(analysed):
    axes = {"positional": ["sinusoidal", "rotary", "none"], "masking": ["padding-causal", "causal"]}
    analysis = analysed(axes=axes, states={("rotary-causal", 1): "DIVERGED"})
    assert answer(analysis).startswith("Without positions, exact match worsens: −")
    reason = "not ranked: rotary, a causal mask: 1 diverged of 6 seeds"
    assert answer(analysis).count(f": no verdict ({reason}).") == 2
    reasons = [row["contrast"].partition("\n")[2] for row in differences(analysis)]
    assert reasons.count(reason) == 2


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
        (0.03, (0.02, 0.02), "so no verdict uses the margin"),
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


def near_floor(means):
    """Return a score of small variation around the mean of a variant."""

    def score(axes, seed):
        name = axes["positional"]
        return means[name] + 0.001 * ((7 * seed + len(name)) % 5)

    return score


def test_a_margin_that_no_score_reaches_is_used_by_no_verdict(analysed):
    means = {"sinusoidal": 0.01, "rotary": 0.011, "none": 0.009}
    analysis = analysed(axes={"positional": [*means]}, margin=0.03, score=near_floor(means))
    assert {contrast.judgement.margin for contrast in analysis.main_contrasts} == {None}
    assert "equivalent" not in str(differences(analysis))
    assert "smaller than the margin" not in answer(analysis)
    (warning,) = (remark.text for remark in rules.find(analysis) if remark.rule == "wide_margin")
    assert "so no verdict uses the margin" in warning
    assert not [remark for remark in rules.find(analysis) if remark.rule == "low_scores"]


def test_a_margin_is_used_where_one_side_is_above_it(analysed):
    means = {"sinusoidal": 0.01, "rotary": 0.5, "none": 0.009}
    analysis = analysed(axes={"positional": [*means]}, margin=0.03, score=near_floor(means))
    rotary, none = differences(analysis)
    assert rotary["verdict"] == "better"
    assert none["verdict"].startswith("no difference shown")
    (remark,) = (found for found in rules.find(analysis) if found.rule == "low_scores")
    assert "closer to the worst possible exact match than the margin of 0.030" in remark.text
    assert "so the margin is not used for without positions." in remark.text
    assert remark.limit == (
        "some scores are nearly the worst possible one: a loss of the margin is impossible"
    )


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
    assert " with 4 heads" not in str(differences(analysis))


def test_interactions_are_notes_beside_declared_contrasts_only(analysed):
    sides = {"variant": "independent-heads-4", "against": "split-heads-4"}
    declared = {"name": "Independent heads", **sides}
    weights = {
        f"{style}-heads-{heads}": 1.0 for style in ("independent", "split") for heads in (2, 4)
    }
    weights |= dict.fromkeys(("independent-heads-2", "split-heads-4"), -1.0)
    for contrasts, count in (([declared], 1), ([], 0)):
        analysis = analysed(axes=CROSSED, score=depends, interactions=True, declared=contrasts)
        remarks = rules.find(analysis)
        notes = [remark.text for remark in remarks if remark.rule == "few_interactions"]
        expected = expected_test(scores_of(analysis.frames, analysis.metric), weights)
        (contrast,) = analysis.families.interactions.contrasts
        interval = contrast.judgement.interval
        shown = ends(interval.low, interval.high, analysis.metric, signed=True)
        text = (
            "Independent instead of split heads and 4 instead of 2 heads do not add up: together they are better than "
            f"the sum of their effects in exact match, +{expected.mean:.3f} ({shown})."
        )
        assert expected.mean > 0
        assert notes == [text] * count


def test_an_effect_that_depends_on_another_axis_or_a_zip_is_given_by_the_values_of_its_axes(
    analysed,
):
    analysis = analysed(axes=CROSSED, score=depends, interactions=True)
    (contrast,) = (
        found for found in analysis.families.factors.contrasts if found.axis == "attention"
    )
    means = {slug: found.mean for slug, found in analysis.summaries.items()}
    effects = {
        f"{n} heads": pytest.approx(means[f"independent-heads-{n}"] - means[f"split-heads-{n}"])
        for n in (2, 4)
    }
    assert analysis.separate_effects(contrast) == effects
    file = analysis.frames.directory / "experiment.json"
    text = "+0.002 with 2 heads and +0.040 with 4 heads"
    assert (
        f"\n{text}" in differences(analysis)[0]["contrast"] + differences(analysis)[1]["contrast"]
    )
    assert f"); {text}." in answer(analysis)
    record = json.loads(file.read_text())
    for variant in record["variants"]:
        variant["axes"]["train.lr"] = 0.001 * variant["axes"]["model.heads"]
        variant["phrases"]["train.lr"] = f"learning rate 0.00{variant['axes']['model.heads']}"
    for contrast in record["contrasts"]:
        for effect in contrast.get("effects", ()):
            if effect["axis"] == "model.heads":
                effect["axis"] = "model.heads and train.lr"
    file.write_text(json.dumps(record))
    effects = "with 2 heads, learning rate 0.002 and +0.040 with 4 heads, learning rate 0.004"
    assert f"+0.002 {effects}" in answer(Analysis(load_frames(file.parent)))


MIXED = (0.3, 0.21, 0.2, 0.19, 0.18, -0.2, -0.1, -0.3, 0.0, 0.0)
"""The effects of ten learning rates, of which the last two have the worst score, as the baseline does."""


def mixed(axes, seed):
    """Return a score that differs from the baseline by the effect of the learning rate, and noise beside 0."""
    if axes["train.lr"] == 0.5:
        return 0.5 + np.random.default_rng(seed).normal(0, 0.002)
    effect = MIXED[round(axes["train.lr"] * 100) - 1]
    noise = np.random.default_rng([seed, round(axes["train.lr"] * 100)]).normal(0, 0.002)
    return 0.5 + effect + noise


@pytest.mark.parametrize("most", [3, 4, 6, 9])
def test_an_answer_has_at_most_the_number_of_sentences_with_the_largest_first(analysed, most):
    rates = [0.5, *(round(k / 100, 2) for k in range(1, len(MIXED) + 1))]
    analysis = analysed(axes={"train.lr": rates}, one_at_a_time=True, score=mixed)
    texts = sentences_of(analysis, most)
    assert len(texts) <= most
    assert texts[0].startswith("With learning rate 0.0")
    shown = largest_first(analysis, analysis.main_contrasts)[0].name
    assert shown in texts[0]
    *texts, brackets = texts
    assert brackets.startswith("In brackets: ")
    leads = [text.partition(":")[0] for text in texts if not text.startswith("With ")]
    verdicts = [lead.partition(" (")[0] for lead in leads]
    if most == 6:
        assert verdicts == ["Smaller gains", "Smaller losses", "No difference shown"]
    if most == 3:
        assert texts[1:] == ["The tables have 9 more contrasts."]


def test_contrasts_that_cannot_tell_share_a_sentence(analysed):
    rates = [round(k / 100, 2) for k in range(1, 12)]
    analysis = analysed(axes={"train.lr": rates}, one_at_a_time=True, score=lambda a, s: 0.0)
    (text,) = sentences_of(analysis, 5)
    assert text.startswith(
        "Cannot tell, because all scores are the worst or the best possible ones: "
    )
    assert text.endswith("; 4 more.")


def test_contrasts_are_ordered_by_metric_then_by_size_and_their_largest_are_of_a_metric(analysed):
    metrics = ("test/loss", "test/exact_match", "valid/loss")
    sides = {"variant": "rotary", "against": "sinusoidal"}
    declared = [sides | {"name": f"of {metric}", "metric": metric} for metric in metrics]
    other = {"variant": "none", "against": "sinusoidal", "name": "second", "metric": metrics[1]}
    axes = {"positional": ["sinusoidal", "rotary", "none"]}
    analysis = analysed(axes=axes, declared=[*declared, other])
    ordered = largest_first(analysis, analysis.main_contrasts)
    shown = [contrast.metric for contrast in ordered]
    assert shown == ["test/exact_match", "test/exact_match", "test/loss", "valid/loss"]
    first, second = (abs(contrast.paired.mean) for contrast in ordered[:2])
    assert first >= second
    text = _largest_text(analysis.main_contrasts)
    assert re.findall(r"in (exact match|test loss|validation loss)", text) == [
        "test loss",
        "exact match",
        "validation loss",
    ]


def test_a_name_with_a_preposition_inside_is_followed_by_a_colon(analysed):
    folder = analysed(axes={"positional": ["sinusoidal", "rotary"]}).frames.directory
    file = folder / "experiment.json"
    name = "rotary instead of sinusoidal"
    file.write_text(file.read_text().replace(f'"{name}"', f'"{name} with width 64"'))
    (text, _) = sentences_of(Analysis(load_frames(folder)))
    assert text.startswith("Rotary instead of sinusoidal with width 64: exact match improves, +")


MARGIN = " Differences smaller than the margin of 0.03 do not matter"


@case_table(
    ("study", "expected"),
    [
        ({"margin": 0.03}, f"{MARGIN}."),
        (
            {"margin": 0.03, "late": True},
            f"{MARGIN}; the margin was set after results existed.",
        ),
        ({}, ""),
    ],
    default=3,
)
def test_the_caption_has_the_margin_if_there_is_one(study, expected, analysed):
    analysis = analysed(axes={"positional": ["sinusoidal", "rotary", "none"]}, **study)
    assert margin_note(analysis.main_contrasts) == expected
    assert expected in opening_section(Report(analysis)).caption
