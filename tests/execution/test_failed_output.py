"""A study that fails or is interrupted names the fault, its log and the command that resumes."""

from __future__ import annotations

import re
import signal
import time
from typing import TYPE_CHECKING

import pytest

from headtohead import files
from headtohead.storage.stack import stack_folders

if TYPE_CHECKING:
    from .conftest import Study

HELPER = """
import multiprocessing

import headtohead as h2h

class Mine(h2h.plugin.Positional):
    def rotate(self, x, positions, role):
        return divided(x, 0)

def divided(x, by):
    if x.requires_grad and multiprocessing.parent_process() is not None:
        raise RuntimeError(f"cannot divide\\n  by {by}")
    return x

@h2h.plugin.hookimpl
def register_positionals():
    return {"mine": Mine}
"""

LISTENER = """
import headtohead as h2h

@h2h.plugin.hookimpl
def on_evaluation(run, step, metrics):
    if step >= 40 and run.name.count("-s1-"):
        raise ValueError("no more of this")
"""


def wait_for_a_step(study: Study) -> None:
    end = time.monotonic() + 240
    while not any((folder.read_progress() or {"step": 0})["step"] for folder in stack_folders(study.experiment)):
        assert time.monotonic() < end, "nothing is trained"
        time.sleep(0.01)


def line_of(text: str, part: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if part in line)


def with_plugin(study: Study, text: str, name: str | None = None) -> tuple[str, str]:
    (study.folder / "mine.py").write_text(text)
    if name is not None:
        study.write(baseline={"positional": name})
    return "--plugin", "mine.py"


def test_a_failed_stack_names_the_plugin_the_log_and_retry(study: Study) -> None:
    plugin = with_plugin(study, HELPER, "mine")
    done = study.run(*plugin, code=1)
    line = line_of(HELPER, "raise RuntimeError")
    reason = f"RuntimeError: cannot divide by 0 (mine.py:{line})"
    messages = done.stdout.splitlines()
    found = re.fullmatch(r"2 FAILED: (.*); log with the traceback: (.*)", messages[-2])
    assert found is not None, done.stdout
    assert found[1] == reason
    log = (study.folder / found[2]).read_text()
    assert "Traceback" in log
    assert "in divided" in log
    assert messages[-1] == (
        "not complete: 2 FAILED; h2h status tiny.yaml shows each; "
        "the same command with --retry retrains the failed runs"
    ).replace("tiny.yaml", str(study.file))

    again = study.run(*plugin, code=1)  # The same command would not resume, and the message does not suggest it.
    assert "resumes" not in done.stdout + again.stdout
    assert again.stdout.splitlines()[-2:] == messages[-2:]
    status = study.here(study.folder, "status", "tiny.yaml").stdout
    assert f"FAILED at step 0: {reason}" in status
    assert messages[-2] in status.splitlines()
    assert "the same h2h run with --retry retrains the failed runs" in status
    planned = study.here(study.folder, "plan", "tiny.yaml", *plugin, H2H_CACHE=str(study.cache))
    assert "nothing to run without --retry" in planned.stdout

    with_plugin(study, HELPER.replace("raise RuntimeError", "pass  # RuntimeError"), "mine")
    corrected = study.run(*plugin, "--retry")
    assert "report: reports/tiny/index.html" in corrected.stdout


@pytest.mark.slow
def test_a_failed_member_does_not_fail_the_other_member(study: Study) -> None:
    done = study.run(*with_plugin(study, LISTENER), code=1)
    line = line_of(LISTENER, "raise ValueError")
    messages = done.stdout.splitlines()
    assert messages[-2].startswith(f"1 FAILED: ValueError: no more of this (mine.py:{line}); log with the traceback: ")
    assert messages[-1].startswith("not complete: 1 DONE, 1 FAILED; ")
    assert messages[-1].endswith("the same command with --retry retrains the failed runs")
    (status,) = (
        files.read_json(path / "status.json") for path in study.directories() if study.states()[path.name] == "FAILED"
    )
    assert status["reason"] == f"ValueError: no more of this (mine.py:{line})"


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [False, True])
def test_ctrl_c_prints_the_command_that_resumes(study: Study, fresh: bool) -> None:
    study.write(base={"train": {"steps": 100_000}})
    flags = ("--fresh",) if fresh else ()
    parent = study.start("--no-tracking", *flags, "--set", "train.checkpoint_seconds=0")
    wait_for_a_step(study)
    parent.send_signal(signal.SIGINT)
    output, _ = parent.communicate(timeout=60)
    assert parent.returncode == 130
    assert "Aborted" not in output
    same = "the same command without --fresh" if fresh else "the same command"
    assert f"interrupted; finished runs are kept, and {same} resumes\n" in output
    assert "Traceback" not in output
    status = study.here(study.folder, "status", "tiny.yaml").stdout
    assert "INTERRUPTED" in status
    assert "the same h2h run resumes" in status
