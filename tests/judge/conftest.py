"""What the tests of the judge share. They import nothing of headtohead, and run where only the judge is installed."""

import io
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import pytest

from headtohead_judge.__main__ import NAME, entry

Completed = subprocess.CompletedProcess[str]

FURTHER_LIBRARIES = {
    "test_layout.py": "hypothesis",
    "test_pull_request.py": "yaml",
    "test_statistics.py": "hypothesis",
}
"""Files with tests that compare with another library, or generate their cases by one."""

collect_ignore = [name for name, library in FURTHER_LIBRARIES.items() if find_spec(library) is None]


@pytest.fixture
def judge_here() -> Callable[..., Completed]:
    """Call the command ``headtohead-judge`` in a folder, in this process."""

    def call(folder: Path, *arguments: str) -> Completed:
        stdout, stderr = io.StringIO(), io.StringIO()
        code = 0
        with (
            pytest.MonkeyPatch.context() as patch,
            redirect_stdout(stdout),
            redirect_stderr(stderr),
        ):
            patch.chdir(folder)
            patch.setattr(sys, "argv", [NAME, *arguments])
            try:
                entry()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0
        return Completed(arguments, code, stdout.getvalue(), stderr.getvalue())

    return call
