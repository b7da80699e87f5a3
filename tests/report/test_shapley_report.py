"""Reports of Shapley paths: the answer, the table, the figure, and the permutations that were not evaluated."""

import csv
import hashlib
import re
import xml.etree.ElementTree as ET

import pytest

from headtohead.analysis.study import analyse
from headtohead.report.answer import answer
from headtohead.report.blocks import VerdictLabel
from headtohead.report.shapley import (
    choice_table,
    inconclusive_choices,
    inseparable_choices,
    joint_effects,
    path_blocks,
    permutation_facts,
)
from headtohead.report.writing import write_report
from headtohead.storage.frames import load_frames

FOUR = ("model.norm", "model.activation", "model.bias", "train.lr")
EFFECTS = {"model.norm": 0.25, "model.activation": -0.05, "model.bias": 0.03, "train.lr": 0.0}


def wobble(applied, seed):
    """Return a number within ±1 that depends on its arguments only."""
    digest = hashlib.sha256(f"{sorted(applied)} {seed}".encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**31 - 1


def additive(applied, seed):
    noise = 0.002 * wobble(applied, seed)
    return 0.5 + 0.01 * seed + sum(EFFECTS[name] for name in applied) + noise


@pytest.fixture
def study(paths, cache, tmp_path):
    def study(names=FOUR, score=additive, seeds=(1, 2, 3, 4, 5, 6), **changes):
        made = paths.PathStudy(names, score, seeds=seeds, **changes)
        return paths.write_path(tmp_path / "runs", made, cache)

    return study


def choices(analysis):
    """Return the rows of the table of choices, without the total difference, as cells by column."""
    table = choice_table(analysis.path)
    headings = [column.heading for column in table.columns]
    return [dict(zip(headings, row.cells, strict=False)) for row in table.rows if not row.emphasised]


def answered(folder, **options):
    return answer(analyse(load_frames(folder), **options))


# the answer


def test_the_answer_names_the_choice_that_accounts_for_most_with_its_interval(study):
    text = answered(study())
    assert re.match(
        r"From start to end validation token accuracy changes by \+0\.2\d\d \(95 % interval "
        r"\+0\.2\d\d to \+0\.2\d\d\); model\.norm \(pre → post\) accounts for more than all of it: "
        r"\+0\.2\d\d \(95 % interval \+0\.2\d\d to \+0\.2\d\d\)\. Also detected: model\.activation −0\.0[45]\d "
        r"\(95 % interval −0\.0\d\d to −0\.0\d\d\), "
        r"model\.bias \+0\.0\d\d ",
        text,
    )
    assert text.endswith(". Inconclusive: train.lr.")


@pytest.mark.slow
def test_a_choice_with_less_than_half_is_called_the_largest_part(study):
    effects = dict(zip(FOUR, (0.1, 0.09, 0.08, 0.0), strict=True))

    def score(applied, seed):
        return 0.3 + sum(effects[name] for name in applied) + 0.002 * wobble(applied, seed)

    text = answered(study(score=score))
    assert "model.norm (pre → post) accounts for the largest part of it: +0." in text


@pytest.mark.slow
def test_a_value_against_the_total_difference_does_not_account_for_it(study):
    effects = dict(zip(FOUR, (-0.3, 0.4, 0.02, 0.0), strict=True))

    def score(applied, seed):
        return 0.4 + sum(effects[name] for name in applied) + 0.002 * wobble(applied, seed)

    text = answered(study(score=score))
    assert "model.activation (relu → gelu) accounts for more than all of it: +0.4" in text
    assert "Also detected: model.norm −0.3" in text


@pytest.mark.slow
def test_values_that_cancel_are_named_if_the_ends_have_equal_scores(study):
    effects = dict(zip(FOUR, (-0.3, 0.3, 0.0, 0.0), strict=True))

    def score(applied, seed):
        return 0.4 + sum(effects[name] for name in applied) + 0.002 * wobble(applied, seed)

    text = answered(study(score=score))
    assert text.startswith("The difference between start and end in validation token accuracy is inconclusive, ")
    assert "has the largest detected Shapley value: " in text
    assert "accounts for" not in text


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1, -1])
def test_more_than_all_needs_an_interval_beyond_the_difference_in_both_directions(study, sign):
    """The mean value 0.32 exceeds the difference 0.3, but its interval does not."""
    effects = dict(zip(FOUR, (0.32, -0.02, 0.0, 0.0), strict=True))

    def score(applied, seed):
        change = sum(effects[name] for name in applied) + 0.08 * wobble(applied, seed)
        return 0.5 + sign * change

    text = answered(study(score=score))
    assert "accounts for most of it" in text
    assert "more than all" not in text


