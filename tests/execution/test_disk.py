"""A full disk or a folder that cannot be written: one line, exit code 2, and nothing lost."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from headtohead import files
from headtohead.errors import DiskError, is_disk_error
from headtohead.training import checkpoint

if TYPE_CHECKING:
    from .conftest import Study

Check = Callable[["Study", "Study"], None]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB, which a study fills while it trains."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("mounting a small tmpfs needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_one_line_and_the_same_command_resumes(
    study: Study, undisturbed: Study, same_results: Check, small_disk: Path
) -> None:
    arguments = ("--runs", str(small_disk / "runs"), "--set", "train.checkpoint_seconds=0")
    done = study.run(*arguments, code=2)
    assert done.stderr.strip().splitlines()[-1].startswith("h2h: cannot write to")
    assert "No space left on device" in done.stderr
    assert "then run the same command; finished runs are kept" in done.stderr
    assert "Traceback" not in done.stderr
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    study.run(*arguments)
    shutil.copytree(small_disk / "runs", study.runs)
    same_results(study, undisturbed)


def test_a_runs_folder_that_is_a_file_is_one_line(study: Study) -> None:
    study.runs.write_text("")
    done = study.run(code=2)
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("h2h: runs folder")


def test_a_runs_folder_that_cannot_be_created_is_one_line(study: Study) -> None:
    done = study.run("--runs", "/proc/nowhere/runs", code=2)
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("h2h: cannot write to '/proc/nowhere")


FILLING = """
import contextlib
import headtohead as h2h

KEPT = []

@h2h.plugin.hookimpl
def on_evaluation(run, step, metrics):
    '''Fill the disk until the worker ends, and then the last page of its log.'''
    if step == 40:
        KEPT.append(open(run / "filler", "wb", buffering=0))
        (run / "filler").unlink()
        with contextlib.suppress(OSError):
            while True:
                KEPT[0].write(bytes(4096))
        while True:
            print("x" * 500, flush=True)
"""


@pytest.fixture
def filling(study: Study) -> tuple[str, ...]:
    plugin = study.folder / "filling.py"
    plugin.write_text(FILLING)
    return "--plugin", str(plugin)


def check_nothing_failed(done: subprocess.CompletedProcess[str], experiment: Path) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("h2h: cannot write to")
    assert "then run the same command; finished runs are kept" in done.stderr
    assert "Traceback" not in done.stderr
    logged = [path.read_text() for path in experiment.glob("*/status.json")]
    assert len(logged) == 2
    assert not any("FAILED" in text for text in logged)


@pytest.mark.slow
def test_a_full_disk_without_room_for_the_traceback_fails_no_run(
    study: Study, undisturbed: Study, same_results: Check, small_disk: Path, filling: tuple[str, ...]
) -> None:
    subprocess.run(["mount", "-o", "remount,size=2m", str(small_disk)], check=True)
    runs = ("--runs", str(small_disk / "runs"))
    done = study.run(*runs, *filling, code=2)
    check_nothing_failed(done, small_disk / "runs" / "tiny")
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    study.run(*runs)
    shutil.copytree(small_disk / "runs", study.runs)
    same_results(study, undisturbed)


@pytest.mark.slow
def test_a_file_size_limit_fails_no_run(
    study: Study, undisturbed: Study, same_results: Check, filling: tuple[str, ...]
) -> None:
    """The same without a mounted disk: a limit on the size of files raises EFBIG."""
    command = study.command("run", str(study.file), "--no-tracking", "--workers", "1", *filling)
    limited = [sys.executable, "-c", LIMIT.format(bytes=500_000), *command]
    done = subprocess.run(
        limited, cwd=study.folder, env=study.environment, text=True, capture_output=True, timeout=200, check=False
    )
    check_nothing_failed(done, study.experiment)
    study.run()
    same_results(study, undisturbed)


LIMIT = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes}, {bytes}))
# Python 3.11 would replace compiled modules by cut ones, which no later process can import.
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def small_files() -> Iterator[None]:
    """Limit files of this process to 4 KiB; Python ignores the signal of the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("how", ["bytes", "checkpoint", "maps", "prepared"])
def test_every_writer_of_large_files_reports_a_disk_error(tmp_path: Path, how: str) -> None:
    numbers = np.zeros(40_000)
    write: dict[str, Callable[[], object]] = {
        "bytes": lambda: (tmp_path / "a").write_bytes(numbers.tobytes()),
        "checkpoint": lambda: checkpoint.save(tmp_path / "a", {"a": torch.zeros(40_000)}, {}),
        "maps": lambda: save_file({"a": numbers}, tmp_path / "a"),
        "prepared": lambda: np.savez(tmp_path / "a.npz", numbers),
    }
    with pytest.raises(Exception, match=r"(?i)file too large") as caught:
        write[how]()
    assert is_disk_error(caught.value)


@pytest.mark.parametrize(
    ("number", "full"),
    [
        (errno.ENOSPC, True),
        (errno.EDQUOT, True),
        (errno.EFBIG, True),
        (errno.EROFS, True),
        (errno.EACCES, True),
        (errno.ENOENT, False),
        (errno.ECONNREFUSED, False),
    ],
)
def test_disk_errors_are_recognised(number: int, full: bool) -> None:
    error = OSError(number, os.strerror(number))
    assert is_disk_error(error) is full
    wrapped = ValueError("a listener could not log")
    wrapped.__cause__ = error
    assert is_disk_error(wrapped) is full
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
    assert caught.value.errno == number
    assert not list(tmp_path.iterdir())
    assert is_disk_error(OSError(errno.ENOSPC, "No space left on device"), of_plugin=True)


DENIED = """
import headtohead as h2h

@h2h.plugin.hookimpl
def on_evaluation(run, step, metrics):
    if "-s1-" in run.name:
        raise {error}
"""


@pytest.mark.parametrize(
    "error", ["TimeoutError(110, 'Connection timed out')", "PermissionError(13, 'Permission denied')"]
)
def test_a_plugin_without_permission_fails_its_run_alone(study: Study, error: str) -> None:
    plugin = study.folder / "denied.py"
    plugin.write_text(DENIED.format(error=error))
    study.write(base={"train": {"steps": 4, "evaluate_every": 2}}, seeds=2)
    done = study.run("--plugin", str(plugin), code=1)
    assert sorted(study.states().values()) == ["DONE", "FAILED"], done.stderr


@pytest.mark.slow
def test_any_command_on_a_full_disk_is_one_line(undisturbed: Study, study: Study) -> None:
    shutil.copytree(undisturbed.runs, study.runs)
    run = study.directories()[0]
    done = subprocess.run(
        [sys.executable, "-c", LIMIT.format(bytes=100), *study.command("ablate-heads", run.name, "--no-decode")],
        cwd=study.folder,
        env=study.environment,
        text=True,
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("h2h: cannot read or write a file ([Errno 27] File too large")
    assert len(done.stderr.strip().splitlines()) == 1
