"""Jobs through submitit: local processes on this machine, and a real Slurm if available."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from .conftest import Study

pytest.importorskip("submitit", reason="submitit is missing: pip install 'headtohead[slurm]'")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
Wait = Callable[..., None]
LOCAL = ("--launcher", "slurm", "--launcher-option", "executor=local", "--workers", "4")


def has_slurm() -> bool:
    if shutil.which("sinfo") is None:
        return False
    command = ["sinfo", "--noheader", "--states=idle", "--format=%D"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return bool(done.stdout.strip())


@pytest.fixture(scope="session")
def slurm() -> None:
    """Ask when the first test needs it: a controller that is down answers after seconds.

    Of the session, so that a test is skipped before its other fixtures train a study.
    """
    if not has_slurm():
        pytest.skip("no Slurm with an idle node here")


needs_slurm = pytest.mark.usefixtures("slurm")


def queued() -> set[str]:
    command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def numbers(study: Study) -> dict[str, str]:
    paths = study.experiment.glob(".stacks/*/slurm-job")
    return {path.parent.name: path.read_text() for path in paths}


def test_a_killed_job_resumes_and_the_study_has_the_same_results(study: Study, here: Study, wait_for: Wait) -> None:
    # Cancelled jobs of other tests may have left a result in the same cache.
    before = set(study.cache.rglob("*_result.pkl"))
    with study.started(*LOCAL) as parent:
        wait_for(lambda: bool(study.begun() & study.holders().keys()), parent=parent)
        stack = min(study.begun() & study.holders().keys())
        # submitit exchanges pickles, which are never loaded from a study.
        assert list(study.runs.rglob("*.pkl")) == []
        assert list(study.cache.rglob("*_submitted.pkl")) != []
        # The process that submitit started for this stack, and its child processes.
        top = psutil.Process(int(numbers(study)[stack]))
        tree = [*top.children(recursive=True), top]
        for process in tree:
            process.suspend()  # so that no process reports the end of another before it ends itself
        for process in tree:
            process.kill()
        output, _ = parent.communicate(timeout=240)
    assert parent.returncode == 0, output
    assert output.count("KILLED (the process died (SIGKILL))") == 1, output
    assert [attempt["state"] for attempt in study.attempts()] == ["KILLED", "KILLED"]
    assert study.began_anew() == []
    assert study.content() == here.content()
    assert not numbers(study)
    assert set(study.cache.rglob("*_result.pkl")) <= before


def test_no_job_outlives_an_interrupted_command(study: Study, wait_for: Wait) -> None:
    study.write(train={"steps": 1_000_000})
    with study.started(*LOCAL) as parent:
        wait_for(lambda: len(study.holders()) == 4, parent=parent)
        workers = list(study.holders().values())
        parent.send_signal(signal.SIGINT)
        parent.communicate(timeout=150)
    wait_for(lambda: not any(map(psutil.pid_exists, workers)))


@needs_slurm
def test_slurm_gives_the_same_results_and_keeps_jobs_of_a_killed_command(
    study: Study, here: Study, wait_for: Wait
) -> None:
    with study.started("--launcher", "slurm") as parent:
        wait_for(lambda: bool(study.holders()), parent=parent)
        os.kill(parent.pid, signal.SIGKILL)
        parent.communicate()
    before = numbers(study)
    assert len(before) == 4
    assert set(before.values()) & queued()
    with study.started("--launcher", "slurm") as parent:
        output, _ = parent.communicate(timeout=240)
    assert parent.returncode == 0, output
    assert study.attempts() == [], "a job was submitted twice"
    assert study.content() == here.content()


@needs_slurm
def test_slurm_cancels_the_jobs_of_an_interrupted_command(study: Study, wait_for: Wait) -> None:
    study.write(train={"steps": 1_000_000})
    with study.started("--launcher", "slurm") as parent:
        wait_for(lambda: bool(study.holders()), parent=parent)
        ours = set(numbers(study).values())
        parent.send_signal(signal.SIGINT)
        parent.communicate(timeout=150)
    wait_for(lambda: not ours & queued())
    assert not numbers(study)


@needs_slurm
def test_a_cancelled_job_is_submitted_again(study: Study, here: Study, wait_for: Wait) -> None:
    with study.started("--launcher", "slurm") as parent:
        wait_for(lambda: bool(study.begun() & study.holders().keys()), parent=parent)
        stack = min(study.begun() & study.holders().keys())
        subprocess.run(["scancel", "--signal=KILL", numbers(study)[stack]], check=True)
        output, _ = parent.communicate(timeout=240)
    assert parent.returncode == 0, output
    assert "KILLED (the process died" in output
    assert study.content() == here.content()


@needs_slurm
def test_a_job_rejected_by_slurm_is_one_line(study: Study) -> None:
    with study.started("--launcher", "slurm", "--launcher-option", "partition=nowhere") as parent:
        output, _ = parent.communicate(timeout=150)
    assert parent.returncode == 2
    assert output.splitlines()[-1] == (
        "h2h: Slurm rejected the job: sbatch: error: Batch job submission failed: Invalid partition name specified"
    )
    assert "sbatch" not in "".join(output.splitlines()[:-1])
