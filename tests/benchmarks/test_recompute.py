"""The committed reports agree with independent code, which finds a planted difference."""

import json
import shutil
from pathlib import Path

import pytest

REPORTS = Path(__file__).parents[2] / "reports"


def test_committed_reports_are_recomputed(benchmark, capsys):
    folders = sorted(str(file.parent) for file in REPORTS.rglob("answer.json"))
    assert benchmark("recompute").main(folders) == 0, capsys.readouterr().out


@pytest.mark.parametrize("field", ["difference", "holm_p", "paired_p"])
def test_a_changed_number_of_a_contrast_of_two_metrics_is_found(benchmark, tmp_path, field):
    folder = tmp_path / "report"
    shutil.copytree(REPORTS / "published" / "michel-heads-masked", folder)
    answer = json.loads((folder / "answer.json").read_text())
    assert answer["contrasts"][2]["against_metric"] == "heads/encoder/only-one/bleu"
    answer["contrasts"][2][field] += 1e-4
    (folder / "answer.json").write_text(json.dumps(answer))
    assert benchmark("recompute").main([str(folder)]) == 1
