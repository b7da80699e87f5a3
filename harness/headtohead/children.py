"""Child processes, which import no file of the working directory.

Python searches the working directory for the imports of ``python -m`` and ``python -c``. A file ``random.py`` beside a
study would replace the module of the standard library in the fork server, the shipper and the MLflow server.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Removes the working directory from the search path of Python processes and of their own children."""


def start_program(
    command: Sequence[str], *, env: Mapping[str, str] = os.environ, **options: Any
) -> subprocess.Popen[bytes]:
    """Start a program; options as for ``subprocess.Popen``."""
    return subprocess.Popen(command, env={**env, **SAFE_PATH}, **options)


def run_program(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program and return its output as text; options as for ``subprocess.run``."""
    options = {"check": False} | options
    return subprocess.run(
        command, env={**os.environ, **SAFE_PATH}, capture_output=True, text=True, **options
    )


@contextmanager
def without_working_directory() -> Iterator[None]:
    """Remove the working directory from the search path of Python processes that a library starts in the block."""
    before = dict(os.environ)
    os.environ.update(SAFE_PATH)
    try:
        yield
    finally:
        for name in SAFE_PATH.keys() - before:
            del os.environ[name]
        os.environ.update({name: before[name] for name in SAFE_PATH.keys() & before})
