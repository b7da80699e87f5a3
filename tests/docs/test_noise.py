"""The table and the page of noise, from made reports."""

import json
from pathlib import Path

import pytest

from headtohead_judge.noise import FILE, read_noise
from measured import REPORTS, RESULTS, committed_answers
from noise import noise, page, table

SETTING = {"data": "text novel", "width": 64, "layers": [4], "steps": 1000}


def make_report(folder: Path, spread: float, collapsed: int = 0) -> None:
    """Write a report of two variants with 40 seeds, whose losses alternate around 1 by the spread."""
    folder.mkdir(parents=True)
    contrast = {
        "main": True,
        "direction": "better",
        "metric": "test/loss",
        "name": "rotary instead of sinusoidal",
        "pairs": [["rotary", "sinusoidal"]],
        "sources": [
            {"name": "training seeds", "variance": 1e-6, "degrees": 39},
            {"name": "examples", "variance": 4e-6, "degrees": 19},
        ],
    }
    answer = {
        "metric": "test/loss",
        "collapses": {"rotary": {"collapsed": collapsed}},
        "settings": {"sinusoidal": SETTING, "rotary": SETTING, "copy": SETTING},
        "contrasts": [contrast, contrast | {"main": False}, contrast | {"direction": "identical"}],
    }
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    rows = ["variant,title,state,test/loss,train/loss"]
    for seed in range(40):
        sign = 1 if seed % 2 else -1
        rows.append(f"sinusoidal,sinusoidal,DONE,{1 + sign * spread},0")
        rows.append(f"rotary,with rotary,DONE,{1 + 2 * sign * spread},0")
        rows.append(f"copy,a copy of sinusoidal,DONE,{1 + sign * spread},0")
    rows.append("sinusoidal,sinusoidal,FAILED,9,0")
    (folder / "results.csv").write_text("\n".join(rows), encoding="utf-8")


def test_the_table_has_a_row_per_variant_metric_and_source(tmp_path: Path) -> None:
    make_report(tmp_path / "a", 0.01)
    sinusoidal, rotary, examples = noise(tmp_path)
    factor = (40 / 39) ** 0.5
    assert (sinusoidal.component, sinusoidal.sd) == ("sinusoidal", pytest.approx(0.01 * factor))
    assert (rotary.component, rotary.sd) == ("with rotary", pytest.approx(0.02 * factor))
    assert (examples.source, examples.sd, examples.degrees) == ("examples", pytest.approx(2e-3), 19)
    assert {row.metric for row in (sinusoidal, rotary, examples)} == {"test/loss"}


def test_a_variance_of_examples_that_is_not_positive_counts_in_the_median(tmp_path: Path) -> None:
    make_report(tmp_path / "a", 0.01)
    file = tmp_path / "a" / "answer.json"
    answer = json.loads(file.read_text(encoding="utf-8"))
    without = [{"name": "examples", "variance": 0.0, "degrees": 19}]
    answer["contrasts"].append(answer["contrasts"][0] | {"sources": without})
    file.write_text(json.dumps(answer), encoding="utf-8")
    rows = noise(tmp_path)
    assert [row.sd for row in rows if row.source == "examples"] == [pytest.approx(2e-3), 0.0]
    assert "| 78 | 0.001 |" in page(rows, {"a": "test/loss"})


def test_a_variant_with_collapsed_runs_has_no_row(tmp_path: Path) -> None:
    make_report(tmp_path / "a", 0.01, collapsed=1)
    assert [row.component for row in noise(tmp_path) if row.source == "training seeds"] == [
        "sinusoidal"
    ]


def test_the_page_has_a_line_per_study_and_leaves_each_out_once(tmp_path: Path) -> None:
    for name, spread in zip("abcd", (0.01, 0.01, 0.01, 0.5), strict=True):
        make_report(tmp_path / name, spread)
    rows = noise(tmp_path)
    text = page(rows, dict.fromkeys("abcd", "test/loss"))
    pooled = 0.01 * (2.5 * 40 / 39) ** 0.5
    line = (
        "| `a` | text novel | 64 | 4 | 1,000 | test loss | "
        f"{pooled:.3f} | 0.010 to 0.020 | 78 | 0.002 |"
    )
    assert line in text
    (left_out,) = (line for line in text.splitlines() if line.startswith("| d | "))
    assert left_out.endswith("| 3 of text novel | no |")
    assert (
        "Of 4 studies, 0 are within 25 % of the expected standard deviation, and 3 inside" in text
    )


def test_the_committed_table_and_page_are_those_of_the_reports() -> None:
    rows = noise()
    assert FILE.read_text(encoding="utf-8") == table(rows)
    primary = {report: answer["metric"] for report, answer in committed_answers(REPORTS)}
    assert (RESULTS / "noise.md").read_text(encoding="utf-8") == page(read_noise(), primary)
