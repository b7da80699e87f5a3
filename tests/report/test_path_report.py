"""Reports of paths: the sentence, the table, the figure, and what was not sampled."""

import hashlib
import re
import xml.etree.ElementTree as ET

import pytest

from headtohead.analysis.study import analyse
from headtohead.report import write_report
from headtohead.report.answer import answer
from headtohead.report.blocks import VerdictLabel
from headtohead.report.shapley import choice_table, inseparable_choices, path_blocks, sampled_orders, undetected_choices
from headtohead.storage.frames import load_frames

FOUR = ("model.norm", "model.activation", "model.bias", "train.lr")
EFFECTS = {"model.norm": 0.25, "model.activation": -0.05, "model.bias": 0.03, "train.lr": 0.0}


def wobble(applied, seed):
    """Return a number within ±1 that depends on nothing but its arguments."""
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
    """The rows of the table of choices, without the whole distance, as cells by column."""
    table = choice_table(analysis.path)
    headings = [column.heading for column in table.columns]
    return [dict(zip(headings, row.cells, strict=False)) for row in table.rows if not row.emphasised]


def answered(folder, **options):
    return answer(analyse(load_frames(folder), **options))


# the answer


def test_the_answer_says_who_accounts_for_most_with_its_interval(study):
    text = answered(study())
    assert re.match(
        r"From start to end validation token accuracy changes by \+0\.2\d\d \(95 % interval "
        r"\+0\.2\d\d to \+0\.2\d\d\); model\.norm \(pre → post\) accounts for most of it, "
        r"\+0\.2\d\d \(95 % interval \+0\.2\d\d to \+0\.2\d\d\), \+0\.2\d\d to \+0\.2\d\d "
        r"in single orders; also detected: model\.activation −0\.0[45]\d "
        r"\(95 % interval −0\.0\d\d to −0\.0\d\d\), "
        r"model\.bias \+0\.0\d\d ",
        text,
    )
    assert "; no difference detected for train.lr (could have seen ≥ 0.00" in text
    assert text.endswith(").")
    assert ". " not in text


def test_less_than_half_is_the_largest_part_and_not_most(study):
    shares = dict(zip(FOUR, (0.1, 0.09, 0.08, 0.0), strict=True))

    def score(applied, seed):
        return 0.3 + sum(shares[name] for name in applied) + 0.002 * wobble(applied, seed)

    text = answered(study(score=score))
    assert "model.norm (pre → post) accounts for the largest part of it, +0." in text


def test_what_goes_against_the_distance_does_not_account_for_it(study):
    shares = dict(zip(FOUR, (-0.3, 0.4, 0.02, 0.0), strict=True))

    def score(applied, seed):
        return 0.3 + sum(shares[name] for name in applied) + 0.002 * wobble(applied, seed)

    text = answered(study(score=score))
    assert "model.activation (relu → gelu) accounts for most of it, +0.4" in text
    assert "also detected: model.norm −0.3" in text


def test_shares_that_cancel_are_named_where_the_ends_score_alike(study):
    shares = dict(zip(FOUR, (-0.3, 0.3, 0.0, 0.0), strict=True))

    def score(applied, seed):
        return 0.4 + sum(shares[name] for name in applied) + 0.002 * wobble(applied, seed)

    text = answered(study(score=score))
    assert text.startswith("Between start and end no difference detected (could have seen ≥ 0.0")
    assert "has the largest share, " in text
    assert "accounts for" not in text


def test_nothing_detected_is_said_of_all_choices_at_once(study):
    text = answered(study(score=lambda applied, seed: 0.5 + 0.02 * wobble(applied, seed)))
    assert "; no choice made a detectable difference (could have seen ≥ 0.0" in text


