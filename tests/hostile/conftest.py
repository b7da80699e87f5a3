"""Shared by the tests of damaged and hostile input: limits of time and memory, a study."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headtohead import files
from headtohead.storage.run_directory import checksums
from made import error_line
from made.fake_study import edit
from made.study import TINY, Completed, Study

MEASURE = """
import os, sys, threading
process = os.posix_spawn(sys.executable, [sys.executable, *sys.argv[2:]], os.environ)
timer = threading.Timer(float(sys.argv[1]), os.kill, (process, 9))
timer.start()
_, status, used = os.wait4(process, 0)
timer.cancel()
print(end=f"\\x1e{used.ru_maxrss * 1024} {used.ru_utime + used.ru_stime}")
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""A small process that starts Python: the peak memory of a process includes that of the process that started it."""


@pytest.fixture(scope="session")
def h2h_process() -> Callable[..., Any]:
    """Run ``h2h`` as a separate process in a folder, and measure its processor time and peak memory.

    The process is killed after ``timeout`` seconds; pass a larger value than the limit that the test asserts.
    """

    def run(
        folder: Path, *arguments: str, timeout: float = 60.0, **environment: str
    ) -> SimpleNamespace:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("H2H_", "MLFLOW_"))
        }
        command = [sys.executable, "-c", MEASURE, str(timeout), "-m", "headtohead.cli", *arguments]
        done = subprocess.run(
            command, cwd=folder, env=inherited | environment, capture_output=True, check=False
        )
        out, _, used = done.stdout.decode("utf-8", "replace").rpartition("\x1e")
        peak_bytes, cpu_seconds = map(float, used.split())
        error = done.stderr.decode("utf-8", "replace")
        return SimpleNamespace(
            returncode=done.returncode,
            stdout=out,
            stderr=error,
            peak_bytes=peak_bytes,
            cpu_seconds=cpu_seconds,
        )

    return run


@pytest.fixture
def refusal(tmp_path: Path, h2h_here: Callable[..., Completed]) -> Callable[..., str]:
    """Return the error line of a command in the folder of the test."""
    return lambda *arguments, **environment: error_line(
        h2h_here(tmp_path, *arguments, **environment)
    )


SMALL: dict[str, Any] = TINY | {
    "base": TINY["base"] | {"train": {"steps": 8, "batch_tokens": 128, "evaluate_every": 4}},
    "design": [{"product": {"positional": ["sinusoidal", "none"]}}],
}


@dataclass(frozen=True)
class SmallStudy(Study):
    """A finished study of two variants with two seeds; ``first`` is the baseline's first run, with all files."""

    content: Any = field(default_factory=lambda: SMALL)
    name: str = "small"

    @property
    def first(self) -> Path:
        return next(self.experiment.glob("sinusoidal-s1-*"))

    def refusal(self, *arguments: str) -> str:
        """Return the error line of a command; the argument RUN stands for the name of the first run."""
        return error_line(self.call(*arguments))

    def call(self, *arguments: str) -> Completed:
        words = [self.first.name if argument == "RUN" else argument for argument in arguments]
        if words[0] == "run":
            words += ["--no-tracking", "--workers", "1", "--threads", "1"]
        return self.here(self.folder, *words, H2H_CACHE=str(self.cache))

    def record_checksums(self) -> None:
        """Record the checksums of the first run's files as they are, as somebody who edits the files can."""
        status = self.first / "status.json"
        edit(status, files=files.read_json(status)["files"] | checksums(self.first))


@pytest.fixture(scope="session")
def small_study(
    once: Callable[..., Path], cache: Path, h2h_here: Callable[..., Any], no_figures: Any
) -> SmallStudy:
    """The undamaged study; tests damage a copy."""

    def train(folder: Path) -> None:
        study = SmallStudy(folder, cache, h2h_here)
        study.write()
        with no_figures():
            study.run()
            study.h2h("ablate-heads", study.first.name, "--no-decode")

    return SmallStudy(once("small", train), cache, h2h_here)


@pytest.fixture
def study(small_study: SmallStudy, tmp_path: Path, without_figures: None) -> SmallStudy:
    """A copy of the study."""
    shutil.copytree(small_study.folder, tmp_path, dirs_exist_ok=True)
    return replace(small_study, folder=tmp_path)
