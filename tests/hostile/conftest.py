"""Shared by the tests of damaged and hostile input: limits of time and memory, a study."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml


@dataclass(frozen=True)
class Ended:
    """A finished process: its streams, peak resident memory and processor time."""

    returncode: int
    stdout: str
    stderr: str
    peak_bytes: int
    cpu_seconds: float


Refusal = Callable[[object], str]


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
def h2h_process() -> Callable[..., Ended]:
    """Run ``h2h`` as a separate process in a folder, and measure its processor time and peak memory.

    The process is killed after ``timeout`` seconds; pass a larger value than the limit that the test asserts.
    """

    def run(folder: Path, *arguments: str, timeout: float = 60.0, **environment: str) -> Ended:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("H2H_", "MLFLOW_"))}
        command = [sys.executable, "-c", MEASURE, str(timeout), "-m", "headtohead.cli", *arguments]
        done = subprocess.run(command, cwd=folder, env=inherited | environment, capture_output=True, check=False)
        out, _, used = done.stdout.decode("utf-8", "replace").rpartition("\x1e")
        peak_bytes, cpu_seconds = used.split()
        error = done.stderr.decode("utf-8", "replace")
        return Ended(done.returncode, out, error, int(peak_bytes), float(cpu_seconds))

    return run


@pytest.fixture(scope="session")
def refusal() -> Refusal:
    """Return the error line of a command, which must be its only error output, with exit code 2 and no traceback."""

    def line(ended: object) -> str:
        stderr, code = ended.stderr, ended.returncode  # type: ignore[attr-defined]
        assert "Traceback" not in stderr, stderr
        lines = stderr.splitlines()
        assert (code, len(lines)) == (2, 1), (code, stderr)
        assert lines[0].startswith("h2h: "), stderr
        return str(lines[0].removeprefix("h2h: "))

    return line


SMALL: dict[str, Any] = {
    "question": "Does it matter?",
    "base": {
        "data": {"dataset": "toy-grammar", "size": 100},
        "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 16},
        "train": {"steps": 8, "batch_tokens": 128, "evaluate_every": 4},
    },
    "baseline": {"positional": "sinusoidal"},
    "design": [{"product": {"positional": ["sinusoidal", "none"]}}],
    "seeds": 2,
}


@dataclass(frozen=True)
class SmallStudy:
    """A finished study of two variants with two seeds; ``run`` is the baseline's first run, with all files."""

    folder: Path
    cache: Path
    here: Callable[..., subprocess.CompletedProcess[str]]

    @property
    def experiment(self) -> Path:
        return self.folder / "runs" / "small"

    @property
    def run(self) -> Path:
        return next(self.experiment.glob("sinusoidal-s1-*"))

    def runs(self, experiment: str = "small") -> list[Path]:
        """Return the run directories of an experiment."""
        return sorted(path.parent for path in (self.folder / "runs" / experiment).glob("[!.]*/run.json"))

    @property
    def stack(self) -> Path:
        return next(self.experiment.glob(".stacks/*"))

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call a command in this process; the argument RUN stands for the run's name."""
        words = [self.run_name if argument == "RUN" else argument for argument in arguments]
        if words[0] == "run":
            words += ["--no-tracking", "--workers", "1", "--threads", "1"]
        return self.here(self.folder, *words, H2H_CACHE=str(self.cache))

    @property
    def run_name(self) -> str:
        return next(path.name for path in self.experiment.iterdir() if path.name.startswith("sinusoidal-s1-"))

    def copy(self, folder: Path) -> SmallStudy:
        """Return a copy in another folder."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return SmallStudy(folder, self.cache, self.here)

    def change(self, path: Path, change: Callable[[Any], Any]) -> None:
        """Replace the content of a JSON file."""
        path.write_text(json.dumps(change(json.loads(path.read_text("utf-8")))), encoding="utf-8")

    def recompute_checksums(self) -> None:
        """Recompute the checksums of the run's files in status.json, as somebody who edits the files can."""
        status = self.run / "status.json"
        record = json.loads(status.read_bytes()) if status.is_file() else {}
        for name in record.get("files", ()):
            if (self.run / name).is_file() and (self.run / name).stat().st_size < 2**30:
                record["files"][name] = hashlib.sha256((self.run / name).read_bytes()).hexdigest()
                status.write_text(json.dumps(record), encoding="utf-8")


@pytest.fixture(scope="session")
def small_study(once: Callable[..., Path], cache: Path, h2h_here: Callable[..., Any], no_figures: Any) -> SmallStudy:
    """The undamaged study; tests damage a copy."""

    def train(folder: Path) -> None:
        study = SmallStudy(folder, cache, h2h_here)
        (folder / "small.yaml").write_text(yaml.safe_dump(SMALL, sort_keys=False))
        with no_figures():
            for command in (("run", "small.yaml"), ("ablate-heads", "RUN", "--no-decode")):
                done = study.call(*command)
                assert done.returncode == 0, done.stderr

    return SmallStudy(once("small", train), cache, h2h_here)
