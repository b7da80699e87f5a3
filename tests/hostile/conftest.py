"""Shared by the tests of damaged and hostile input: a table of cases per module, limits of time and memory.

A module with cases defines ``CASES``, a sequence of objects with the attributes ``kind`` and ``name``. A test with an
argument ``case`` runs once per case. The first case of each kind belongs to the default tier, the others to the slow
tier.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise ``case`` with the module's CASES."""
    if "case" not in metafunc.fixturenames:
        return
    kinds: set[str] = set()
    parameters = []
    for case in metafunc.module.CASES:
        marks = [pytest.mark.slow] if case.kind in kinds else []
        kinds.add(case.kind)
        parameters.append(pytest.param(case, id=f"{case.kind}-{case.name}", marks=marks))
    metafunc.parametrize("case", parameters)


@dataclass(frozen=True)
class Ended:
    """A finished process: its streams, duration, processor time and peak resident memory."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float
    peak_bytes: int
    cpu_seconds: float


Refusal = Callable[[object], str]


@pytest.fixture(scope="session")
def h2h_process() -> Callable[..., Ended]:
    """Run ``h2h`` as a process of its own in a folder, and measure its duration and peak memory.

    The process is killed after ``timeout`` seconds; pass a larger value than the limit that the test asserts.
    """

    def run(folder: Path, *arguments: str, timeout: float = 60.0, **environment: str) -> Ended:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("H2H_", "MLFLOW_"))}
        command = [sys.executable, "-m", "headtohead.cli", *arguments]
        out, err = folder / ".stdout", folder / ".stderr"
        started = time.monotonic()
        with out.open("w") as stdout, err.open("w") as stderr:
            process = subprocess.Popen(
                command, cwd=folder, env=inherited | environment, stdout=stdout, stderr=stderr, start_new_session=True
            )
            while True:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    break
                if time.monotonic() - started > timeout:
                    process.kill()
                    os.wait4(process.pid, 0)
                    pytest.fail(f"{' '.join(arguments)} did not end within {timeout:.0f} s")
                time.sleep(0.01)
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = [path.read_text(encoding="utf-8", errors="replace") for path in (out, err)]
        seconds = time.monotonic() - started
        return Ended(process.returncode, *texts, seconds, usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime)

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
