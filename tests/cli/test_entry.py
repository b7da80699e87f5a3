"""The end of a command: all output is written, and the interpreter exits without unloading torch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

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
