"""What launchers and other machines refuse, before anything is trained."""

import sys
from pathlib import Path

import pytest

from headtohead.errors import HeadToHeadError
from headtohead.execution.cluster import FOLDER_TOKEN, ClusterLauncher
from headtohead.execution.launching import find_device, make_launcher
from headtohead.plugin import Job
from launchers.conftest import ClusterStudy
from made import case_table, free_port


def refused(study: ClusterStudy, *arguments: str) -> str:
    lines = study.h2h(
        "run", str(study.file), "--no-tracking", *arguments, code=2
    ).stderr.splitlines()
    (line,) = [line for line in lines if not line.startswith(("training", "note"))]
    assert not study.experiment.joinpath("report.md").exists()
    return line


@case_table(
    ("launcher", "option", "message"),
    [
        ("local", "address=head", "launcher 'local': unknown field 'address'"),
        ("ray", "adress=x", "launcher 'ray': unknown field 'adress'; did you mean 'address'?"),
        ("slurm", "minutes=0", "minutes: must be greater than or equal to 1, got 0"),
        ("slurm", "minutes", "expected NAME=VALUE"),
        ("slurm", "executor=lokal", "did you mean 'local'?"),
        ("rai", "address=x", "unknown launcher 'rai'; did you mean 'ray'?"),
    ],
    default=3,
)
def test_an_unknown_option_is_one_line(
    study: ClusterStudy, launcher: str, option: str, message: str
) -> None:
    assert message in refused(study, "--launcher", launcher, "--launcher-option", option)
    assert not study.experiment.exists()


@pytest.mark.parametrize(("name", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_a_missing_extra_is_one_line(
    study: ClusterStudy, name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert refused(study, "--launcher", name).endswith(f"run pip install {package}")


def test_an_unreachable_address_is_one_line(study: ClusterStudy) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
    for address in (f"127.0.0.1:{free_port()}", "ray://head:10001", "head"):
        line = refused(study, "--launcher", "ray", "--launcher-option", f"address={address}")
        assert line.startswith(f"h2h: cannot join a Ray cluster at '{address}': ")


def test_missing_slurm_commands_are_one_line(
    study: ClusterStudy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused(study, "--launcher", "slurm").startswith(
        'h2h: cannot submit to Slurm: Could not detect "srun"'
    )


def test_gpus_are_looked_up_on_the_machine_that_runs_the_stacks(study: ClusterStudy) -> None:
    assert find_device("auto", make_launcher("slurm", {"gpus": 1})) == "cuda"
    assert find_device("auto", make_launcher("slurm", {})) == "cpu"
    assert "device 'cuda' is not available" in refused(
        study, "--launcher", "slurm", "--device", "cuda"
    )


@pytest.mark.parametrize("device", ["cuda:1", ""])
def test_an_unknown_device_is_an_error_with_the_values_to_type(device: str) -> None:
    with pytest.raises(
        HeadToHeadError,
        match=f"unknown device '{device}'; use --device auto, cpu or cuda, with CUDA",
    ):
        find_device(device, make_launcher("slurm", {}))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    folder = tmp_path / "runs" / "tiny" / ".stacks" / "one"
    folder.mkdir(parents=True)
    return Job(folder, "cpu")


@pytest.mark.parametrize("content", ["a copy from last week", None])
def test_a_folder_with_the_same_path_and_another_token_is_another_folder(
    job: Job, content: str | None
) -> None:
    sent = ClusterLauncher.arguments(job)
    if content is None:
        (job.stack / FOLDER_TOKEN).unlink()
    else:
        (job.stack / FOLDER_TOKEN).write_text(content)
    refused = ClusterLauncher.train(*sent)
    assert isinstance(refused, str)
    assert (
        f"folder '{job.stack.parents[2]}'; choose a folder that all machines share with --runs"
        in refused
    )


def test_another_code_version_on_the_other_machine_is_refused(job: Job) -> None:
    job, token, _ = ClusterLauncher.arguments(job)
    refused = ClusterLauncher.train(job, token, "0.1.0 (code 12345678)")
    assert isinstance(refused, str)
    assert refused.endswith("this machine 0.1.0 (code 12345678); install the same version on both")
