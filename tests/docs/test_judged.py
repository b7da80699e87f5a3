"""The pages of judged components, from made answers of reports."""

import json
from pathlib import Path

import pytest
from scipy import stats

from judged import COMPONENTS, SETTINGS, comparisons, page, table

BASE = "first-split-heads-rotary-gelu"
GATED = "first-gated-rotary-gelu"


def contrast(end: str, difference: float) -> dict[str, object]:
    return {
        "family": "variants",
        "main": True,
        "name": f"{GATED}{end} - {BASE}{end}",
        "pairs": [[f"{GATED}{end}", f"{BASE}{end}"]],
        "difference": difference,
        "interval": {"low": difference - 0.01, "high": difference + 0.01},
        "verdict": "better by more than the margin",
        "seeds": [1, 2, 3, 4, 5, 6],
        "sources": [{"name": "training seeds", "variance": 1e-5, "degrees": 5}],
    }


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Reports in which the gate lowers the loss by 0.02 to 0.044."""
    folder = tmp_path / "contested"
    answers: dict[str, list[dict[str, object]]] = {}
    for number, (report, end) in enumerate(SETTINGS):
        answers.setdefault(report, []).append(contrast(end, -0.02 - 0.004 * number))
    for report, contrasts in answers.items():
        (folder / report).mkdir(parents=True)
        answer = json.dumps({"contrasts": contrasts})
        (folder / report / "answer.json").write_text(answer, encoding="utf-8")
        rows = f"variant,parameters/non_embedding,flops_per_token\n{BASE},100,10\n{GATED},103,10\n"
        (folder / report / "results.csv").write_text(rows, encoding="utf-8")
    return folder


def test_settings_are_combined_and_never_counted(reports: Path) -> None:
    text = page("attention-gate", reports)
    half = (
        stats.t.ppf(0.975, 6) * (56 / 3 * 1e-6 / 7 * 4) ** 0.5
    )  # equal errors, so the plain t-interval
    assert f"over 7 settings is −0.032 ({-0.032 - half:.3f}".replace("-", "−") in text
    assert "in another setting it is expected from" in text
    assert " of 7" not in text
    assert text.count("better by more than the margin") == 7
    assert "non-embedding parameters +3.0 %, FLOPs per token +0.0 %" in text


def test_withdrawn_reports_are_left_out(reports: Path) -> None:
    (reports.parent / "withdrawn.yaml").write_text("contested/sizes: trained again\n", "utf-8")
    found = comparisons("attention-gate", reports)
    assert "sizes" not in {each.report for each in found}
    assert "over 4 settings" in page("attention-gate", reports)
    cells = table(reports).splitlines()[2 + [*COMPONENTS].index("attention-gate")].split("|")
    assert [cell.strip() for cell in cells[-4:-1]] == ["–"] * 3


def test_a_component_without_a_report_has_the_reasons(reports: Path) -> None:
    names = {report for report, _ in SETTINGS}
    lines = "".join(f"contested/{name}: its test changed\n" for name in names)
    (reports.parent / "withdrawn.yaml").write_text(lines, "utf-8")
    text = page("attention-gate", reports)
    assert "**No result: all reports are withdrawn.**" in text
    assert text.count("its test changed") == len(names)
    assert "| setting |" not in text
