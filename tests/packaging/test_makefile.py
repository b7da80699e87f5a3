"""The commands of the Makefile, without a network."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TESTED = ["3.11", "3.12", "3.13"]

if shutil.which("make") is None:
    pytest.skip("make is not installed", allow_module_level=True)


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make in a folder like a fresh clone, without .venv, and not as part of the make that runs the tests."""
    (folder / "harness" / "judge").mkdir(parents=True, exist_ok=True)
    for name in ("Makefile", "constraints.txt", "pyproject.toml", "harness/judge/pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    command = ["make", "--no-print-directory", *arguments]
    outer = ("MAKELEVEL", "MAKEFLAGS", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def stand_in(folder: Path, version: str) -> Path:
    """Return a stand-in for Python that reports the given version."""
    program = folder / f"python-{version}"
    code = f"import sys; sys.version_info = ({version.replace('.', ', ')}); exec(sys.argv.pop(1))"
    program.write_text(
        f"#!/bin/sh\nshift\nexec {sys.executable} -c '{code}' \"$@\"\n", encoding="utf-8"
    )
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("version", ["3.10", "3.14", "4.0"])
def test_a_python_that_is_not_tested_is_refused_in_one_line(tmp_path: Path, version: str) -> None:
    done = make(tmp_path, "demo", f"PYTHON={stand_in(tmp_path, version)}")
    assert done.returncode != 0
    assert done.stdout == ""
    refusal, end = done.stderr.splitlines()
    assert refusal.startswith("no Python 3.11, 3.12 or 3.13 with venv was found; ")
    assert end.startswith("make: ")
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize("version", TESTED)
def test_a_tested_python_makes_the_environment(tmp_path: Path, version: str) -> None:
    """The stand-in cannot make an environment, so make ends after the version check."""
    python = stand_in(tmp_path, version)
    done = make(tmp_path, ".venv/created", f"PYTHON={python}")
    assert done.stdout == f"{python} -m venv .venv\n"


@pytest.mark.parametrize("goal", ["demo", "test"])
def test_everything_is_installed_from_the_constraints(tmp_path: Path, goal: str) -> None:
    planned = make(tmp_path, "--dry-run", goal).stdout
    installs = [
        line for line in planned.splitlines() if re.search(r"\binstall\b.* -e |hatch", line)
    ]
    assert len(installs) >= 2
    assert all(" -c constraints.txt " in line for line in installs)
    assert any(line.endswith(" -e harness/judge -e .") for line in installs)


def test_the_demo_writes_only_files_that_git_ignores(tmp_path: Path) -> None:
    command = next(
        line
        for line in make(tmp_path, "--dry-run", "demo").stdout.splitlines()
        if "/h2h run " in line
    )
    options = command.partition("/h2h run ")[2].split()
    root = (
        Path(options[options.index("--reports") + 1]) if "--reports" in options else Path("reports")
    )
    assert "--runs" not in options
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    shutil.copy(ROOT / ".gitignore", tmp_path)
    written = (
        root / "quickstart" / "report.md",
        root / "quickstart" / "figures" / "scores.svg",
        Path("runs/a/run.json"),
    )
    for path in (*written, Path("mlflow.db"), Path("mlflow.db.lock"), Path("mlruns-artifacts/a")):
        ignored = subprocess.run(
            ["git", "check-ignore", "--quiet", path], cwd=tmp_path, check=False
        )
        assert ignored.returncode == 0, path


def test_no_new_file_of_a_tracked_report_is_ignored() -> None:
    command = ["git", "ls-files", "reports"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    folders = {str(Path(name).parent) for name in listed.stdout.split() if Path(name).parent.name}
    new = [f"{folder}/new.svg" for folder in folders if folder != "reports"]
    assert len(new) > 20
    command = ["git", "check-ignore", "--no-index", *new]
    ignored = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ignored.stdout == ""


def test_ci_runs_the_whole_check_on_every_tested_python() -> None:
    (job,) = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))[
        "jobs"
    ].values()
    assert job["strategy"]["matrix"]["python"] == TESTED
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    steps = [line for line in lines if line.startswith("make ")]
    assert steps == ["make -j2 --output-sync lint docs site", "make test", "make test-slow"]
    assert "set -euo pipefail" in lines
