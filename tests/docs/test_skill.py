"""The instructions for coding agents, followed to the letter."""

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from headtohead.cli import main


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures", "fewest")
def test_every_command_of_the_skill_works_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("H2H_CACHE", str(tmp_path / "cache"))
    shown = CliRunner().invoke(main, ["skill"])
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", shown.output, re.DOTALL | re.MULTILINE)
    written = {"csv": "scores.csv", "yaml": "order.yaml"}
    answers = []
    for kind, text in blocks:
        if kind in written:
            Path(written[kind]).write_text(text, encoding="utf-8")
            continue
        assert kind == "sh"
        for line in text.splitlines():
            program, *arguments = shlex.split(line)
            assert program == "h2h"
            done = CliRunner().invoke(main, arguments, catch_exceptions=False)
            assert done.exit_code == 0, (line, done.output)
            if "json" in arguments:
                answers.append(json.loads(done.stdout))
    judged, before, decided, after, plan, status, answer, listed, checked = answers
    assert judged["contrasts"][0]["direction"] == "better"
    assert (before["incumbent"], decided["decision"]["kept"], after["incumbent"]) == (
        None,
        True,
        "gate",
    )
    run = CliRunner().invoke(
        main, ["show", f"runs/order/{status['runs'][0]['directory']}", "--format", "json"]
    )
    found = {"plan": plan, "status": status, "show": json.loads(run.stdout), "report": answer}
    found |= {"list": listed, "check": checked}
    for command, fields in re.findall(
        r"^\| `h2h (\w+) ?\w*` \| (.*) \|$", shown.output, re.MULTILINE
    ):
        for path in re.findall(r"`([\w.]+)`", fields):
            value = found.get(command)
            for name in path.split("."):
                value = (value[0] if isinstance(value, list) else value)[name]
