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

from headtohead_judge.child import SAFE_PATH as SAFE_PATH
from headtohead_judge.child import run_program as run_program


def start_program(
    command: Sequence[str], *, env: Mapping[str, str] = os.environ, **options: Any
) -> subprocess.Popen[bytes]:
    """Start a program; options as for ``subprocess.Popen``."""
    return subprocess.Popen(command, env={**env, **SAFE_PATH}, **options)


@contextmanager
def without_working_directory() -> Iterator[None]:
    """Remove the working directory from the search path of Python processes that a library starts in the block."""
    before = dict(os.environ)
    os.environ.update(SAFE_PATH)
    try:
        yield
    finally:
        for name in SAFE_PATH:
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]
