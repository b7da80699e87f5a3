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
    named = Path(experiment) if experiment is not None else None
    is_file = named is not None and named.suffix in (".yaml", ".yml")
    start = (named.parent if named is not None and is_file else Path()).resolve()
    for folder in (start, *start.parents):
        has_runs = (folder / RUNS).is_dir() and not (
            folder / RUNS / "__init__.py"
        ).exists()  # no Python package
        if has_runs or any((folder / mark).exists() for mark in MARKS):
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
    return Path(RUNS) if root == Path.cwd() else root / RUNS


def reports_folder(runs: Path, given: Path | str | None = None) -> Path:
    """Return the folder of reports: ``given``, else ``H2H_REPORTS``, else beside the runs folder."""
    return Path(given or os.environ.get("H2H_REPORTS") or runs.parent / REPORTS)


def cache_root() -> Path:
    """Return the folder of downloads and prepared data: ``H2H_CACHE``, or ``~/.cache/headtohead``."""
    folder = os.environ.get("H2H_CACHE")
    return Path(folder) if folder else Path.home() / ".cache" / "headtohead"


def next_command(command: str, experiment: Path | str | None, runs: Path) -> str:
    """Return a command for an experiment of these runs, as the user types it in the working directory."""
    words = ["h2h", command] if experiment is None else ["h2h", command, str(experiment)]
    if runs_folder(experiment).resolve() != runs.resolve():
        words += ["--runs", str(runs)]
    return shlex.join(words)


def in_project(file: Path | str, runs: Path) -> str:
    """Return the path of a file relative to the project root, or unchanged if it is outside."""
    path, root = Path(file).resolve(), runs.resolve().parent
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(file)
