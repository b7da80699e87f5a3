"""A full disk or a folder that cannot be written: one line, exit code 2, and nothing lost."""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from headtohead import files
from headtohead.errors import DiskError, HeadToHeadError, is_disk_error
from headtohead.execution.scheduler import _disk_errors
from headtohead.training import checkpoint
from made import mounted, read_only, with_limits
from made.study import Completed, Study, on_evaluation


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB, which a study fills while it trains."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder, "-t", "tmpfs", "-o", "size=2m", "tmpfs"):
        yield folder


FILLING = on_evaluation(
    "import contextlib\n"
    "if step == 40:\n"
    "    filler = open(run / 'filler', 'wb', buffering=0)\n"
    "    (run / 'filler').unlink()\n"
    "    with contextlib.suppress(OSError):\n"
    "        while True:\n"
    "            filler.write(bytes(4096))\n"
    "    while True:  # until the last page of the worker's log is full\n"
    "        print('x' * 500, flush=True)"
)


NO_TRACKING = {"run": ["--no-tracking"], "report": []}


def check_nothing_failed(done: Completed, experiment: Path) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("h2h: cannot write to")
    assert "then run the same command; finished runs are kept" in done.stderr
    assert "Traceback" not in done.stderr
    assert not any("FAILED" in path.read_text() for path in experiment.glob("*/status.json"))


@pytest.mark.slow
def test_a_full_disk_fails_no_run_and_the_same_command_resumes(
    study: Study, undisturbed: Study, small_disk: Path
) -> None:
    study.write(plugin=FILLING)
    arguments = ("--runs", str(small_disk / "runs"), "--set", "train.checkpoint_seconds=0")
    check_nothing_failed(study.run(*arguments, code=2), small_disk / "runs" / "tiny")
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    study.write()
    study.run(*arguments)
    shutil.copytree(small_disk / "runs", study.runs)
    assert study.results() == undisturbed.results()


def limited(study: Study, size: int, *arguments: str) -> Completed:
    """Run a command with a limit on the size of files, which raises EFBIG."""
    command = with_limits(study.command(*arguments), FSIZE=size)
    return subprocess.run(
        command,
        cwd=study.folder,
        env=study.environment,
        text=True,
        capture_output=True,
        timeout=200,
        check=False,
    )


@pytest.mark.slow
def test_a_file_size_limit_fails_no_run_and_every_command_is_one_line(
    study: Study, undisturbed: Study
) -> None:
    study.write(plugin=FILLING)
    done = limited(
        study, 500_000, "run", str(study.file), "--no-tracking", "--workers", "1", "--threads", "1"
    )
    check_nothing_failed(done, study.experiment)
    study.write()
    study.run()
    assert study.results() == undisturbed.results()
    done = limited(study, 100, "ablate-heads", study.directories()[0].name, "--no-decode")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "File too large" in done.stderr


def test_a_runs_folder_that_cannot_be_created_is_one_line(study: Study) -> None:
    (study.folder / "file").touch()
    for runs in ("file", "/proc/nowhere/runs"):
        assert study.run("--runs", runs, code=2).stderr.splitlines()[-1].startswith("h2h: ")


def test_a_finished_study_on_a_read_only_disk_is_reported(
    finished: Study, tmp_path_factory: pytest.TempPathFactory
) -> None:
    reports = tmp_path_factory.mktemp("reports")
    with read_only(finished.folder):
        for command in ("run", "report"):
            finished.h2h(
                command, "tiny.yaml", "--reports", str(reports / command), *NO_TRACKING[command]
            )
        done = finished.run("--seeds", "3", code=2)
    assert "cannot write to 'runs/tiny' (Read-only file system)" in done.stderr
    pages = [(reports / command / "tiny" / "report.md").read_text() for command in NO_TRACKING]
    assert pages[0] == pages[1]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_shipper_of_a_read_only_study_states_the_reason_and_logs_elsewhere(
    finished: Study, tmp_path_factory: pytest.TempPathFactory, store_template: Path
) -> None:
    folder = tmp_path_factory.mktemp("elsewhere")
    store = f"sqlite:///{shutil.copyfile(store_template, folder / 'mlflow.db')}"
    command = finished.command("run", "tiny.yaml", "--reports", str(folder))
    for variables, reason in (
        ({}, "Read-only file system"),
        ({"MLFLOW_TRACKING_URI": store}, "all runs are logged"),
    ):
        environment = finished.environment | {"H2H_CACHE": str(folder / "cache")} | variables
        environment["H2H_TRACKING_SECONDS"] = "240"  # for a busy machine
        with read_only(finished.folder):
            done = subprocess.run(
                command,
                cwd=finished.folder,
                env=environment,
                text=True,
                capture_output=True,
                timeout=280,
                check=False,
            )
        assert done.returncode == 0, done.stderr
        assert reason in done.stdout.splitlines()[-1]
        assert done.stderr == ""


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(bytes(40_000)),
        lambda path: checkpoint.save(path, {"a": torch.zeros(40_000)}, {}),
        lambda path: save_file({"a": np.zeros(40_000)}, path),
        lambda path: np.savez(path.with_suffix(".npz"), np.zeros(40_000)),
    ],
    ids=["bytes", "checkpoint", "maps", "prepared"],
)
def test_every_writer_of_large_files_reports_a_disk_error(
    tmp_path: Path, write: Callable[[Path], object]
) -> None:
    with pytest.raises(Exception, match=r"(?i)file too large") as caught:
        write(tmp_path / "a")
    assert is_disk_error(caught.value)


def test_disk_errors_are_recognised() -> None:
    for number in (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EROFS,
        errno.EACCES,
        errno.ETIMEDOUT,
    ):
        assert is_disk_error(OSError(number, os.strerror(number)))
    for number in (errno.ENOENT, errno.ECONNREFUSED):
        assert not is_disk_error(OSError(number, os.strerror(number)))
    wrapped = ValueError("a listener could not log")
    wrapped.__cause__ = OSError(errno.ENOSPC, "")
    assert is_disk_error(wrapped)
    assert not is_disk_error(ValueError("(os error 28)"))


@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.EACCES, errno.EISDIR])
def test_errors_of_a_plugin_are_not_errors_of_the_disk(tmp_path: Path, number: int) -> None:
    error = OSError(number, os.strerror(number))
    assert not is_disk_error(error, of_plugin=True)

    def fail(temporary: Path) -> None:
        raise error

    with pytest.raises(DiskError) as caught:
        files.replace(tmp_path / "a", fail)
    assert is_disk_error(caught.value, of_plugin=True)
    assert not list(tmp_path.iterdir())


def test_a_missing_file_that_has_no_name_is_no_error_of_the_study(tmp_path: Path) -> None:
    unnamed = FileNotFoundError("a launcher of a plugin lacks its program")
    with pytest.raises(FileNotFoundError) as caught, _disk_errors(tmp_path):
        raise unnamed
    assert caught.value is unnamed
    deleted = FileNotFoundError(errno.ENOENT, "", str(tmp_path / "run" / "status.json"))
    with pytest.raises(HeadToHeadError, match="run' was moved or deleted"), _disk_errors(tmp_path):
        raise deleted
