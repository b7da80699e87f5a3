"""The project folder of an experiment, which holds ``runs/``, ``reports/`` and the stores of loggers.

Commands and the Python interface use the same rules, so that they find the same runs from every
working directory.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

RUNS = "runs"
REPORTS = "reports"
MARKS = ("pyproject.toml", ".git")


def project_root(experiment: Path | str | None = None) -> Path:
    """Return the project root of an experiment file, as an absolute path.

    The root is the nearest folder, from the file's folder upwards, that holds ``runs/``,
    ``pyproject.toml`` or ``.git``; without any, it is the file's folder. Without a file, such as
    for an experiment given by name, the search starts at the working directory.
    """
    start = Path()
    if experiment is not None and Path(experiment).suffix in (".yaml", ".yml"):
        start = Path(experiment).parent
    start = start.resolve()
    for folder in (start, *start.parents):
        runs = folder / RUNS
        is_package = (runs / "__init__.py").exists()  # a Python package of the same name
        if runs.is_dir() and not is_package:
            return folder
        if any((folder / mark).exists() for mark in MARKS):
            return folder
    return start


def runs_folder(experiment: Path | str | None = None, given: Path | str | None = None) -> Path:
    """Return the runs folder: ``given``, else ``H2H_RUNS``, else ``runs`` in the project root.

    The path is relative where the project root is the working directory.
    """
    named = given or os.environ.get("H2H_RUNS")
    if named:
        return Path(named)
    root = project_root(experiment)
    if root == Path.cwd():
        return Path(RUNS)
    return root / RUNS


def reports_folder(runs: Path, given: Path | str | None = None) -> Path:
    """Return the folder of reports: ``given``, else ``H2H_REPORTS``, else beside the runs folder."""
    return Path(given or os.environ.get("H2H_REPORTS") or runs.parent / REPORTS)


def cache_root() -> Path:
    """Return the folder of downloads and prepared data: ``H2H_CACHE``, or ``~/.cache/headtohead``."""
    folder = os.environ.get("H2H_CACHE")
    if folder:
        return Path(folder)
    return Path.home() / ".cache" / "headtohead"


def next_command(command: str, experiment: Path | str | None, runs: Path) -> str:
    """Return a command for an experiment of these runs, as the user types it in the working directory."""
    words = ["h2h", command]
    if experiment is not None:
        words.append(str(experiment))
    if runs_folder(experiment).resolve() != runs.resolve():
        words += ["--runs", str(runs)]
    return shlex.join(words)


def in_project(file: Path | str, runs: Path) -> str:
    """Return the path of a file relative to the project root, or unchanged if it is outside."""
    path = Path(file).resolve()
    root = runs.resolve().parent
    if path.is_relative_to(root):
        return path.relative_to(root).as_posix()
    return str(file)
