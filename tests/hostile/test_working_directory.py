"""Commands in a folder with a Python file of every module that headtohead or a library of it can import."""

from __future__ import annotations

import ast
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import headtohead
import headtohead_plugins

ENTRIES = {"script": [str(Path(sys.executable).with_name("h2h"))], "module": [sys.executable, "-m", "headtohead.cli"]}

STUDY = """
question: Does it start?
base:
  data: {dataset: toy-grammar, size: 200}
  model: {d_model: 8, heads: 2, layers: 1, d_ff: 16}
  train: {steps: 20, batch_tokens: 128, evaluate_every: 10}
baseline: {positional: sinusoidal}
design:
  - product: {positional: [sinusoidal, rotary]}
seeds: 2
"""

LOG = "executed.log"

ATTRIBUTES = {"Popen", "run", "call", "check_call", "check_output", "system", "popen", "fork", "posix_spawn"}
"""Functions of ``subprocess`` and ``os`` that start programs."""


@cache
def before_headtohead() -> set[str]:
    """Return what ``python -m headtohead.cli`` imports before any code of headtohead; docs/security.md states it."""
    code = "import runpy, sys; print(*(name.partition('.')[0] for name in sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    return {"headtohead", *done.stdout.split()}


class PlantedFolder:
    """A folder with a file of every importable name, each of which appends its name to a log."""

    def __init__(self, path: Path, entry: str) -> None:
        self.path, self.entry = path, entry
        names = {
            *sys.stdlib_module_names,
            *packages_distributions(),
            "headtohead",
            "headtohead_plugins",
            "sitecustomize",
        }
        code = f"open({str(path / LOG)!r}, 'a').write(__name__ + '\\n')\n"
        for name in names - (before_headtohead() if entry == "module" else set()):
            if name.isidentifier():
                (path / f"{name}.py").write_text(code)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("H2H_", "MLFLOW_", "PYTHON"))}
        self.environment = kept | {"H2H_CACHE": str(path / "cache"), "PYTHONUNBUFFERED": "1"}

    @property
    def executed(self) -> set[str]:
        log = self.path / LOG
        return set(log.read_text().split()) if log.exists() else set()

    def ends(self, code: int, *arguments: str) -> str:
        command = [*ENTRIES[self.entry], *arguments]
        done = subprocess.run(
            command, cwd=self.path, env=self.environment, capture_output=True, text=True, timeout=240, check=False
        )
        assert self.executed == set(), arguments
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return done.stdout


@pytest.fixture(params=["script", pytest.param("module", marks=pytest.mark.slow)])
def planted(request: pytest.FixtureRequest, tmp_path: Path) -> PlantedFolder:
    return PlantedFolder(tmp_path, request.param)


def test_the_command_line_imports_no_file_of_the_working_directory(planted):
    planted.ends(0, "list")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_command_imports_a_file_of_the_working_directory(planted):
    (planted.path / "study.yaml").write_text(STUDY)
    rows = [f"{variant},{seed},{seed + (variant == 'b') * seed * seed}" for variant in "ab" for seed in (1, 2, 3)]
    (planted.path / "scores.csv").write_text("\n".join(["variant,seed,score", *rows]) + "\n")
    planted.ends(0, "run", "study.yaml", "--try", "--steps", "2")
    planted.ends(0, "run", "study.yaml", "--logger", "tensorboard")
    run = sorted(path.parent.name for path in (planted.path / "runs" / "study").glob("*/run.json"))[0]
    commands = f"""
        plan study.yaml; reproduce {run}; status study; show {run}; report study; sync study
        check dataset/toy-grammar; plugins; translate {run} cat; attention {run} cat; ablate-heads {run} --no-decode
        trace {run} cat; export {run} model; clean; doctor
    """
    for command in commands.replace("\n", ";").split(";"):
        if words := command.split():
            planted.ends(0, *words)
    planted.ends(3, "judge", "scores.csv", "--baseline", "a")


def started_programs(file: Path) -> Iterator[str]:
    """Yield the calls of a file that start a program."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called = ast.unparse(node.func)
            if called.startswith(("subprocess.", "os.exec", "os.spawn", "asyncio.create_subprocess")) or (
                called.startswith("os.") and node.func.attr in ATTRIBUTES
            ):
                yield f"{file}:{node.lineno}: {called}"


def test_one_module_starts_every_program():
    folders = [Path(str(package.__file__)).parent for package in (headtohead, headtohead_plugins)]
    started = [call for folder in folders for file in folder.rglob("*.py") for call in started_programs(file)]
    assert {call.partition(":")[0].rpartition("/")[2] for call in started} == {"children.py"}, started


@pytest.mark.slow
def test_ui_and_its_server_import_no_file_of_the_working_directory(planted):
    (planted.path / "study.yaml").write_text(STUDY)
    planted.ends(0, "run", "study.yaml")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*ENTRIES[planted.entry], "ui", "--no-browser", "--port", str(port)]
    with subprocess.Popen(
        command, cwd=planted.path, env=planted.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as ui:
        assert ui.stdout is not None
        lines = iter(ui.stdout.readline, "")
        # The server has responded when the last line is printed.
        assert any(line.startswith("Ctrl-C stops the server") for line in lines)
        ui.send_signal(signal.SIGINT)
        ui.communicate(timeout=60)
    assert planted.executed == set()
