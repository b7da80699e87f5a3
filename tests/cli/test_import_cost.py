"""The command line answers at once: help loads no heavy package, plugins no tracking."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

H2H = Path(sys.executable).parent / "h2h"
ATTEMPTS = 15
"""The machine may be busy with other tests: the promise holds if one of so many calls keeps it."""


def loaded_by(*arguments: str) -> set[str]:
    """Return the names of all modules that one call of h2h leaves in memory."""
    code = (
        "import sys\n"
        "from headtohead.cli import main\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "print('\\n', *sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def best_seconds(limit: float, *arguments: str) -> float:
    """Return the shortest of several calls, or the first that keeps the limit."""
    best = float("inf")
    for _ in range(ATTEMPTS):
        start = time.perf_counter()
        subprocess.run([str(H2H), *arguments], capture_output=True, check=True)
        best = min(best, time.perf_counter() - start)
        if best <= limit:
            break
    return best


def test_help_imports_no_heavy_package() -> None:
    heavy = {"torch", "numpy", "mlflow", "pandas", "scipy", "pydantic", "matplotlib", "rich"}
    assert loaded_by("--help") & heavy == set()


def test_help_answers_in_three_tenths_of_a_second() -> None:
    assert best_seconds(0.3, "--help") <= 0.3


def test_plugins_imports_no_tracking_and_no_analysis() -> None:
    heavy = {"mlflow", "pandas", "scipy", "matplotlib", "sacrebleu"}
    loaded = loaded_by("plugins")
    assert "torch" in loaded
    assert loaded & heavy == set()


def test_plugins_answers_in_two_seconds() -> None:
    assert best_seconds(2.0, "plugins") <= 2.0


@pytest.mark.parametrize("command", ["status", "report", "sync", "ui", "data"])
def test_help_of_a_command_imports_neither_torch_nor_mlflow(command: str) -> None:
    assert loaded_by(command, "--help") & {"torch", "mlflow", "pandas"} == set()
