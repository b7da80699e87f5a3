"""The log of ``-v`` and ``--log-file``, also of workers."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headtohead import logs
from made import error_line
from made.study import Study

Command = Callable[..., Any]


@pytest.fixture(autouse=True)
def without_handlers() -> Iterator[None]:
    """Remove the handlers of a test's last command."""
    yield
    logs.configure(0, None)


@pytest.fixture
def h2h(tmp_path: Path, cache: Path, h2h_here: Command) -> Command:
    study = Study(tmp_path, cache, h2h_here)
    study.write(base={"train": {"steps": 3, "evaluate_every": 3}}, seeds=1)
    return lambda *arguments: h2h_here(tmp_path, *arguments, H2H_CACHE=str(cache))


@pytest.mark.slow
def test_the_log_file_has_the_steps_of_the_command_and_of_its_worker(
    tmp_path: Path, h2h: Command
) -> None:
    done = h2h("-vv", "--log-file", "h2h.log", "run", "tiny.yaml", "--no-tracking", "--no-report")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "h2h.log").read_text("utf-8").splitlines()
    pattern = re.compile(r"\d{4}-\d\d-\d\d [\d:,]+ (INFO|DEBUG) (headtohead[\w.]*)\[(\d+)\]: (.+)")
    found = [pattern.fullmatch(line) for line in lines]
    assert all(found), lines
    process = {match[2]: match[3] for match in found if match}
    assert process["headtohead.execution.worker"] != process["headtohead.execution.scheduler"]
    messages = [match[4] for match in found if match]
    assert "planned tiny: 1 variants, 1 runs, 1 to run" in messages
    assert "baseline: trained 3 steps, scoring the test part" in messages
    assert any(re.match(r"baseline-s1-\w{8}: step 3: {", message) for message in messages)
    assert "INFO headtohead.planning.planner" in done.stderr
    assert "headtohead.execution.worker" not in done.stderr
    (log,) = tmp_path.glob("runs/tiny/.stacks/*/worker.log")
    assert "baseline: results written" in log.read_text("utf-8")


def test_a_verbose_command_adds_the_traceback_of_an_error(h2h: Command) -> None:
    plain, verbose = h2h("plan", "absent.yaml"), h2h("-v", "plan", "absent.yaml")
    assert plain.stderr == (
        "h2h: experiment file 'absent.yaml' does not exist; h2h new-experiment writes one\n"
    )
    assert verbose.returncode == 2
    assert "Traceback (most recent call last)" in verbose.stderr
    assert verbose.stderr.endswith(plain.stderr)


def test_a_log_file_that_cannot_be_written_is_one_line(h2h: Command) -> None:
    done = h2h("--log-file", "absent/h2h.log", "plan", "tiny.yaml")
    assert error_line(done).startswith(
        "cannot write the log file 'absent/h2h.log' (No such file or directory); "
    )
