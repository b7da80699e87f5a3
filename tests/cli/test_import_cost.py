"""The command line starts fast: help loads no heavy package, and plugins loads no tracking."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

H2H = Path(sys.executable).parent / "h2h"
ATTEMPTS = 2


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


TINY = """
question: q
base: {data: {dataset: toy-grammar, size: 400}, train: {epochs: 1}}
design: [{product: {positional: [sinusoidal, rotary, alibi]}}]
"""
LIBRARIES = {"torch", "numpy", "mlflow", "pandas", "scipy", "pydantic", "matplotlib", "rich"}


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        ("--help", LIBRARIES),
        *(
            pytest.param(arguments, heavy, marks=pytest.mark.slow)
            for arguments, heavy in (
                ("plugins", {"mlflow", "pandas", "scipy", "matplotlib", "sacrebleu"}),
                ("plan tiny.yaml", {"torch._dynamo", "torch._inductor", "sympy", "mlflow", "pandas", "matplotlib"}),
                *((f"{name} --help", {"torch", "mlflow", "pandas"}) for name in ("report", "sync", "ui", "data")),
            )
        ),
    ],
)
def test_a_command_imports_no_heavy_package_that_it_does_not_use(
    arguments: str, heavy: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TINY)
    assert loaded_by(*arguments.split()) & heavy == set()


@pytest.mark.slow
def test_help_takes_at_most_three_tenths_of_a_second() -> None:
    assert best_seconds(H2H, "--help", limit=0.3) <= 0.3


@pytest.mark.slow
def test_plugins_takes_two_seconds_or_little_more_than_importing_torch() -> None:
    seconds = best_seconds(H2H, "plugins", limit=2.0)
    if seconds > 2.0:  # On a slow or busy machine, importing torch can take that long.
        assert seconds <= 1.5 * best_seconds(sys.executable, "-c", "import torch")
