"""The command line starts fast: no command imports a heavy package that it does not use."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import sys
from headtohead.cli import main
main(sys.argv[1:], standalone_mode=False)
print("\\n", *sys.modules)
"""
SCORES = "variant,seed,accuracy\nbase,1,0.8\nbase,2,0.82\nbase,3,0.81\nnew,1,0.9\nnew,2,0.93\nnew,3,0.91\n"
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
        (
            "judge scores.csv --baseline base",
            {"torch", "mlflow", "pydantic", "matplotlib", "rich", "scipy.stats"},
        ),
        *(
            pytest.param(arguments, heavy, marks=pytest.mark.slow)
            for arguments, heavy in (
                ("plugins", {"mlflow", "pandas", "scipy", "matplotlib", "sacrebleu"}),
                (
                    "plan tiny.yaml",
                    {"torch._dynamo", "torch._inductor", "sympy", "mlflow", "pandas", "matplotlib"},
                ),
                *((f"{name} --help", {"torch", "mlflow", "pandas"}) for name in ("report", "data")),
            )
        ),
    ],
)
def test_a_command_imports_no_heavy_package_that_it_does_not_use(
    arguments: str, heavy: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TINY)
    Path("scores.csv").write_text(SCORES)
    command = [sys.executable, "-c", CODE, *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {*done.stdout.splitlines()[-1].split()} & heavy == set()


@pytest.mark.slow
def test_a_worker_loads_no_distribution_functions() -> None:
    code = "import sys, headtohead.execution.worker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {*done.stdout.split()} & {"scipy.special", "scipy.stats", "pandas"} == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chosen", "shown"),
    [({}, "GOMP_SPINCOUNT = '20000'"), ({"OMP_WAIT_POLICY": "PASSIVE"}, "GOMP_SPINCOUNT = '0'")],
)
def test_waiting_threads_of_a_worker_do_not_spin_for_long(
    chosen: dict[str, str], shown: str
) -> None:
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))
    }
    variables |= {"OMP_DISPLAY_ENV": "verbose", **chosen}
    code = "import headtohead.execution.preload"
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True
    )
    assert shown in done.stderr


STEP = """
import sys
import torch
import headtohead.execution.preload
import headtohead.api
from headtohead.testing.tiny import tiny_config, tiny_data
from headtohead.training.loop import StackTraining

StackTraining(tiny_config(), [1], tiny_data(), torch.device("cpu")).run()
print("\\n", *sys.modules)
"""


@pytest.mark.slow
def test_a_run_trains_without_the_packages_of_the_report_and_of_the_compiler() -> None:
    done = subprocess.run([sys.executable, "-c", STEP], capture_output=True, text=True, check=True)
    heavy = {"pandas", "matplotlib", "jinja2", "mlflow", "sympy", "torch._dynamo"}
    assert {*done.stdout.splitlines()[-1].split()} & heavy == set()
