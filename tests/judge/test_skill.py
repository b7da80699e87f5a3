"""The instructions for coding agents in the wheel of the judge, followed to the letter."""

import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from headtohead_judge.command import command


def test_every_command_of_the_skill_works_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = CliRunner().invoke(command, ["--skill"])
    assert page.exit_code == 0
    answers = []
    for kind, text in re.findall(r"^```(\w+)\n(.*?)^```$", page.output, re.DOTALL | re.MULTILINE):
        if kind == "csv":
            Path("scores.csv").write_text(text, encoding="utf-8")
            continue
        if kind == "bash":
            continue
        for line in text.splitlines():
            program, *arguments = shlex.split(line)
            assert program == "headtohead-judge"
            done = CliRunner().invoke(command, arguments, catch_exceptions=False)
            assert done.exit_code == 0, (line, done.output)
            answers.append(json.loads(done.stdout))
    judged, before, needed, decided, after, same = answers
    assert judged["contrasts"][0]["direction"] == "better"
    assert "largest_possible" in judged["contrasts"][0]
    assert before["incumbent"] is None
    assert needed["more_seeds"] == 0
    assert decided["decision"]["kept"] is True
    assert (after["incumbent"], len(after["incumbent_seeds"])) == ("gate", 6)
    assert (same["exit_code"], "seeds_needed" in same) == (0, True)


TRAIN = """\
train() { grep "^$1,$2," trained.csv >> scores.csv; }
headtohead-judge() { "$PYTHON" -m headtohead_judge "$@"; }
"""
"""The two programs that the loop calls; all runs have been trained before."""

MEANS = {"main": 2.3, "smear": 2.2, "wide": 2.5, "rope": 2.3}
"""Mean loss of each variant of the loop."""


def write_trained(path: Path) -> None:
    """Write a row for every seed of every variant."""
    generator = random.Random(1)
    rows = []
    for variant, mean in MEANS.items():
        for seed in range(1, 200):
            rows.append(f"{variant},{seed},{generator.gauss(mean, 0.02)}\n")
    path.write_text("".join(rows), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("jq") and shutil.which("bash")), reason="needs bash and jq")
def test_the_loop_of_the_skill_keeps_an_improvement_and_removes_other_changes(
    tmp_path: Path,
) -> None:
    page = CliRunner().invoke(command, ["--skill"]).output
    (loop,) = re.findall(r"^```bash\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    write_trained(tmp_path / "trained.csv")
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", "-c", TRAIN + loop],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["smear is the incumbent", "remove wide", "remove rope"]
    decisions = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert [decision["kept"] for decision in decisions] == [True, False, False]
    first, *_, last = (set(decision["scores"]) for decision in decisions)
    assert not first & last
