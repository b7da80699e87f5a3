"""Calls of functions that read untrusted native formats, in a child process with limits of memory and time.

A native library can crash, hang or allocate without limit on a damaged file. Here each of them is an error of one line.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from headtohead_judge.errors import HeadToHeadError

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Removes the working directory from the search path of Python processes and of their own children."""
MAX_DATA_BYTES = "H2H_MAX_DATA_BYTES"
"""Environment variable: the maximum size of a data file, downloaded or unpacked."""
DEFAULT_MAX_BYTES = 500_000_000

SECONDS = 600
"""Default maximum time of a call."""
MEMORY_BYTES = 4 * 2**30
"""Maximum memory of a call on empty data; libraries reserve a part of it."""
MEMORY_FACTOR = 8
"""Bytes of memory added for each byte of the largest data file."""


def run_program(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program and return its output as text; options as for ``subprocess.run``."""
    options = {"check": False} | options
    return subprocess.run(
        command, env={**os.environ, **SAFE_PATH}, capture_output=True, text=True, **options
    )


def max_data_bytes() -> int:
    """Return the maximum size of a data file in bytes: ``H2H_MAX_DATA_BYTES``, else 500 MB.

    Raises:
        HeadToHeadError: If the variable is not a positive whole number.
    """
    text = os.environ.get(MAX_DATA_BYTES, str(DEFAULT_MAX_BYTES))
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text)):
        raise HeadToHeadError(
            f"{MAX_DATA_BYTES} is '{text[:40]}'; expected a number of bytes such as 2000000000"
        )
    return int(text)


def call_in_child(
    subject: str, function: str, *arguments: Any, seconds: float | None = None
) -> Any:
    """Return the result of a function, called in a child process.

    Args:
        subject: The data for messages, such as ``dataset 'x'``.
        function: ``module:name`` of the function.
        arguments: Arguments of JSON values; the result is a JSON value too.
        seconds: Maximum time; default: `SECONDS`.

    Raises:
        HeadToHeadError: If the function raises an error, its process dies, or it exceeds a limit.
    """
    seconds = seconds or SECONDS
    memory = MEMORY_BYTES + MEMORY_FACTOR * max_data_bytes()
    code = f"from {__name__} import main; main({function!r}, {seconds!r}, {memory!r})"
    try:
        done = run_program(
            [sys.executable, "-c", code], input=json.dumps(arguments), timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        raise HeadToHeadError(
            f"{subject} cannot be read: the reader took more than {seconds:g} s"
        ) from error
    if done.returncode:
        raise HeadToHeadError(
            f"{subject} cannot be read: the reader ended with {_ending(done.returncode, memory)}"
        )
    answer = json.loads(done.stdout)
    if "result" in answer:
        return answer["result"]
    if "type" in answer:
        module, name = answer["type"].split(":")
        raise getattr(importlib.import_module(module), name)(answer["error"])
    raise HeadToHeadError(f"{subject} cannot be read: {answer['error']}")


def _ending(returncode: int, memory: int) -> str:
    if returncode > 0:
        return f"exit code {returncode}"
    name = signal.Signals(-returncode).name
    return f"{name}; the file is damaged or needs more than {memory / 2**30:.0f} GiB of memory"


def main(function: str, seconds: float, memory: int) -> None:
    """Call a function with the arguments on standard input, and write its result or error to standard output."""
    for kind, limit in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, int(seconds) + 1),  # ends a child whose parent was killed
        (resource.RLIMIT_CORE, 0),
    ):
        # A lower limit of the machine, or a system without this limit.
        with suppress(ValueError, OSError, OverflowError):
            resource.setrlimit(kind, (limit, limit))
    output = os.dup(1)
    os.dup2(2, 1)  # libraries print to standard output
    try:
        module, name = function.split(":")
        called = getattr(importlib.import_module(module), name)
        text = json.dumps({"result": called(*json.load(sys.stdin))})
        if len(text) > max_data_bytes():
            problem = f"more than {max_data_bytes():,} bytes; if you trust it, set {MAX_DATA_BYTES}"
            text = json.dumps({"error": problem})
    except HeadToHeadError as error:
        type_name = f"{type(error).__module__}:{type(error).__name__}"
        text = json.dumps({"error": str(error), "type": type_name})
    except BaseException as error:  # a panic of a Rust library is no Exception
        text = json.dumps({"error": " ".join(f"{type(error).__name__}: {error}".split())})
    with os.fdopen(output, "w") as file:
        file.write(text)
