"""The committed reports agree with independent code, which finds a planted difference."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headtohead.report.writing import write_report
from made.fake_study import Study, declared_contrast, edit, write_study

REPORTS = Path(__file__).parents[2] / "reports"


def test_committed_reports_are_recomputed(benchmark, capsys):
    folders = sorted(str(file.parent) for file in REPORTS.rglob("answer.json"))
    assert benchmark("recompute").main(folders) == 0, capsys.readouterr().out


def test_the_effects_by_value_of_a_committed_row_have_its_difference_as_their_mean():
    checked = 0
    for file in REPORTS.rglob("answer.json"):
        for row in json.loads(file.read_text(encoding="utf-8"))["differences"]:
            numbers = re.findall(r"([+−]\d+\.\d+) with", row["contrast"])
            difference, *effects = (
                float(text.replace("−", "-")) for text in (row["difference"] or "0", *numbers)
            )
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


@pytest.mark.parametrize("field", ["difference", "holm_p", "paired_p"])
def test_a_changed_number_of_a_contrast_of_two_metrics_is_found(benchmark, tmp_path, field):
    folder = tmp_path / "report"
    shutil.copytree(REPORTS / "published" / "michel-heads-masked", folder)
    answer = json.loads((folder / "answer.json").read_text())
    assert answer["contrasts"][2]["against_metric"] == "heads/encoder/only-one/bleu"
    answer["contrasts"][2][field] += 1e-4
    (folder / "answer.json").write_text(json.dumps(answer))
    assert benchmark("recompute").main([str(folder)]) == 1
