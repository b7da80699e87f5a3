"""The pages with outputs of the judge, of the package and of the repository: their example's scores give them."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headtohead_judge.command import command

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "harness" / "judge" / "README.md"


@pytest.fixture
def example() -> dict[str, Any]:
    """The names of the page's example in Python; ``table`` has its scores."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def test_the_scores_of_the_page_give_its_output(example: dict[str, Any], tmp_path: Path) -> None:
    (output,) = re.findall(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path / "scores.csv"
    example["table"].to_csv(file, index=False)
    result = CliRunner().invoke(command, [str(file), "--baseline", "base"])
    assert result.output == output
    verdicts = [example[name].judgement.verdict for name in ("new", "wide")]
    assert verdicts == ["better", "no difference shown"]


def test_the_command_on_the_page_of_the_repository_gives_its_output(monkeypatch) -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (arguments,) = re.findall(r"^h2h judge (harness.*?) +#", page, re.MULTILINE)
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(command, shlex.split(arguments))
    assert f"```text\n{result.output}```" in page


def test_the_rates_of_stored_scores_are_those_of_the_simulated_chains() -> None:
    simulated = (ROOT / "docs" / "concepts" / "simulated-studies.md").read_text(encoding="utf-8")
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    stated = re.search(
        r"half a standard deviation .* made (\d+) % .* one standard deviation (\d+) %", text
    )
    assert stated
    for drift, percentage in zip(("0.5", "1"), stated.groups(), strict=True):
        row = re.search(
            rf"\| drift of {drift} sd; stored scores \| [\d.]+ \| ([\d.]+) \|", simulated
        )
        assert row
        assert round(float(row[1])) == int(percentage)
