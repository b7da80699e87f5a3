"""The report of an experiment with claims: published values, measured values, differences, and verdicts."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest

from headtohead.report.writing import write_report

CLAIM = {
    "variant": "rotary",
    "against": "sinusoidal",
    "metric": "test/exact_match",
    "against_metric": None,
    "lengths": None,
    "against_lengths": None,
    "expect": "higher",
    "by": 0.0,
    "margin": None,
    "limit": None,
}
PUBLISHED = {
    "source": "A. Author <2018>, table 3",
    "setup": {
        "data": "WMT 2014",
        "test": "newstest2013",
        "pairs": 4500000,
        "steps": 900,
        "seeds": 6,
        "vocabulary": "37000 units",
        "parameters": 65000000,
        "decoding": "beam 4",
        "train.batch_tokens": 2048,
        "train.lr": 0.0001,
        "model.layers": 6,
        "model.dropout": 0.1,
    },
    "differences": ["The paper averages | checkpoints."],
    "claims": [
        CLAIM
        | {
            "statement": "Rotary is *far* better.",
            "published": {"variant": 25.8, "against": 12.5, "where": "BLEU, table 3"},
        },
        CLAIM
        | {
            "statement": "None is better.",
            "variant": "none",
            "published": {"variant": None, "against": None, "where": "no value"},
        },
        CLAIM
        | {
            "statement": "None stays under a third.",
            "variant": "none",
            "against": None,
            "expect": "at-most",
            "limit": 1 / 3,
            "published": {"variant": 1 / 3, "against": None, "where": "a theorem"},
        },
        CLAIM
        | {
            "statement": "At length nine both are equal.",
            "expect": "equal",
            "margin": 0.001,
            "justification": "a tenth of the effect",
            "lengths": [9, 11],
            "published": {"variant": 1.0, "against": 1.0, "where": "figure 2"},
        },
    ],
}


@pytest.fixture(scope="module")
def report(made, tmp_path_factory, no_figures):
    study = made.Study(
        name="claims",
        axes={"positional": ["sinusoidal", "rotary", "none"]},
        score=planted,
        one_at_a_time=True,
        maps=False,
    )
    folder = made.write_study(tmp_path_factory.mktemp("runs"), study)
    content = json.loads((folder / "experiment.json").read_text())
    content["published"] = PUBLISHED
    (folder / "experiment.json").write_text(json.dumps(content))
    with no_figures():
        return write_report(folder, tmp_path_factory.mktemp("reports"))


def planted(axes, seed):
    """Return 0.5, plus 0.4 or minus 0.3, with seed differences that vary by variant."""
    level = {"rotary": (0.9, 7), "sinusoidal": (0.5, 5), "none": (0.2, 3)}
    mean, step = level[axes["positional"]]
    return mean + 0.002 * (seed * step % 11)


def rows(report):
    text = report.markdown.read_text(encoding="utf-8")
    section = text.split("## Published and measured")[1].split("## Variants")[0]
    return [line for line in section.splitlines() if line.startswith("| ")]


def test_every_claim_shows_both_values_the_interval_and_the_verdict(report):
    claims = [row for row in rows(report) if row.count("|") == 9 and "claim" not in row]
    verdicts = [re.search(r"\*\*(.*?)\*\*", row)[1] for row in claims]
    assert verdicts == ["agrees", "opposite in this set-up", "agrees", "opposite in this set-up"]
    first = claims[0]
    assert r"Rotary is \*far\* better. (rotary against sinusoidal)" in first
    assert "| 25.8 against 12.5 |" in first
    assert "| +13.3 |" in first
    assert re.search(r"\| 0\.9\d+ against 0\.5\d+ \|", first)
    assert re.search(r"\| \+0\.\d+ \(0\.\d+ to 0\.\d+\) \(excludes the published \+13\.3\) \| higher \|", first)
    assert "| no value |" in claims[1]
    assert "at most 0.333333" in claims[2]
    assert "(rotary, 9 to 11 tokens against sinusoidal, 9 to 11 tokens)" in claims[3]


def test_differences_and_common_values_of_the_setups_are_listed(report):
    table = {row.split("|")[1].strip(): row for row in rows(report) if row.count("|") == 4}
    assert "| WMT 2014 | toy-grammar, English to French, split iid |" in table["data"]
    assert "| 4.50 M | 4,500 |" in table["pairs"]
    assert "| newstest2013 | 250 pairs |" in table["test"]
    assert "| 37000 units | 104 source, 117 target, word tokens |" in table["vocabulary"]
    assert "| 65.0 M | 48,213 |" in table["parameters"]
    assert "| beam 4 | greedy |" in table["decoding"]
    assert r"| 0.0001 | 0.003 |" in table["train.lr"]
    assert r"| 6 | encoder\_layers 1, decoder\_layers 2 |" in table["model.layers"]
    assert "| 0.1 | 0 |" in table["model.dropout"]
    assert not {"steps", "seeds", "train.batch\\_tokens"} & set(table)
    text = report.markdown.read_text(encoding="utf-8")
    assert r"- As published: steps, seeds, train.batch\_tokens." in text
    assert r"- The paper averages \| checkpoints." in text


def test_the_answer_begins_with_the_summary_of_claims_on_page_and_in_markdown(report):
    text = report.markdown.read_text(encoding="utf-8")
    summary = "Of 4 published claims, 2 agree, 2 are opposite in this set-up."
    assert report.answer.startswith(f"{summary} ")
    assert f"**{report.answer}**" in unescape(text)
    page = report.html.read_text(encoding="utf-8")
    assert summary in page
    assert "A. Author &lt;2018&gt;" in page
    assert page.count('<span class="verdict better">agrees</span>') == 2
    assert page.count('<span class="verdict worse">opposite in this set-up</span>') == 2


def test_the_verdict_and_the_difference_of_each_claim_follow_the_answer(report):
    opening = unescape(report.markdown.read_text(encoding="utf-8")).split("Set-up: ")[0]
    lines = [line for line in opening.splitlines() if line.startswith("- ")]
    assert len(lines) == len(PUBLISHED["claims"])
    difference = r"\+0\.\d+ exact match \(98\.33 % interval \+0\.\d+ to \+0\.\d+\)\."
    assert re.fullmatch(rf"- agrees: Rotary is \\\*far\\\* better\. {difference}", lines[0])
    assert lines[2] == "- agrees: None stays under a third."


def test_claims_on_the_same_runs_and_far_setups_are_named(report):
    text = report.markdown.read_text(encoding="utf-8")
    assert "Claims 1 and 4 share the runs of rotary, so their verdicts are not independent." in text
    assert "Claims 1, 2 and 4 share the runs of sinusoidal, so their verdicts are not independent." in text
    assert "since the set-ups are far apart (other data, pairs, parameters)" in text


def test_the_justification_of_a_margin_is_printed(report):
    assert any("equal to within 0.001 (a tenth of the effect)" in row for row in rows(report))


def test_answer_json_lists_the_claims(report):
    claims = json.loads(report.json.read_text(encoding="utf-8"))["published_claims"]
    assert [claim["verdict"] for claim in claims] == [
        "agrees",
        "opposite in this set-up",
        "agrees",
        "opposite in this set-up",
    ]
    assert claims[0]["includes_published"] is False
    assert claims[1]["includes_published"] is None


def test_the_confidence_level_is_corrected_for_the_tested_claims(report):
    """Three of the four claims are tested; the bound is not."""
    text = report.markdown.read_text(encoding="utf-8")
    assert "The interval is the 98.33 % interval of the difference" in text


@pytest.mark.usefixtures("without_figures")
def test_a_report_without_claims_speaks_of_none(made, tmp_path):
    study = made.Study(axes={"positional": ["sinusoidal", "rotary"]}, seeds=(1, 2), maps=False)
    paths = write_report(made.write_study(tmp_path / "runs", study), tmp_path)
    assert "Published" not in paths.markdown.read_text(encoding="utf-8")
    assert "#published" not in paths.html.read_text(encoding="utf-8")
