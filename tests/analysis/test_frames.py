import json
import math
from pathlib import Path

import pytest

import headtohead as h2h
from headtohead.analysis.study import Analysis
from headtohead.storage.frames import load_frames
from headtohead.storage.translations import joined_references, read_translations, split_references
from made.fake_study import Study, record_checksums, write_study


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return write_study(tmp_path, Study(seeds=(1, 2), maps=False))


def test_every_planned_run_is_one_row_with_its_axes_and_metrics(quickstart):
    frames = load_frames(quickstart)
    assert len(frames.runs) == 72
    row = frames.runs.loc[frames.runs["variant"] == "rotary-split-heads-causal"].iloc[0]
    assert (row["positional"], row["attention"], row["masking"]) == (
        "rotary",
        "split-heads",
        "causal",
    )
    stored = json.loads((quickstart / row["directory"] / "results.json").read_text())["metrics"]
    for metric, value in stored.items():
        assert row[metric] == value


def test_the_last_line_of_a_repeated_step_is_used(copied):
    run = next(copied.glob("rotary-*-s1-*"))
    with (run / "metrics.jsonl").open("a") as file:
        file.write(
            json.dumps({"step": 50, "epoch": 0.4, "time": 2e9, "values": {"train/loss": 123.0}})
            + "\n"
        )
    record_checksums(run)
    histories = load_frames(copied).histories
    rows = histories[(histories["run"] == run.name) & (histories["step"] == 50)]
    assert rows.loc[rows["metric"] == "train/loss", "value"].tolist() == [123.0]


def test_a_reused_run_is_read_from_its_folder_with_the_axes_of_the_experiment(messy):
    frames = load_frames(messy)
    row = frames.runs[frames.runs["reused_from"].notna()].iloc[0]
    assert row["reused_from"].startswith("earlier/")
    assert row["variant"] == "none-split-heads-padding-causal"
    assert row["state"] == "DONE"
    assert (frames.folders[row.name] / "results.json").is_file()


def test_an_equal_variant_has_the_scores_of_the_trained_variant(messy):
    frames = load_frames(messy)
    equal, own = "sinusoidal-split-heads-causal", "sinusoidal-split-heads-padding-causal"
    assert equal not in set(frames.runs["variant"])
    assert frames.scores(equal, "test/exact_match") == frames.scores(own, "test/exact_match") != {}


def test_costs_that_the_runs_of_a_stack_share_have_no_interval(quickstart):
    frames = load_frames(quickstart)
    slug = frames.baseline
    assert frames.summary(slug, "valid/loss").low < frames.summary(slug, "valid/loss").high
    cost = frames.summary(slug, "system/train_seconds")
    scores = frames.scores(slug, "system/train_seconds").values()
    assert cost.mean == pytest.approx(sum(scores) / len(scores))
    assert math.isnan(cost.low)
    assert math.isnan(cost.high)
    assert math.isnan(cost.sd)


def test_a_run_without_files_is_planned_and_only_done_runs_have_scores(messy):
    frames = load_frames(messy)
    states = frames.runs["state"].value_counts().to_dict()
    assert states == {"DONE": 56, "DIVERGED": 1, "FAILED": 1, "PLANNED": 1, "INTERRUPTED": 1}
    without = frames.runs.loc[frames.runs["state"] != "DONE", "test/exact_match"]
    assert without.isna().all()


def test_an_experiment_without_a_finished_run_loads(analysed):
    frames = analysed(
        axes={"positional": ["none"]}, seeds=(1,), states={("none", 1): "PLANNED"}
    ).frames
    assert frames.runs["state"].tolist() == ["PLANNED"]
    assert frames.histories.empty


def test_training_curves_have_the_axes_of_each_run(quickstart):
    frames, curves = load_frames(quickstart), h2h.curves(quickstart)
    assert list(curves) == [
        "run",
        "variant",
        *frames.record.axes,
        "seed",
        "step",
        "epoch",
        "metric",
        "value",
    ]
    assert len(curves) == len(frames.histories) > 0
    assert len(frames.record.axes) > 1
    for run, rows in curves.groupby("run"):
        for column in ("variant", *frames.record.axes, "seed"):
            assert set(rows[column]) == {frames.runs.loc[run, column]}


@pytest.mark.parametrize(
    "references", [("a ||| b", "c"), ("|||",), ("x\\y", "\\p", "z"), ("plain",)]
)
def test_references_with_the_separator_are_split_as_joined(references):
    assert split_references(joined_references(references)) == references


def test_a_table_of_translations_is_read_as_written(quickstart):
    found = read_translations(next(quickstart.glob("rotary-split-heads-causal-s1-*")))
    assert len(found) == 250
    assert found[0].source == "the black cat does not eat it"
    assert found[0].exact == (found[0].hypothesis in found[0].references)


def test_other_test_sentences_are_found_if_the_first_seed_has_no_translations(analysed):
    analysis = analysed(
        axes={"data.split": ["grouped", "row"]},
        config=lambda axes: {"data": {"split": axes["data.split"]}},
        states={("row", 1): "FAILED"},
        seeds=(1, 2, 3, 4),
        allow_partial=True,
    )
    folder = analysis.frames.directory
    assert analysis.other_test_sentences == []
    for file in folder.glob("row-*/translations.tsv"):
        file.write_text(file.read_text().replace("the black cat", "the white cat"))
        record_checksums(file.parent)
    assert Analysis(load_frames(folder), allow_partial=True).other_test_sentences == ["row"]
