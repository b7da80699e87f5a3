"""Commands in a folder with a Python file of every module that headtohead or a library of it can import."""

import os
import re
import signal
import subprocess
import sys
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import headtohead
import headtohead_notebooks
import headtohead_plugins
from made import case_table, free_port
from made.study import Study

ENTRIES = {
    "script": [str(Path(sys.executable).with_name("h2h"))],
    "module": [sys.executable, "-m", "headtohead.cli"],
}

LOG = "executed.log"


@cache
def before_headtohead() -> set[str]:
    """Return what ``python -m headtohead.cli`` imports before any code of headtohead; docs/security.md states it."""
    code = "import runpy, sys; print(*(name.partition('.')[0] for name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    return {"headtohead", *done.stdout.split()}


def start(folder: Path, *command: str, entry: str) -> subprocess.Popen[str]:
    """Start a program in a folder with a file of every importable name, each of which appends its name to a log."""
    names = {
        *sys.stdlib_module_names,
        *packages_distributions(),
        "headtohead",
        "headtohead_plugins",
        "sitecustomize",
    }
    code = f"open({str(folder / LOG)!r}, 'a').write(__name__ + '\\n')\n"
    for name in names - (before_headtohead() if entry == "module" else set()):
        if name.isidentifier():
            (folder / f"{name}.py").write_text(code)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("H2H_", "MLFLOW_", "PYTHON"))}
    environment = kept | {
        "H2H_CACHE": str(folder / "cache"),
        "H2H_TRACKING_SECONDS": "300",
        "PYTHONUNBUFFERED": "1",
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)  # type: ignore[call-overload]


@case_table("entry", ENTRIES, default=0)
def test_the_command_line_imports_no_file_of_the_working_directory(
    entry: str, tmp_path: Path
) -> None:
    with start(tmp_path, *ENTRIES[entry], "list", entry=entry) as process:
        output = process.communicate(timeout=240)[0]
    assert not (tmp_path / LOG).exists(), (tmp_path / LOG).read_text()
    assert process.returncode == 0, output


COMMANDS = """
run tiny.yaml --logger tensorboard; reproduce RUN; trace RUN cat; export RUN model; doctor
judge scores.csv --baseline a; ui --no-browser --port PORT
"""
EVERY_COMMAND = """
import sys
from pathlib import Path
from headtohead.cli import program

one_command = program.main

def every_command(prog_name):
    for command in sys.argv[1:]:
        run = min((path.parent.name for path in Path("runs/tiny").glob("*/run.json")), default="")
        try:
            one_command([run if word == "RUN" else word for word in command.split()], prog_name=prog_name)
        except SystemExit as ended:
            print(f"ended: {command.split()[0]} {ended.code or 0}", Path("executed.log").exists())

program.main = every_command
program.run_program()
"""
"""The console script, but with several commands in one process; each imports what it needs when it runs."""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_command_imports_a_file_of_the_working_directory(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    short = {
        "train": {"steps": 4, "evaluate_every": 4},
        "evaluate": {"test_limit": 8, "max_length": 6},
    }
    Study(folder, tmp_path, subprocess.run).write(
        base=short, design=[{"product": {"positional": ["none", "rotary"]}}]
    )
    rows = [
        f"{variant},{seed},{seed + (variant == 'b') * seed * seed}"
        for variant in "ab"
        for seed in (1, 2, 3)
    ]
    (folder / "scores.csv").write_text("\n".join(["variant,seed,score", *rows]) + "\n")
    (tmp_path / "h2h.py").write_text(EVERY_COMMAND)
    commands = COMMANDS.replace("PORT", str(free_port())).strip().replace("\n", ";").split(";")
    output = ""
    with start(
        folder, sys.executable, str(tmp_path / "h2h.py"), *commands, entry="script"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output += line
            if line.startswith("Ctrl-C stops the server"):  # it has responded
                process.send_signal(signal.SIGINT)
    ended = [tuple(line.split()[1:]) for line in output.splitlines() if line.startswith("ended: ")]
    names = [command.split()[0] for command in commands]
    assert ended == [(name, "3" if name == "judge" else "0", "False") for name in names], output
    assert not (folder / LOG).exists(), (folder / LOG).read_text()


STARTS = re.compile(
    r"(?<![\w`.])(subprocess\.\w+|os\.(?:exec|spawn|posix_spawn|fork|popen|system)\w*|asyncio\.create_sub\w+)\("
)


def test_one_module_starts_every_program() -> None:
    folders = [
        Path(str(package.__file__)).parent
        for package in (headtohead, headtohead_plugins, headtohead_notebooks)
    ]
    files = [file for folder in folders for file in folder.rglob("*.py")]
    assert {file.name for file in files if STARTS.search(file.read_text(encoding="utf-8"))} == {
        "children.py"
    }
