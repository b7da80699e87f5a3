"""The answer: a sentence per verdict, and a row per main contrast with the numbers of the analysis."""

import json
import math
import re

import numpy as np
import pytest

from headtohead.analysis.study import Analysis
from headtohead.report.answer import MAX_ROWS, answer, differences
from headtohead.report.remarks import remarks
from headtohead.report.section import contrast_name, ends, table, text_lines
from headtohead.storage.frames import load_frames
from headtohead.storage.metrics import show
from made import case_table
from made.block_oracle import expected_test, scores_of

QK = {"attention": ["split-heads", "qk-norm"], "train.lr": [0.003, 0.001]}


def answered(folder, **options):
    return answer(Analysis(load_frames(folder), **options))


@pytest.fixture
def study(made, tmp_path):
    def write(margin=None, late=False, **changes):
        folder = made.write_study(tmp_path, made.Study(maps=False, **changes))
        if margin:
            record = {"value": margin, "since": "2026-01-01T00:00:00Z", "late": late}
            made.edit(folder, margins={changes.get("primary", "test/exact_match"): record})
        return folder

    return write


def test_the_answer_names_the_contrasts_by_verdict_and_has_rows_largest_first(quickstart):
    analysis = Analysis(load_frames(quickstart))
    text, rows = answer(analysis), differences(analysis)
    assert text.startswith(
        "Better in exact match: rotary against sinusoidal. Worse: positional none against sinusoidal; causal against "
        "padding-causal. No difference detected: independent-heads against split-heads. With 6 seeds, a difference "
        "of 0.00"
    )
    names = [row["contrast"].split(" against ")[0] for row in rows]
    assert names == ["positional none", "causal", "rotary", "independent-heads"]
    for planted in (("−0.447", "+0.447"), ("98.75 %", "95 %")):
        changed = [{name: cell.replace(*planted) for name, cell in row.items()} for row in rows]
        assert contradictions(analysis, changed) != []


def test_a_true_difference_of_the_stated_size_is_detected_in_80_percent_of_studies(study):
    noise = np.array([-3, 3, -1, 1, -2, 2]) / 100
    axes = {"positional": ["sinusoidal", "none"]}
    text = answered(study(axes=axes, score=lambda a, seed: 0.5 + (a["positional"] == "none") * noise[seed - 1]))
    (effect,) = map(float, re.findall(r"With 6 seeds, a difference of (0\.\d+) or more", text))
    draws = np.random.default_rng(5).normal(effect, noise.std(ddof=1), size=(20_000, 6))
    statistics = draws.mean(axis=1) / (draws.std(axis=1, ddof=1) / math.sqrt(6))
    assert np.mean(np.abs(statistics) > 2.5706) == pytest.approx(0.8, abs=0.02)


def test_the_rows_fit_a_terminal_and_hold_every_cell(study):
    axes = {"attention": ["split-heads", "independent-heads"], "model.heads": [2, 4]}
    analysis = Analysis(load_frames(study(axes=axes, score=depends, interactions=True, margin=0.03)))
    rows = differences(analysis)
    lines = list(text_lines(table(rows)))
    assert max(map(len, lines)) <= 80
    words = " ".join(lines).split()
    assert [word for row in rows for cell in row.values() for word in cell.split() if word not in words] == []


def test_the_intervals_of_a_single_contrast_have_their_level(study):
    analysis = Analysis(load_frames(study(primary="test/loss", axes={"positional": ["sinusoidal", "none"]})))
    assert answer(analysis) == "Worse in loss: positional none against sinusoidal."
    (row,) = differences(analysis)
    assert row["difference"].startswith("+0.40")
    assert row["direction"].startswith("worse\n95 %: 0.")


def test_of_many_contrasts_the_largest_have_a_row(study):
    rates = [round(k / 100, 2) for k in range(1, 16)]
    folder = study(
        axes={"train.lr": rates}, one_at_a_time=True, score=lambda a, s: 0.5 + a["train.lr"] * (1 + 0.001 * s)
    )
    names = "0.15, 0.14, 0.13, 0.12, 0.11, 0.1 and 8 more"
    assert answered(folder) == f"Better in exact match: {names} against the baseline (0.01)."
    rows = differences(Analysis(load_frames(folder)))
    assert len(rows) == MAX_ROWS + 1
    assert rows[-1]["contrast"] == f"{len(rates) - 1 - MAX_ROWS} more in the tables"


