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
from contextlib import suppress
from typing import Any

from headtohead import children, errors
from headtohead.data.reading import MAX_DATA_BYTES, max_data_bytes
from headtohead.errors import HeadToHeadError

SECONDS = 600
"""Default maximum time of a call."""
MEMORY_BYTES = 4 * 2**30
"""Maximum memory of a call on empty data; libraries reserve a part of it."""
MEMORY_FACTOR = 8
"""Bytes of memory added for each byte of the largest data file."""


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
        done = children.run_program(
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
        raise getattr(errors, answer["type"])(answer["error"])
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
        text = json.dumps({"error": str(error), "type": type(error).__name__})
    except BaseException as error:  # a panic of a Rust library is no Exception
        text = json.dumps({"error": " ".join(f"{type(error).__name__}: {error}".split())})
    with os.fdopen(output, "w") as file:
        file.write(text)
