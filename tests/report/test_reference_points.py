"""Reference points in reports: computed once, kept beside the runs, printed and drawn."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headtohead.analysis.findings import rules
from headtohead.analysis.study import Analysis
from headtohead.data import prepare
from headtohead.report.variants import padding_section
from headtohead.report.writing import read_report, write_report
from headtohead.schema.run_config import changed
from headtohead.storage.frames import load_frames
from headtohead.testing.tiny import tiny_config
from headtohead.training import reference_points
from headtohead.training.reference_points import save_reference_points
from made import case_table
from made.fake_study import record_checksums

POINTS = {
    "data_hash": "ab" * 32,
    "test_limit": None,
    "sentences": 250,
    "nearest_neighbour": {"exact_match": 0.45, "bleu": 60.0, "chrf": 10.0},
    "vocabulary_bound": {"exact_match": 0.9, "bleu": 95.0, "chrf": 96.0},
    "source_copy": {"exact_match": 0.0, "bleu": 0.1, "chrf": 12.0},
}
SCORES = {"sinusoidal": 0.5, "rotary": 0.4, "none": 0.1}
"""Exact match; the made-up BLEU is 100 times its power of 0.6: 66, 58 and 25."""


@pytest.fixture
def study(analysed: Callable[..., Analysis]) -> Callable[..., Path]:
    """Return a function that writes a study with reference points, and returns its folder."""

    def write(*points: dict[str, Any], **options: Any) -> Path:
        planned: dict[str, Any] = {
            "axes": {"positional": list(SCORES)},
            "score": lambda axes, seed: SCORES[axes["positional"]] + 0.002 * (seed % 3),
            "one_at_a_time": True,
        }
        folder: Path = analysed(**planned | options).frames.directory
        if points:
            (folder / "reference_points.json").write_text(json.dumps({"format": 1, "data": points}))
        return folder

    return write


def section_of(folder: Path, reports: Path) -> str:
    """Return the section of the report on reference points."""
    text = write_report(folder, reports).markdown.read_text(encoding="utf-8").replace("\\", "")
    return text.split("### Reference points")[1].split("\n### ")[0]


def remark(folder: Path, start: str) -> str | None:
    """Return the remark that begins with a text, or None."""
    found = rules.find(Analysis(load_frames(folder)))
    return next((remark.text for remark in found if remark.text.startswith(start)), None)


@case_table("bound", [0.0, 0.9], default=1)
def test_longer_training_is_advised_only_where_the_vocabulary_permits_a_score(
    bound: float, study: Any
) -> None:
    folder = study(with_scores("vocabulary_bound", bound, 95.0, 96.0), score=lambda axes, seed: 0.0)
    text = remark(folder, "Every run has the worst possible exact match") or ""
    assert ("Train longer" in text, "data.tokens: subword" in text) == (bound > 0, bound == 0)


@pytest.mark.parametrize("bigram", [0.0, 100.0])
def test_losses_above_that_of_a_bigram_model_are_a_caution(bigram: float, study: Any) -> None:
    folder = study(
        data={"losses_without_model": {"unigram": 100.0, "bigram": bigram}},
        axes={"data.tokens": ["word", "subword"]},
        score=lambda axes, seed: 0.5,
        config=lambda axes: {"data": {"tokens": axes["data.tokens"]}},
    )
    line = remark(folder, "Not better than a bigram model") or ""
    assert ("nats): words. " in line, "subword" in line) == (
        bigram == 0.0,
        False,
    )  # their units differ


@pytest.mark.usefixtures("without_figures")
def test_the_table_is_sorted_by_the_primary_metric(study: Any, tmp_path: Path) -> None:
    section = section_of(study(POINTS), tmp_path / "reports")
    rows = [
        line.split("|")[1].strip(" *") for line in section.splitlines() if line.startswith("| ")
    ]
    assert rows[1:] == [
        "vocabulary upper bound",
        "sinusoidal",
        "nearest neighbour",
        "copied source",
    ]
    assert "| nearest neighbour | 0.450 | 60.0 | 10.0 |" in section


@pytest.mark.usefixtures("without_figures")
def test_scores_on_other_test_sentences_are_named_and_have_their_own_reference_points(
    study: Any, tmp_path: Path
) -> None:
    others = POINTS | {
        "data_hash": "cd" * 32,
        "sentences": 240,
        "nearest_neighbour": POINTS["vocabulary_bound"],
    }
    folder = study(
        with_scores("nearest_neighbour", 0.6, 66.0, 70.0),
        others,
        axes={"data.split": ["grouped", "row"]},
        score=lambda axes, seed: 0.5 + 0.3 * (axes["data.split"] == "row") + 0.002 * (seed % 3),
        config=lambda axes: {"data": {"split": axes["data.split"]}},
        run_data=lambda axes: (
            {"data_hash": "cd" * 32, "leak": 0.274} if axes["data.split"] == "row" else {}
        ),
    )
    assert remark(folder, "Tested on other sentences") is None
    for file in folder.glob("row-*/translations.tsv"):
        head, *lines = file.read_text().splitlines()
        file.write_text("\n".join([head, *(f"other {line}" for line in lines)]) + "\n")
        record_checksums(file.parent)
    line = remark(folder, "Not better than nearest-neighbour") or ""
    assert (
        "(0.600 to 0.900 exact match): the row split and the grouped split; the best of them has 0.802."
        in line
    )
    assert "baseline: the row split (source also in training: 27.4 %)." in (
        remark(folder, "Tested on other sentences than") or ""
    )
    own, other = section_of(folder, tmp_path / "reports").split(
        "On the 240 test sentences of the row split"
    )
    assert "| the grouped split |" in own
    assert "| the row split |" not in own
    assert "| nearest neighbour | 0.900 | 95.0 | 96.0 |" in other
    assert "| the row split |" in other


@pytest.mark.usefixtures("without_figures")
def test_variants_below_the_nearest_neighbour_are_named_beside_the_answer(
    study: Any, tmp_path: Path
) -> None:
    paths = write_report(study(POINTS), tmp_path / "reports")
    line = next(
        line
        for line in paths.lines
        if line.startswith("Not better than nearest-neighbour retrieval (0.450")
    )
    assert "rotary and without positions; the best of them has 0.402" in line
    record = json.loads(paths.json.read_text())
    assert record["reference_points"]["not_better_than_nearest_neighbour"] == ["rotary", "none"]
    assert record["reference_points"]["scores"]["nearest_neighbour"]["test/bleu"] == 60.0


def with_scores(
    name: str, exact_match: float, bleu: float = 0.0, chrf: float = 0.0
) -> dict[str, Any]:
    return POINTS | {name: {"exact_match": exact_match, "bleu": bleu, "chrf": chrf}}


@case_table(
    ("points", "names"),
    [
        (
            with_scores("nearest_neighbour", 0.8),
            "sinusoidal, rotary and without positions; the best of them has 0.502",
        ),
        (with_scores("nearest_neighbour", 0.05, 99.0, 99.0), None),
        (with_scores("nearest_neighbour", 0.2), "without positions; the best of them has 0.102"),
    ],
    default=2,
)
def test_variants_and_nearest_neighbour_are_compared_in_the_primary_metric(
    points: dict[str, Any], names: str | None, study: Any
) -> None:
    nothing = {"exact_match": 0.0, "bleu": 0.0, "chrf": 0.0}
    folder = study(points | {"majority": nothing | {"exact_match": 0.3}})
    line = remark(folder, "Not better than nearest-neighbour")
    assert line is None if names is None else names in str(line)
    assert "(0.300 exact match): without positions;" in (
        remark(folder, "Not better than the most frequent target") or ""
    )


@pytest.mark.usefixtures("without_figures")
@case_table(
    "points", [(), (POINTS | {"data_hash": "cd" * 32},), (POINTS | {"test_limit": 20},)], default=1
)
def test_a_report_without_reference_points_says_how_to_compute_them(
    points: Any, study: Any, tmp_path: Path
) -> None:
    section = section_of(study(*points), tmp_path / "reports")
    assert "Not computed" in section
    assert "h2h run" in section


@pytest.mark.slow
def test_missing_reference_points_are_computed_once(
    study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config()
    data = prepare(config.data, tmp_path / "cache")
    folder = study(data={"data_hash": data.data_hash})
    save_reference_points(folder, [(config, data)] * 2)
    content = (folder / "reference_points.json").read_bytes()
    (entry,) = json.loads(content)["data"]
    assert entry["data_hash"] == data.data_hash
    assert entry["vocabulary_bound"]["bleu"] == pytest.approx(100)
    assert 0 < entry["nearest_neighbour"]["bleu"] < 100
    monkeypatch.setattr(reference_points, "reference_scores", lambda *_: pytest.fail("again"))
    save_reference_points(folder, [(config, data)])
    assert (folder / "reference_points.json").read_bytes() == content


@pytest.mark.slow
def test_other_data_and_another_limit_get_their_own_reference_points(
    study: Any, tmp_path: Path
) -> None:
    first = tiny_config()
    other = changed(first, data={"seed": 2})
    data = [prepare(config.data, tmp_path / "cache") for config in (first, other)]
    folder = study(data={"data_hash": data[0].data_hash})
    limited = changed(first, evaluate={"test_limit": 5})
    for config, scored in ((first, data[0]), (other, data[1]), (limited, data[0])):
        save_reference_points(folder, [(config, scored)])
    entries = json.loads((folder / "reference_points.json").read_text())["data"]
    found = [(entry["data_hash"], entry["sentences"]) for entry in entries]
    assert [data_hash for data_hash, _ in found] == [data[i].data_hash for i in (0, 1, 0)]
    assert found[2][1] == 5


def test_studies_without_translations_have_no_reference_points(study: Any, tmp_path: Path) -> None:
    folder = study()
    config = changed(tiny_config(), evaluate={"decode": "none"})
    save_reference_points(folder, [(config, prepare(config.data, tmp_path))])
    assert not (folder / "reference_points.json").exists()


def test_a_text_with_translations_has_a_report_without_reference_points(
    study: Any, tmp_path: Path
) -> None:
    folder = study(POINTS | {"vocabulary_bound": {}, "nearest_neighbour": {}, "source_copy": {}})
    assert "### Scores and costs" in write_report(folder, tmp_path).markdown.read_text(
        encoding="utf-8"
    )


def test_scores_without_padding_have_no_section_if_masks_hide_padding_everywhere(study):
    assert padding_section(read_report(study())) is None
