"""The committed reports agree with independent code, which finds a planted difference."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headtohead.report.writing import write_report
from made import case_table
from made.fake_study import Study, declared_contrast, edit, write_study

pytestmark = pytest.mark.slow

REPORTS = Path(__file__).parents[2] / "reports"


def test_committed_reports_are_recomputed(benchmark, capsys):
    folders = sorted(str(file.parent) for file in REPORTS.rglob("answer.json"))
    assert benchmark("recompute").main(folders) == 0, capsys.readouterr().out


def test_the_effects_by_value_of_a_committed_row_have_its_difference_as_their_mean():
    checked = 0
    for file in REPORTS.rglob("answer.json"):
        for row in json.loads(file.read_text(encoding="utf-8"))["differences"]:
            numbers = re.findall(r"([+−]\d+\.\d+) with", row["contrast"])
            mean = (row["difference"] or "0").partition("\n")[0]  # its interval follows
            difference, *effects = (float(text.replace("−", "-")) for text in (mean, *numbers))
            assert not effects or difference == pytest.approx(np.mean(effects), abs=0.0011), row
            checked += bool(effects)
    assert checked


def test_contrasts_of_source_lengths_are_recomputed(benchmark, capsys, tmp_path):
    study = Study(
        axes={"positional": ["sinusoidal", "rotary", "none"]},
        score=lambda axes, seed: (
            0.6 + (0.1 + 0.002 * seed) * (axes["positional"] == "rotary") + 0.01 * (seed * 5 % 7)
        ),
        maps=False,
    )
    folder = write_study(tmp_path, study)
    sides = {"variant": "rotary", "against": "sinusoidal"}
    own = [
        {"name": "long", "lengths": [9, 14]},
        {"name": "short", "lengths": [9, 14], "against_lengths": [1, 8]},
    ]
    own.append({"name": "exchanged", "variant": "sinusoidal", "against": "rotary"})
    record = json.loads((folder / "experiment.json").read_text())
    edit(
        folder,
        contrasts=[*record["contrasts"], *(declared_contrast(**sides | fields) for fields in own)],
    )
    written = write_report(folder, tmp_path / "reports")
    answer = json.loads(written.json.read_text())
    assert [found["against_lengths"] for found in answer["contrasts"] if found["lengths"]] == [
        None,
        [1, 8],
    ]
    (first, *_), exchanged = answer["contrasts"], answer["contrasts"][-1]
    assert (first["direction"], exchanged["direction"]) == ("better", "worse")
    assert first["interval"]["low"] == -exchanged["interval"]["high"]
    assert benchmark("recompute").main([str(written.folder)]) == 0
    assert "0 different, 0 skipped" in capsys.readouterr().out
    table = pd.read_csv(written.csv)
    table.loc[0, "test/exact_match/9-14"] += 0.001
    table.to_csv(written.csv, index=False)
    assert benchmark("recompute").main([str(written.folder)]) == 1


@case_table("field", ["difference", "adjusted_p", "largest_possible"], default=1)
def test_a_changed_number_of_a_contrast_of_two_metrics_is_found(
    benchmark, tmp_path, no_figures, field
):
    axes = {"positional": ["sinusoidal", "rotary", "none"]}
    sides = {"variant": "rotary", "against": "none", "name": "both"}
    declared = [sides | {"metric": "test/loss", "against_metric": "valid/loss"}]
    study = Study(axes=axes, maps=False, declared=declared)
    with no_figures():
        folder = write_report(write_study(tmp_path, study), tmp_path / "reports").folder
    assert benchmark("recompute").main([str(folder)]) == 0
    answer = json.loads((folder / "answer.json").read_text())
    (contrast,) = (own for own in answer["contrasts"] if own["family"] == "declared")
    assert contrast["against_metric"] == "valid/loss"
    contrast[field] += 1e-4
    (folder / "answer.json").write_text(json.dumps(answer))
    assert benchmark("recompute").main([str(folder)]) == 1


def test_a_withdrawn_report_says_so_and_is_not_recomputed(benchmark, capsys, tmp_path, no_figures):
    with no_figures():
        study = Study(axes={"positional": ["sinusoidal", "rotary"]}, maps=False)
        folder = write_report(write_study(tmp_path / "runs", study), tmp_path).folder
    marks = benchmark("withdrawn")
    page = folder / "report.md"
    before = page.read_text(encoding="utf-8")
    (tmp_path / "README.md").write_text(f"Text.\n\n{marks.START}{marks.END}\n", encoding="utf-8")
    list_of_reports = tmp_path / "withdrawn.yaml"
    list_of_reports.write_text("quickstart: its test set was wrong.\n", encoding="utf-8")
    assert marks.main(tmp_path) == 0
    assert "\n\n> **Withdrawn: its test set was wrong.**\n\n" in page.read_text(encoding="utf-8")
    index = (tmp_path / "README.md").read_text("utf-8")
    assert "- [quickstart](quickstart/report.md): its test set was wrong.\n" in index
    assert benchmark("recompute_text").checksum_findings(folder) == []
    capsys.readouterr()
    for script in ("recompute", "recompute_text"):
        assert benchmark(script).main([str(folder)]) == 0
        assert capsys.readouterr().out == f"{folder}: withdrawn: its test set was wrong.\n"
    list_of_reports.write_text("", encoding="utf-8")
    assert marks.main(tmp_path) == 0
    assert page.read_text(encoding="utf-8") == before
    list_of_reports.write_text("other: a reason.\n", encoding="utf-8")
    assert marks.main(tmp_path) == 1


@case_table("states", [{("alibi", 2): "DIVERGED"}, {("none", 5): "FAILED"}, {}], default=1)
def test_studies_with_collapsed_and_missing_runs_are_recomputed(
    benchmark, capsys, tmp_path, no_figures, states
):
    means = {"sinusoidal": 0.8, "rotary": 0.83, "none": 0.7, "alibi": 0.81}
    factors = {"sinusoidal": 15, "rotary": 20, "none": 25, "alibi": 30}

    def score(axes, seed):
        name = axes["positional"]
        if (name, seed) == ("rotary", 3):
            return 0.01  # its loss is four times that of the others
        return means[name] + 0.003 * (seed * factors[name] % 11) + 0.002 * seed

    study = Study(axes={"positional": [*means]}, score=score, maps=False, states=states)
    with no_figures():
        written = write_report(write_study(tmp_path, study), tmp_path / "reports")
    answer = json.loads(written.json.read_text())
    assert answer["collapses"]["rotary"]["collapsed"] == 1
    compared = [found for found in answer["contrasts"] if found["difference"] is not None]
    assert len(compared) == (6 if not states else 4)
    assert benchmark("recompute").main([str(written.folder)]) == 0
    assert " 0 different" in capsys.readouterr().out
    answer["collapses"]["rotary"]["p"] += 0.01
    written.json.write_text(json.dumps(answer))
    assert benchmark("recompute").main([str(written.folder)]) == 1
    assert "collapsed runs of rotary: p: printed" in capsys.readouterr().out
    answer["collapses"] = {}
    written.json.write_text(json.dumps(answer))
    assert benchmark("recompute").main([str(written.folder)]) == 1
    assert "collapsed variants: printed []" in capsys.readouterr().out