def test_more_than_all_requires_an_excess_over_the_difference_in_the_same_seeds(study):
    """The interval of the first value is above the mean difference, but the difference varies over seeds."""
    by_seed = {1: 0.10, 2: -0.10, 3: 0.10, 4: -0.12, 5: 0.02, 6: 0.0}

    def score(applied, seed):
        other = (by_seed[seed] - 0.05) * ("model.activation" in applied)
        return 0.4 + 0.3 * ("model.norm" in applied) + other + 0.002 * wobble(applied, seed)

    analysis = analyse(load_frames(study(names=FOUR[:3], score=score)))
    path = analysis.path
    first = next(value for value in path.values if value.name == "model.norm")
    assert first.sampled.low > path.total.paired.mean > 0
    text = answer(analysis)
    assert "model.norm (pre → post) accounts for most of it" in text
    assert "more than all" not in text


@pytest.mark.slow
def test_inconclusive_values_of_all_choices_are_a_single_sentence(study):
    text = answered(study(score=lambda applied, seed: 0.5 + 0.02 * wobble(applied, seed)))
    assert text.endswith(". No choice has a detected effect.")


def test_many_inconclusive_choices_are_counted(study, monkeypatch):
    monkeypatch.setattr("headtohead.report.shapley.MOST_NAMES", 2)
    text = answered(
        study(score=lambda applied, seed: 0.5 + 0.3 * ("model.norm" in applied) + 0.02 * wobble(applied, seed))
    )
    assert text.endswith(". 3 other choices are inconclusive.")


@pytest.mark.slow
def test_a_choice_with_opposite_effects_is_inconclusive_on_average(study):
    def score(applied, seed):
        effect = 0.1 if "model.norm" in applied else -0.1
        return 0.5 + effect * ("train.lr" in applied) + 0.002 * wobble(applied, seed)

    analysis = analyse(load_frames(study(score=score)))
    text = answer(analysis)
    assert "Inconclusive on average, with a detected change in single permutations: train.lr." in text
    assert not re.search(r"Inconclusive: [^.]*train\.lr", text)
    assert "train.lr" not in (inconclusive_choices(analysis.path) or "")


FIVE = (*FOUR, "model.init")


def only_together(applied, seed):
    together = 0.4 * ({"model.norm", "train.lr"} <= applied)
    return 0.3 + together + 0.05 * ("model.bias" in applied) + 0.004 * wobble(applied, seed)


def test_choices_that_work_only_together_are_named_as_a_group(study):
    analysis = analyse(load_frames(study(names=FIVE, score=only_together)))
    text = answer(analysis)
    assert re.search(
        r"; model\.norm \(pre → post\) and train\.lr \(0\.001 → 0\.002\), which work only together, account for most "
        r"of it: \+0\.[34]\d\d \(95 % interval \+0\.3\d\d to \+0\.4\d\d\)\. Also detected: model\.bias ",
        text,
    )
    sentences = " ".join(joint_effects(analysis.path))
    assert re.search(
        r"model\.norm and train\.lr work only together: their joint effect is \+0\.[34]\d\d \(95 % interval [^)]*\)\. "
        r"In single permutations the first of them changes validation token accuracy by [+−]?0\.00\d to [+−]?0\.00\d, "
        r"and the last by \+0\.[34]\d\d to \+0\.4\d\d\.",
        sentences,
    )
    assert "(Bonferroni over 10 pairs)" in sentences
    *_, group = choices(analysis)
    assert (group["choice"].text, group["choice"].notes[0].text) == (
        "model.norm and train.lr",
        "together, sum of the rows above",
    )


