"""A full disk or a folder that cannot be written: one line, exit code 2, and nothing lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_one_line_and_the_same_command_goes_on(
    study: Study, undisturbed: Study, same_results: Check, small_disk: Path
) -> None:
    arguments = ("--runs", str(small_disk / "runs"), "--set", "train.checkpoint_seconds=0")
    done = study.run(*arguments, code=2)
    assert done.stderr.strip().splitlines()[-1].startswith("h2h: cannot write to")
    assert "No space left on device" in done.stderr
    assert "then run the same command: what is done is kept" in done.stderr
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


def test_a_runs_folder_that_cannot_be_made_is_one_line(study: Study) -> None:
    done = study.run("--runs", "/proc/nowhere/runs", code=2)
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("h2h: cannot write to '/proc/nowhere")


def test_a_damaged_resume_point_is_one_line(study: Study) -> None:
    study.write(base={"train": {"steps": 1_000_000}})
    parent = study.start("--no-tracking", "--set", "train.checkpoint_seconds=0")
    while not any(study.experiment.glob(".stacks/*/resume.safetensors")):
        time.sleep(0.01)
    parent.kill()
    parent.communicate()
    resume = next(study.experiment.glob(".stacks/*/resume.safetensors"))
    resume.write_bytes(resume.read_bytes()[:1000])
    done = study.run(code=2)
    assert "resume.safetensors' is damaged" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_damaged_checkpoint_is_one_line(undisturbed: Study, study: Study) -> None:
    shutil.copytree(undisturbed.runs, study.runs)
    run = study.directories()[0]
    path = run / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:500])
    done = subprocess.run(
        study.command("translate", run.name, "the cat"), cwd=study.folder,
        env=study.environment, text=True, capture_output=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "is damaged" in done.stderr
    assert "delete it and run the same command again" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
