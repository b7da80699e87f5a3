"""Jobs through submitit: local processes on this machine, and a real Slurm if available."""

import os
import shutil
import signal
import subprocess

import psutil
import pytest

from launchers.conftest import ClusterStudy
from made.study import wait_for

pytest.importorskip("submitit", reason="submitit is missing: pip install submitit")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
LOCAL = ("--launcher", "slurm", "--launcher-option", "executor=local")


@pytest.fixture(scope="session")
def slurm() -> None:
    """Skip a test if there is no Slurm with an idle node, before its other fixtures train a study."""
    command = ["sinfo", "--noheader", "--states=idle", "--format=%D"]
    if (
        shutil.which("sinfo") is None
        or not subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=False
        ).stdout.strip()
    ):
        pytest.skip("no Slurm with an idle node here")


needs_slurm = pytest.mark.usefixtures("slurm")


def queued() -> set[str]:
    command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def numbers(study: ClusterStudy) -> dict[str, str]:
    paths = study.experiment.glob(".stacks/*/slurm-job")
    return {path.parent.name: path.read_text() for path in paths}


def test_a_killed_job_resumes_and_the_study_has_the_same_results(
    study: ClusterStudy, here: ClusterStudy
) -> None:
    # Cancelled jobs of other tests may have left a result in the same cache.
    before = set(study.cache.rglob("*_result.pkl"))
    with study.started(*LOCAL, "--workers", "2") as parent:
        wait_for(lambda: bool(study.begun() & study.holders_of_stacks().keys()), parent=parent)
        stack = min(study.begun() & study.holders_of_stacks().keys())
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
    assert study.results() == here.results()
    assert not numbers(study)
    assert set(study.cache.rglob("*_result.pkl")) <= before


@pytest.mark.parametrize("launcher", [LOCAL, LOCAL[:2]], ids=["local", "slurm"])
def test_no_job_outlives_an_interrupted_command(
    study: ClusterStudy, launcher: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    if launcher != LOCAL:
        request.getfixturevalue("slurm")
    study.write(base={"train": {"steps": 1_000_000}})
    with study.started(*launcher, "--workers", "2") as parent:
        # While it lays out the study, the command itself holds the leases.
        wait_for(lambda: len(numbers(study)) == 2 == len(study.holders_of_stacks()), parent=parent)
        workers = list(study.holders_of_stacks().values())
        parent.send_signal(signal.SIGINT)
        parent.communicate(timeout=150)
    wait_for(lambda: not any(map(psutil.pid_exists, workers)))


@needs_slurm
def test_slurm_gives_the_same_results_and_keeps_jobs_of_a_killed_command(
    study: ClusterStudy, here: ClusterStudy
) -> None:
    with study.started("--launcher", "slurm", "--workers", "2") as parent:
        wait_for(lambda: len(numbers(study)) == 2 and study.holders_of_stacks(), parent=parent)
        os.kill(parent.pid, signal.SIGKILL)
        parent.communicate()
    before = numbers(study)
    assert len(before) == 2
    assert set(before.values()) & queued()
    with study.started("--launcher", "slurm", "--workers", "2") as parent:
        output, _ = parent.communicate(timeout=240)
    assert parent.returncode == 0, output
    assert study.attempts() == [], "a job was submitted twice"
    assert study.results() == here.results()


@needs_slurm
def test_a_cancelled_job_is_submitted_again(study: ClusterStudy, here: ClusterStudy) -> None:
    with study.started("--launcher", "slurm", "--workers", "2") as parent:
        wait_for(lambda: bool(study.begun() & study.holders_of_stacks().keys()), parent=parent)
        stack = min(study.begun() & study.holders_of_stacks().keys())
        subprocess.run(["scancel", "--signal=KILL", numbers(study)[stack]], check=True)
        output, _ = parent.communicate(timeout=240)
    assert parent.returncode == 0, output
    assert "KILLED (the process died" in output
    assert study.results() == here.results()


@needs_slurm
def test_a_job_rejected_by_slurm_is_one_line(study: ClusterStudy) -> None:
    with study.started("--launcher", "slurm", "--launcher-option", "partition=nowhere") as parent:
        output, _ = parent.communicate(timeout=150)
    assert parent.returncode == 2
    assert output.splitlines()[-1] == (
        "h2h: cannot submit to Slurm: sbatch: error: Batch job submission failed: Invalid partition name specified"
    )
    assert "sbatch" not in "".join(output.splitlines()[:-1])