def test_an_additive_study_has_no_group(study):
    path = analyse(load_frames(study())).path
    assert joint_effects(path) == ["No pair of choices has a detected effect beyond the sum of their single effects."]


@pytest.mark.slow
def test_a_study_with_too_few_permutations_states_how_many_it_needs(study):
    def score(applied, seed):
        return 0.3 + 0.4 * (set(FIVE[:3]) <= applied) + 0.004 * wobble(applied, seed)

    analysis = analyse(load_frames(study(names=FIVE, score=score)))
    _, needed, *_ = permutation_facts(analysis, analysis.path)
    found = re.fullmatch(
        r"Intervals of at most ± 0\.0[34]\d \(10 % of the total difference\) need more permutations than the 8 of this "
        r"path: .*about (\d+) for model\.norm.*\.",
        needed,
    )
    assert found
    assert 8 < int(found[1]) <= 120


def test_equal_scores_everywhere_are_stated(study):
    text = answered(study(score=lambda applied, seed: 0.125 * seed))
    assert text == (
        "Start and end have the same validation token accuracy. Without any effect: model.norm, model.activation, "
        "model.bias and train.lr."
    )


def test_a_single_seed_has_no_test(study):
    text = answered(study(seeds=(1,)))
    assert "one seed; model.norm has the largest Shapley value, +0.25" in text
    assert text.endswith("which a single seed cannot test.")


def test_an_incomplete_path_has_no_answer_yet(study):
    states = {("from", 6): "PLANNED", ("to", 6): "PLANNED"}
    folder = study(states=states)
    assert answered(folder).startswith("No answer yet: 9")
    partial = answered(folder, allow_partial=True)
    assert partial.startswith("On the finished seeds: From start to end ")


@pytest.mark.slow
def test_choices_around_a_coalition_without_a_result_are_not_tested(study):
    text = answered(study(states={("to-minus-model.bias", 2): "DIVERGED"}))
    assert text.startswith("From start to end validation token accuracy changes by +0.2")
    assert ". Inconclusive: train.lr. " in text
    assert " Not tested: model.norm, model.activation and model.bias (not ranked: " in text
    assert text.endswith("to − model.bias: 1 diverged of 6 seeds).")


# the section


def test_the_table_has_a_row_per_choice_largest_first(study):
    analysis = analyse(load_frames(study()))
    rows = choices(analysis)
    assert [row["choice"].text for row in rows] == ["model.norm", "model.activation", "model.bias", "train.lr"]
    first = rows[0]
    assert (first["choice"].notes[0].text, first["verdict"].text) == ("pre → post", VerdictLabel("better", "better"))
    assert re.fullmatch(r"\+0\.2\d\d", first["Shapley\nvalue"].text)
    assert re.fullmatch(r"0\.2\d\d to 0\.2\d\d", first["Shapley\nvalue"].notes[0].text)
    assert inconclusive_choices(analysis.path) == "No detected effect: train.lr."


def test_the_number_of_evaluated_permutations_is_stated(study):
    analysis = analyse(load_frames(study()))
    sentences = permutation_facts(analysis, analysis.path)
    assert sentences[0].startswith("8 of 24 permutations were evaluated, sampled at random (seed 1)")
    assert "The interval and the verdict include seeds and permutations" in sentences[0]
    assert re.fullmatch(r"All intervals are at most ± 0\.02\d \(10 % of the total difference\) wide; .*", sentences[1])
    trained = len(analysis.frames.by_slug)
    assert sentences[2] == f"4 choices have 16 coalitions; {trained} of them are part of this study."


def test_values_over_all_permutations_are_exact(study):
    analysis = analyse(load_frames(study(names=FOUR[:3])))
    assert permutation_facts(analysis, analysis.path)[0] == (
        "All 6 permutations of the 3 choices were evaluated: the Shapley values of these runs are exact."
    )