def test_an_equivalent_average_with_large_effects_in_settings_is_qualified(study):
    def score(axes, seed):
        effect = {0.003: 0.05, 0.001: -0.05}[axes["train.lr"]] * (axes["attention"] == "qk-norm")
        return 0.5 + effect + 0.001 * math.sin(seed * (3 + len(axes["attention"]) + 1000 * axes["train.lr"]))

    analysis = Analysis(load_frames(study(margin=0.02, axes=QK, score=score)))
    text = "Equivalent on average, within the margin of 0.020: qk-norm against split-heads (single settings range"
    assert text in answer(analysis)
    (row,) = (row for row in differences(analysis) if row["contrast"].startswith("qk-norm against split-heads"))
    assert "\nsingle settings range from −0.05" in row["contrast"]


def test_an_unfinished_study_has_no_answer(study):
    states = {(slug, 6): "PLANNED" for slug in ("sinusoidal", "rotary")}
    folder = study(axes={"positional": ["sinusoidal", "rotary"]}, states=states)
    assert answered(folder).startswith("No answer yet: 10 of 12 runs have a result")
    assert answered(folder, allow_partial=True).startswith("On the finished seeds: Better in exact match: rotary")


def test_contrasts_without_a_test_have_the_reason(study):
    axes = {"positional": ["sinusoidal", "rotary", "none"], "masking": ["padding-causal", "causal"]}
    analysis = Analysis(load_frames(study(axes=axes, states={("rotary-causal", 1): "DIVERGED"})))
    assert answer(analysis).startswith("Worse in exact match: positional none against sinusoidal. No verdict: ")
    reasons = [row["contrast"].partition("\n")[2] for row in differences(analysis)]
    assert reasons.count("not ranked: rotary · causal: 1 diverged of 6 seeds") == 2


