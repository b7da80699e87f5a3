"""The end of a command: all output is written, and the interpreter exits without unloading torch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from headtohead.cli import main

PREPARED = """
import atexit, sys, threading, time
from headtohead.cli import __main__ as command
{setting}
sys.argv = ["h2h", *{words!r}]
command.entry()
print("the interpreter went on")
"""


def ended(words: list[str], setting: str = "") -> subprocess.CompletedProcess[str]:
    code = PREPARED.format(setting=setting, words=words)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=buffered)


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["nonsense"], 2)])
def test_the_exit_code_and_all_output_are_complete(words: list[str], code: int) -> None:
    done = ended(words)
    assert done.returncode == code
    assert ("Commands:" in done.stdout) is (code == 0)
    assert done.stderr.startswith("h2h: unknown command 'nonsense'; known: ") is (code == 2)
    assert "the interpreter went on" not in done.stdout


def test_exit_handlers_run() -> None:
    done = ended(["--help"], "atexit.register(lambda: print('handled'))")
    assert done.stdout.endswith("handled\n")


def test_the_exit_waits_for_running_threads() -> None:
    working = "threading.Thread(target=lambda: (time.sleep(0.5), print('worked'))).start()"
    done = ended(["--help"], working)
    assert (done.returncode, done.stdout.endswith("worked\n")) == (0, True)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--verbos list", "h2h: no such option '--verbos'; did you mean '--verbose'? (options: h2h --help)"),
        ("judge x.csv --sead 1", "h2h: no such option '--sead'; did you mean '--seed'? (options: h2h judge --help)"),
        ("judge x.csv", "h2h: missing option '--baseline' (options: h2h judge --help)"),
        ("plan", "h2h: missing argument 'EXPERIMENT' (options: h2h plan --help)"),
        ("data stats", "h2h: missing argument 'DATASET|EXPERIMENT' (options: h2h data stats --help)"),
        (
            "run x.yaml --timeout a",
            "h2h: invalid value for '--timeout': 'a' is not a valid float range (options: h2h run --help)",
        ),
    ],
)
def test_a_wrong_option_is_one_line(words: str, line: str) -> None:
    result = CliRunner().invoke(main, words.split(), prog_name="h2h")
    assert (result.exit_code, result.output) == (2, f"{line}\n")
