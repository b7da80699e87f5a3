"""The stored answer of a command on a finished study, printed again while every file that led to it is unchanged.

Such a command computes nothing new, but loading torch, preparing the data and writing the report takes seconds. An
audit hook of Python therefore notes each file that the command opens and each folder that it lists: the experiment
file, data, plugins, records, results and the report. The answer is stored in the cache with their sizes and times of
change, and those of the code. Files that a child process reads are not noted, so there is no answer for such data.
Other options, folders or environment variables have a separate stored answer.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import click

from headtohead import files, ownership
from headtohead.children import CHILD_EVENT
from headtohead.cli.output import printed
from headtohead.config.project import cache_root, default_uri
from headtohead.errors import HeadToHeadError

VARIABLES = ("H2H_", "MLFLOW_", "CUDA_", "COLUMNS", "HF_", "HOME", "PYTHONPATH")
"""Beginnings of the names of environment variables that change an answer."""

STATUS = "status.json"
UNRELATED = ("/proc/", "/sys/", "/dev/")
TRANSIENT = ": logging to "
"""Part of the lines that are not printed again."""

_opened: set[str] = set()
_written: set[str] = set()
_children: set[str] = set()


class StoredAnswer:
    """The answer of the current command to its parameters, for a runs folder."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs.resolve()
        self.own = tuple({f"{os.path.abspath(runs)}{os.sep}", f"{self.runs}{os.sep}"})
        context = click.get_current_context()
        command = [
            context.command_path,
            context.find_root().params,
            context.params,
            context.meta.get("plugin_files"),
        ]
        environment = {
            name: value for name, value in os.environ.items() if name.startswith(VARIABLES)
        }
        terminal = [*shutil.get_terminal_size(), sys.stdout.isatty()]
        key = [command, os.getcwd(), str(self.runs), environment, terminal]
        text = json.dumps(key, sort_keys=True, default=str)
        self.folder = cache_root() / "prepared"
        self.name = f"answer-{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
        self._started = time.time_ns()

    def print(self) -> bool:
        """Print the answer if every file is unchanged; return whether it was printed."""
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            stored = json.loads((self.folder / self.name).read_bytes())
            if (
                all(_state(path) == state for path, state in stored["files"].items())
                and self._store == stored["store"]
            ):
                sys.stdout.write(stored["text"])
                return True
        return False

    def record(self) -> None:
        """Note from now on the files that the command opens and the text that it prints."""
        _note_opened_files()
        for noted in (_opened, _written, _children, printed):
            noted.clear()

    def store(self) -> None:
        """Store the answer of a command that had nothing to do, unless a file that it read has changed."""
        code = {
            file
            for module in [*sys.modules.values()]
            if (file := getattr(module, "__dict__", {}).get("__file__"))
        }
        own, cached = self.own, str(self.folder.absolute())
        paths = {
            path
            for path in {*_opened, *code}
            if not path.startswith((*UNRELATED, f"{cached}{os.sep}answer-"))
        }
        # Commands of other experiments write to the store and prepare data.
        paths -= {self._store[0], cached, os.path.join(cached, ownership.MANIFEST)}
        states = {path: _state(path) for path in paths}
        inputs = {
            path for path in paths - _written if not path.startswith(own) and os.path.isfile(path)
        }
        statuses = {
            path for path in paths if path.endswith(f"{os.sep}{STATUS}")
        }  # changed by training
        if any(
            max(state[2:]) > self._started for path in inputs | statuses if (state := states[path])
        ):
            return
        # A deleted result changes the folder that held it.
        states |= {
            folder: _state(folder)
            for folder in {os.path.dirname(path) for path in paths if path.startswith(own)}
        }
        text = "".join(f"{line}\n" for line in printed if TRANSIENT not in line)
        if not text or _children:
            return
        with suppress(
            OSError, ValueError, HeadToHeadError
        ):  # a cache that cannot be written, a name that is no text
            ownership.claim(self.folder, [self.name])
            content = {"text": text, "files": states, "store": self._store}
            files.write_json(self.folder / self.name, content, sync=False)

    @property
    def _store(self) -> list[Any]:
        """Return the path of MLflow's database and its inode, or None if it does not exist."""
        path = default_uri(self.runs).removeprefix("sqlite:///")
        state = _state(path)
        return [path, state and state[0]]


def _state(path: str) -> list[int] | None:
    """Return inode, size and times of change of a file or a folder; None if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


@cache
def _note_opened_files() -> None:
    """Note the absolute path of each file that this process opens or lists from now on; a hook cannot be removed."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "os.listdir", "os.scandir", "os.rename"):
            # Files are written under another name and renamed.
            path = arguments[1] if event == "os.rename" else arguments[0]
            if isinstance(path, str | os.PathLike):
                name = os.path.abspath(os.fspath(path))
                _opened.add(name)
                if event == "os.rename" or (
                    event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
                ):
                    _written.add(name)
        elif event == CHILD_EVENT:
            _children.add(arguments[0])

    sys.addaudithook(hook)
