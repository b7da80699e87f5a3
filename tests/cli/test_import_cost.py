"""The command line starts fast: help loads no heavy package, and plugins loads no tracking."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

H2H = Path(sys.executable).parent / "h2h"
ATTEMPTS = 4


def loaded_by(*arguments: str) -> set[str]:
    """Return the names of all modules that a call of h2h imports."""
    code = (
        "import sys\n"
        "from headtohead.cli import main\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "print('\\n', *sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def best_seconds(*command: str | Path, limit: float = 0.0) -> float:
    """Return the processor time of the fastest of some calls, or of the first within the limit.

    The calls do not wait for input or output, so this is the wall time on an otherwise idle machine.
    """
    best = float("inf")
    for _ in range(ATTEMPTS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        best = min(best, used)
        if best <= limit:
            break
    return best


def test_help_imports_no_heavy_package() -> None:
    heavy = {"torch", "numpy", "mlflow", "pandas", "scipy", "pydantic", "matplotlib", "rich"}
    assert loaded_by("--help") & heavy == set()


@pytest.mark.slow
def test_help_takes_at_most_three_tenths_of_a_second() -> None:
    assert best_seconds(H2H, "--help", limit=0.3) <= 0.3


@pytest.mark.slow
def test_plugins_imports_no_tracking_and_no_analysis() -> None:
    heavy = {"mlflow", "pandas", "scipy", "matplotlib", "sacrebleu"}
    loaded = loaded_by("plugins")
    assert "torch" in loaded
    assert loaded & heavy == set()


@pytest.mark.slow
def test_plugins_takes_two_seconds_or_little_more_than_importing_torch() -> None:
    seconds = best_seconds(H2H, "plugins", limit=2.0)
    if seconds > 2.0:  # On a slow or busy machine, importing torch can take that long.
        assert seconds <= 1.5 * best_seconds(sys.executable, "-c", "import torch")


@pytest.mark.slow
def test_plan_imports_neither_tracking_nor_figures_nor_a_compiler(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        "question: q\n"
        "base: {data: {dataset: toy-grammar, size: 400}, train: {epochs: 1}}\n"
        "design: [{product: {positional: [sinusoidal, rotary, alibi]}}]\n"
    )
    heavy = {"torch._dynamo", "torch._inductor", "sympy", "mlflow", "pandas", "matplotlib"}
    loaded = loaded_by("plan", str(file), "--runs", str(tmp_path / "runs"))
    assert "headtohead.model.counting" in loaded
    assert loaded & heavy == set()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["status", "report", "sync", "ui", "data"])
def test_help_of_a_command_imports_neither_torch_nor_mlflow(command: str) -> None:
    assert loaded_by(command, "--help") & {"torch", "mlflow", "pandas"} == set()