def test_undetected_choices_are_told_with_the_range_of_what_the_table_prints(study):
    analysis = analyse(load_frames(study(score=lambda a, seed: 0.5 + 0.02 * wobble(a, seed))))
    printed = [
        float(re.search(r"could have seen ≥ ([\d.]+)\)$", row["verdict"].text.text)[1]) for row in choices(analysis)
    ]
    assert len(set(printed)) > 1
    told = f"(could have seen ≥ {min(printed):.3f} to {max(printed):.3f})"
    assert f"; no choice made a detectable difference {told}" in answer(analysis)


def test_a_choice_that_turns_between_orders_is_not_said_to_make_no_difference(study):
    def score(applied, seed):
        turned = 0.1 if "model.norm" in applied else -0.1
        return 0.5 + turned * ("train.lr" in applied) + 0.002 * wobble(applied, seed)

    analysis = analyse(load_frames(study(score=score)))
    text = answer(analysis)
    assert re.search(
        r"; inconclusive on average: train\.lr, −0\.\d+ to \+0\.\d+ in single orders "
        r"\(could have seen ≥ 0\.\d+\)",
        text,
    )
    assert not re.search(r"no difference detected for [^(;]*train\.lr", text)
    assert "train.lr" not in (undetected_choices(analysis.path) or "")


def test_scores_that_are_equal_everywhere_are_called_so(study):
    text = answered(study(score=lambda applied, seed: 0.125 * seed))
    assert text == (
        "Start and end have the same validation token accuracy; model.norm, model.activation, "
        "model.bias and train.lr changed no score."
    )


def test_one_seed_is_told_without_a_test(study):
    text = answered(study(seeds=(1,)))
    assert "one seed; the largest share is model.norm's, +0.25" in text
    assert text.endswith("one seed cannot tell it from chance.")


def test_an_unfinished_path_has_no_answer_yet(study):
    states = {("from", 6): "PLANNED", ("to", 6): "PLANNED"}
    folder = study(states=states)
    assert answered(folder).startswith("No answer yet: 9")
    partial = answered(folder, allow_partial=True)
    assert partial.startswith("On the seeds that have finished, from start to end ")


def test_choices_around_a_point_without_a_result_are_not_judged(study):
    text = answered(study(states={("to-minus-model.bias", 2): "DIVERGED"}))
    assert text.startswith("From start to end validation token accuracy changes by +0.2")
    assert "; no difference detected for train.lr " in text
    assert "; not judged: model.norm, model.activation and model.bias (not ranked: " in text
    assert text.endswith("to − model.bias: 1 diverged of 6 seeds).")


# the section


def test_the_table_has_a_row_per_choice_largest_first(study):
    analysis = analyse(load_frames(study()))
    rows = choices(analysis)
    assert [row["choice"].text for row in rows] == ["model.norm", "model.activation", "model.bias", "train.lr"]
    first = rows[0]
    assert (first["choice"].notes[0].text, first["verdict"].text) == ("pre → post", VerdictLabel("better", "better"))
    assert re.fullmatch(r"\+0\.2\d\d", first["share"].text)
    assert re.fullmatch(r"0\.2\d\d to 0\.2\d\d", first["share"].notes[0].text)
    assert undetected_choices(analysis.path) == "No detectable difference: train.lr."


def test_what_was_not_sampled_is_said(study):
    analysis = analyse(load_frames(study()))
    sampled = sampled_orders(analysis, analysis.path)
    assert sampled[0].startswith("8 of 24 orders were walked, drawn at random (seed 1)")
    assert "the other orders were not sampled" in sampled[0]
    trained = len(analysis.frames.variants)
    assert sampled[1] == (f"4 choices make 16 points; {trained} of them are part of this study.")


def test_all_orders_are_called_shapley_values(study):
    analysis = analyse(load_frames(study(names=FOUR[:3])))
    assert sampled_orders(analysis, analysis.path)[0] == (
        "All 6 orders of the 3 choices were walked: the shares are Shapley values of these runs."
    )