def test_a_study_without_contrasts_states_why(study):
    same = study(
        name="same", axes={"masking.decoder": ["padding-causal", "causal"]}, equal_to={"causal": "padding-causal"}
    )
    assert answered(same) == "No answer: all variants are the same by construction."
    single = study(name="single", axes={"positional": ["sinusoidal"]})
    assert re.fullmatch(
        r"The experiment has a single variant and no comparison: exact match of sinusoidal 0\.\d+ "
        r"\(95 % interval 0\.\d+ to 0\.\d+\)\.",
        answered(single),
    )
    failed = study(name="failed", axes={"positional": ["sinusoidal"]}, states={("sinusoidal", 4): "DIVERGED"})
    assert answered(failed) == "No answer: the experiment has a single variant."
    axes = {"positional": ["sinusoidal", "none"]}
    diverged = study(name="diverged", axes=axes, states={("sinusoidal", 4): "DIVERGED"})
    assert answered(diverged).startswith("No answer: not ranked: ")
    other = {"axes": {"recipe": ["a", "b"]}, "config": lambda axes: {"data": {"dataset": axes["recipe"]}}}
    for name, changes in (("other", other), ("data", {"axes": {"data": ["a", "b"]}})):
        assert re.fullmatch(
            r"The variants use different data sets and are not ranked; exact match of each variant: "
            r"a 0\.\d+ \(95 % [^)]*\); b 0\.\d+ \(95 % [^)]*\)\.",
            answered(study(name=name, **changes)),
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
def test_the_worst_score_in_all_runs_and_a_margin_wider_than_every_score_are_warnings(study, margin, scores, text):
    axes = {"positional": ["sinusoidal", "none"]}
    folder = study(margin=margin, score=lambda axes, seed: scores[seed != 1], axes=axes)
    found = [remark.text for remark in remarks(Analysis(load_frames(folder))) if remark.severity == "warning"]
    assert [text in warning for warning in found] == [True] * bool(text)


def test_pitfalls_are_a_caution(study, made):
    folder = study(axes={"positional": ["sinusoidal", "none"]})
    variants = json.loads((folder / "experiment.json").read_text())["variants"]
    variants[1]["pitfalls"] = [{"name": "open future", "consequence": "worthless", "field": "masking.decoder"}]
    made.edit(folder, variants=variants)
    (found,) = [remark for remark in remarks(Analysis(load_frames(folder))) if "open future" in remark.text]
    assert found.severity == "caution"


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
    analysis = Analysis(load_frames(folder))
    effects = {n: np.subtract(HEADS["independent-heads", n], HEADS["split-heads", n]) / 300 for n in (2, 4)}
    (interaction,) = analysis.families.interactions.contrasts
    scores = scores_of(analysis.frames, analysis.metric)
    slug = {
        key: name for name, row in scores.items() for key, own in HEADS.items() if np.allclose(np.array(own) / 300, row)
    }
    signs = {slug[style, n]: (-1) ** (n == 2) * (-1) ** (style == "split-heads") for style, n in HEADS}
    assert interaction.judgement.holm_p == pytest.approx(expected_test(scores, signs).p)
    assert interaction.direction_name == "significant"
    (contrast,) = (found for found in analysis.families.factors.contrasts if found.axis == "attention")
    separate = analysis.separate_effects(contrast)
    assert separate.other_axis == "model.heads"
    text = str(differences(analysis))
    for heads, effect in effects.items():
        found = separate.effects[str(heads)]
        weights = {slug["independent-heads", heads]: 1, slug["split-heads", heads]: -1}
        assert (found.mean, found.error) == pytest.approx(expected_test(scores, weights)[:2])
        assert f"{effect.mean():+.3f}".replace("-", "−") in text


CROSSED = {"attention": ["split-heads", "independent-heads"], "model.heads": [2, 4]}


def depends(axes, seed):
    effect = {2: 0.002, 4: 0.04}[axes["model.heads"]] * (axes["attention"] == "independent-heads")
    return 0.6 + 0.01 * seed + effect + 0.001 * math.sin(7.0 * seed + axes["model.heads"] + len(axes["attention"]))


@case_table(
    "changes",
    [
        {"margin": 0.05},  # both effects are equivalent, and so is the interaction
        {"seeds": (1,)},
        {"score": lambda axes, seed: depends(axes | {"model.heads": 2}, seed)},
    ],
    default=1,
)
def test_effects_without_an_interaction_are_not_given_separately(study, changes):
    folder = study(**{"axes": CROSSED, "score": depends, "interactions": True} | changes)
    assert "depends on" not in str(differences(Analysis(load_frames(folder))))


def test_an_effect_that_depends_on_another_axis_or_a_zip_is_given_by_the_values_of_its_axes(study):
    file = study(axes=CROSSED, score=depends, interactions=True) / "experiment.json"
    rows = str(differences(Analysis(load_frames(file.parent))))
    assert "depends on model.heads: +0.002 with 2, +0.040 with 4" in rows
    assert "match: independent-heads against split-heads (depends on model.heads)" in answered(file.parent)
    record = json.loads(file.read_text())
    for variant in record["variants"]:
        variant["axes"]["train.lr"] = 0.001 * variant["axes"]["model.heads"]
    for contrast in record["contrasts"]:
        for axis in ("axis", "other_axis"):
            if contrast.get(axis) == "model.heads":
                contrast[axis] = "model.heads and train.lr"
    file.write_text(json.dumps(record))
    effects = "+0.002 with heads 2 · train.lr 0.002, +0.040 with heads 4 · train.lr 0.004"
    assert f"depends on model.heads and train.lr: {effects}" in str(differences(Analysis(load_frames(file.parent))))


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


def contradictions(analysis, rows):
    """Return the contrasts whose row does not have the numbers and the verdict of the analysis."""
    found, by_name = [], {row["contrast"].split("\n")[0]: [*row.values()] for row in rows}
    for contrast in analysis.main_contrasts if rows else ():
        name = contrast_name(analysis, contrast)
        if name not in by_name:
            found += [name] if len(analysis.main_contrasts) <= MAX_ROWS else []
            continue
        (notes, mean, direction, *sizes), judgement = by_name[name], contrast.judgement
        test, paired = judgement.size_test, contrast.paired
        expected = [show(paired.mean if paired else None, contrast.metric, signed=True), contrast.direction_name]
        cells = [mean, direction.split("\n")[0]]
        for own, cell in ((judgement.interval, direction), *((test and test.interval, size) for size in sizes)):
            if own and contrast.direction != "identical" and cell != "–":
                expected.append(f"{own.percent}: {ends(own.low, own.high, contrast.metric)}")
                cells.append(cell.split("\n")[-1])
        if sizes:
            expected.append(contrast.size or "–")
            cells.append(sizes[0].split("\n")[0])
        if judgement.interval and contrast.detected and judgement.interval.low * judgement.interval.high <= 0:
            found.append(f"{name}: interval")
        if contrast.size and ("set after results" in notes) != contrast.late_margin:
            found.append(f"{name}: late margin")
        if ("depends on" in notes) != (paired is not None and analysis.separate_effects(contrast) is not None):
            found.append(f"{name}: settings")
        found += [name] if cells != expected else []
    return found


@case_table("number", range(8), default=3)
def test_no_row_contradicts_the_analysis(study, number):
    analysis = Analysis(load_frames(study(**random_study(number))))
    rows = differences(analysis)
    assert contradictions(analysis, rows) == []
    planted = [row | {"direction": row["direction"].replace("worse", "better")} for row in rows]
    assert (contradictions(analysis, planted) != []) == (planted != rows)
