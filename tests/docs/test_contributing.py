"""The exercises of CONTRIBUTING.md work exactly as they are written."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("harness", "harness/judge", "plugins")
DATASET = Path("plugins/headtohead_plugins/datasets/addition.py")
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXERCISE = TEXT.partition("## Second exercise")[2].partition("\n## ")[0]

pytestmark = pytest.mark.slow


def block(kind: str) -> str:
    (body,) = re.findall(rf"```{kind}\n(.*?)```", EXERCISE, re.DOTALL)
    return textwrap.dedent(body)


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


@pytest.fixture
def h2h(tmp_path: Path, cache: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Copy the packages, change the dataset as the exercise states, and return a call of ``h2h``."""
    for folder in ("harness", "plugins"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    text = (ROOT / DATASET).read_text(encoding="utf-8")
    text = replaced(text, "from typing", "from collections.abc import Sequence\nfrom typing")
    text = replaced(text, "headtohead.data import ", "headtohead.data import EXACT_MATCH, Metric, ")
    text = replaced(text, "class Addition(", f"{block('python')}\n\nclass Addition(")
    (line,) = re.findall(r"and to the class: `(.*)`", EXERCISE)
    text = replaced(
        text, "    @classmethod\n    def task", f"    {line}\n\n    @classmethod\n    def task"
    )
    (tmp_path / DATASET).write_text(text, encoding="utf-8")
    (tmp_path / "digits.yaml").write_text(block("yaml"), encoding="utf-8")
    path = os.pathsep.join(str(tmp_path / name) for name in SOURCES)
    environment = os.environ | {"PYTHONPATH": path, "H2H_CACHE": str(cache)}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "headtohead.cli", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return call


def commands() -> list[list[str]]:
    lines = block("sh").splitlines()
    assert all(line.startswith(".venv/bin/h2h ") for line in lines)
    return [line.split()[1:] for line in lines]


def test_the_metric_of_the_exercise_is_the_share_of_right_digits(
    h2h: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    check, run = commands()
    checked = h2h(*check)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "0 violated" in checked.stdout
    done = h2h(*run, "--no-tracking")
    assert done.returncode == 0, done.stderr
    answer = json.loads((tmp_path / "reports/digits/answer.json").read_text(encoding="utf-8"))
    assert answer["metric"] == "test/digit_accuracy"
    for results in (tmp_path / "runs" / "digits").glob("*/results.json"):
        lines = (results.parent / "translations.tsv").read_text(encoding="utf-8").splitlines()[1:]
        right = total = 0
        for line in lines:
            _, reference, hypothesis, _ = line.split("\t")
            for position, digit in enumerate(reference.split()):
                total += 1
                right += hypothesis.split()[position : position + 1] == [digit]
        stored = json.loads(results.read_text(encoding="utf-8"))["metrics"]
        assert stored["test/digit_accuracy"] == pytest.approx(right / total)


def test_the_fault_of_the_exercise_fails_every_run_with_the_quoted_message(
    h2h: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    pattern = (
        r"return percent, `([^`]*)`, and add `([^`]*)`\. Every run ends as FAILED: \*([^*]*)\*"
    )
    ((fault, option, message),) = re.findall(pattern, EXERCISE)
    text = (tmp_path / DATASET).read_text(encoding="utf-8")
    right = fault.removeprefix("100 * ")
    (tmp_path / DATASET).write_text(replaced(text, right, fault), encoding="utf-8")
    done = h2h(*commands()[1], *option.split(), "--no-tracking")
    assert done.returncode == 1
    assert "not complete: 6 FAILED" in done.stdout + done.stderr
    assert " ".join(message.split()) in done.stdout + done.stderr