def test_differences_that_are_undefined_apart_are_listed(study):
    together = {"model.norm", "model.bias"}
    folder = study(undefined=lambda applied: len(applied & together) == 1)
    analysis = analyse(load_frames(folder))
    apart = inseparable_choices(analysis.path)
    assert apart[:2] == [
        "model.norm applied alone to start has no meaning: these do not go together; it has one "
        "together with model.bias.",
        "model.norm taken out of end has no meaning: these do not go together; it has one together with model.bias.",
    ]
    joint = [line for line in apart if "were applied together in" in line]
    assert joint
    assert all("of 8 walks, being undefined apart there" in line for line in joint)
    assert "model.norm with model.bias" in [row["choice"].text for row in choices(analysis)]
    assert "orders looked at pass a point that has no meaning" in " ".join(sampled_orders(analysis, analysis.path))


def test_what_the_known_shares_leave_is_a_row(study):
    *rows, remainder = choices(analyse(load_frames(study(states={("from-plus-model.norm", 2): "DIVERGED"}))))
    unknown = [row for row in rows if row["share"].text == "–"]
    assert unknown
    assert all("1 diverged of 6 seeds" in row["verdict"].notes[0].text for row in unknown)
    assert remainder["choice"].text == "not judged"
    assert re.fullmatch(r"[+−]0\.\d+", remainder["share"].text)


def test_an_experiment_without_a_path_has_no_section(quickstart):
    assert path_blocks(analyse(load_frames(quickstart))) == []


# the pages


@pytest.fixture(scope="module")
def walked(paths, cache, tmp_path_factory):
    """The additive study; no test changes it."""
    made = paths.PathStudy(FOUR, additive, seeds=(1, 2, 3, 4, 5, 6))
    return paths.write_path(tmp_path_factory.mktemp("runs"), made, cache)


@pytest.fixture(scope="module")
def report(walked, tmp_path_factory):
    return write_report(walked, tmp_path_factory.mktemp("reports"))


def test_a_path_report_has_a_waterfall_and_shows_every_choice_on_both_pages(report):
    assert {path.stem for path in (report.folder / "figures").glob("*.svg")} >= {"waterfall", "contrasts", "scores"}
    page = report.html.read_text(encoding="utf-8")
    text = report.markdown.read_text(encoding="utf-8")
    assert 'id="path"' in page
    assert "## Choice by choice" in text
    assert "![the distance, choice by choice](figures/waterfall.svg)" in text
    for name in FOUR:
        assert name in page
        assert f"| {name} (" in text
    for told in ("8 of 24 orders were walked", "whole distance", "No detectable difference"):
        assert told in page
        assert told in text


def test_the_table_of_variants_shows_the_ends_alone_and_says_where_the_rest_is(report):
    text = report.markdown.read_text(encoding="utf-8")
    table = text[text.index("## Variants") :]
    assert "| **from start** |" in table
    assert "| to end |" in table
    assert "walk 1 step" not in table.split("## Runs")[0]
    assert re.search(r"the \d+ points between them are in \[results.csv\]", table)


def test_the_waterfall_leads_from_one_end_to_the_other(report):
    svg = (report.folder / "figures" / "waterfall.svg").read_text(encoding="utf-8")
    root = ET.fromstring(svg)
    words = ["".join(one.itertext()).strip() for one in root.iter() if one.tag.endswith("text")]
    rows = [word for word in words if word in (*FOUR, "start", "end")]
    assert rows == ["start", "model.norm", "model.activation", "model.bias", "train.lr", "end"]
    assert any(re.fullmatch(r"\+0\.2\d\d\s+better", word) for word in words)
    assert any("no difference detected" in word for word in words)


def test_a_report_of_a_path_is_the_same_bytes_each_time(walked, report, tmp_path):
    again = write_report(walked, tmp_path)
    for name in ("index.html", "report.md", "figures/waterfall.svg"):
        assert (report.folder / name).read_bytes() == (again.folder / name).read_bytes()