def test_inseparable_choices_are_listed(study):
    group = {"model.norm", "model.bias"}
    folder = study(is_incompatible=lambda applied: len(applied & group) == 1)
    analysis = analyse(load_frames(folder))
    inseparable = inseparable_choices(analysis.path)
    assert inseparable[:2] == [
        "model.norm is incompatible when applied alone to start: these are inseparable; it requires model.bias.",
        "model.norm is incompatible when removed alone from end: these are inseparable; it requires model.bias.",
    ]
    groups = [line for line in inseparable if "were applied as a group in" in line]
    assert groups
    assert all("of 8 permutations, because they are incompatible separately there" in line for line in groups)
    assert "model.norm with model.bias" in [row["choice"].text for row in choices(analysis)]
    assert "sampled permutations contain an incompatible coalition" in " ".join(
        permutation_facts(analysis, analysis.path)
    )


def test_the_remainder_of_the_known_values_is_a_row(study):
    *rows, remainder = choices(analyse(load_frames(study(states={("from-plus-model.norm", 2): "DIVERGED"}))))
    unknown = [row for row in rows if row["Shapley\nvalue"].text == "–"]
    assert unknown
    assert all("1 diverged of 6 seeds" in row["verdict"].notes[0].text for row in unknown)
    assert remainder["choice"].text == "not tested"
    assert re.fullmatch(r"[+−]0\.\d+", remainder["Shapley\nvalue"].text)


def test_an_experiment_without_a_path_has_no_section(quickstart):
    assert path_blocks(analyse(load_frames(quickstart))) == []


# the pages


@pytest.fixture(scope="module")
def written(paths, cache, tmp_path_factory):
    """The additive study; no test changes it."""
    made = paths.PathStudy(FOUR, additive, seeds=(1, 2, 3, 4, 5, 6))
    return paths.write_path(tmp_path_factory.mktemp("runs"), made, cache)


@pytest.fixture(scope="module")
def report(written, tmp_path_factory):
    return write_report(written, tmp_path_factory.mktemp("reports"))


def test_a_path_report_has_a_waterfall_and_shows_every_choice_on_both_pages(report):
    assert {path.stem for path in (report.folder / "figures").glob("*.svg")} >= {"waterfall", "contrasts", "scores"}
    page = report.html.read_text(encoding="utf-8")
    text = report.markdown.read_text(encoding="utf-8")
    assert 'id="path"' in page
    assert "## Choice by choice" in text
    assert "![the total difference, choice by choice](figures/waterfall.svg)" in text
    for name in FOUR:
        assert name in page
        assert f"| {name} (" in text
    for expected in ("8 of 24 permutations were evaluated", "total difference", "No detected effect"):
        assert expected in page
        assert expected in text


def test_the_table_of_variants_lists_only_the_ends_and_links_the_other_coalitions(report):
    text = report.markdown.read_text(encoding="utf-8")
    table = text[text.index("## Variants") :]
    assert "| **from start** |" in table
    assert "| to end |" in table
    assert "permutation 1 step" not in table.split("## Runs")[0]
    assert re.search(r"The ends of the path; \d+ other coalitions are in \[results.csv\]", table)


def test_only_the_ends_have_a_verdict_in_the_table_of_runs(report):
    with report.csv.open(encoding="utf-8", newline="") as file:
        verdicts = {(row["title"], row["verdict"]) for row in csv.DictReader(file)}
    named = {title: verdict for title, verdict in verdicts if verdict}
    assert named == {"from start": "baseline", "to end": "better"}
    assert len(verdicts) > 2


def test_the_waterfall_leads_from_one_end_to_the_other(report):
    svg = (report.folder / "figures" / "waterfall.svg").read_text(encoding="utf-8")
    root = ET.fromstring(svg)
    labels = ["".join(element.itertext()).strip() for element in root.iter() if element.tag.endswith("text")]
    rows = [word for word in labels if word in (*FOUR, "start", "end")]
    assert rows == ["start", "model.norm", "model.activation", "model.bias", "train.lr", "end"]
    assert any(re.fullmatch(r"\+0\.2\d\d\s+better", word) for word in labels)
    assert any("inconclusive" in word for word in labels)


@pytest.mark.slow
def test_a_report_of_a_path_is_deterministic(written, report, tmp_path):
    again = write_report(written, tmp_path)
    for name in ("index.html", "report.md", "figures/waterfall.svg"):
        assert (report.folder / name).read_bytes() == (again.folder / name).read_bytes()
