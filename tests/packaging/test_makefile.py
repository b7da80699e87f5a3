"""The two commands of the README, without a network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

if shutil.which("make") is None:
    pytest.skip("make is not installed", allow_module_level=True)


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A folder like a fresh clone, without .venv."""
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("goal", ["demo", "test"])
def test_without_a_supported_python_the_error_is_one_line(fresh: Path, goal: str) -> None:
    old = fresh / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    old.chmod(0o755)
    done = make(fresh, goal, f"PYTHON={old}")
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.splitlines()[0] == (
        f"no Python 3.11 or newer with venv was found; install one, or name it: make PYTHON=/path/to/python3.12 {goal}"
    )
    assert not (fresh / ".venv").exists()


@pytest.mark.parametrize("goal", ["demo", "test"])
def test_everything_is_installed_from_the_constraints(fresh: Path, goal: str) -> None:
    planned = make(fresh, "--dry-run", goal).stdout
    installs = [line for line in planned.splitlines() if re.search(r"\binstall\b.* -e |hatch", line)]
    assert len(installs) >= 2
    assert all(" -c constraints.txt " in line for line in installs)
    assert all("--no-build-isolation" in line for line in installs if " -e " in line)


def test_the_demo_runs_the_quickstart_and_prints_the_path_of_its_answer(fresh: Path) -> None:
    planned = make(fresh, "--dry-run", "demo").stdout
    assert ".venv/bin/h2h run experiments/quickstart.yaml" in planned
    assert "reports/quickstart/index.html" in planned
    assert "h2h ui" in planned
    assert (ROOT / "experiments" / "quickstart.yaml").is_file()


def test_a_current_installation_is_not_repeated(fresh: Path) -> None:
    (fresh / ".venv").mkdir()
    for marker in ("created", "installed", "installed-dev"):
        (fresh / ".venv" / marker).touch()
    assert "pip" not in make(fresh, "--dry-run", "test").stdout
    constraints = fresh / "constraints.txt"
    constraints.touch()
    newer = (fresh / ".venv" / "installed").stat().st_mtime + 10
    os.utime(constraints, (newer, newer))
    assert "pip" in make(fresh, "--dry-run", "test").stdout


def test_warnings_of_the_site_are_errors(fresh: Path) -> None:
    planned = make(fresh, "--dry-run", "site").stdout
    # mkdocs 1.6 with --quiet counts no warnings, so --strict would pass.
    assert planned.splitlines()[-1].endswith("mkdocs build --strict")


def test_ci_runs_lint_site_wheel_and_both_tiers_of_the_tests() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    steps = [line for line in lines if line.startswith("make ")]
    assert steps == ["make lint", "make site", "make wheel", "make test", "make test-slow"]
    assert lines[-1] == "make test-slow"
    assert "set -euo pipefail" in lines
