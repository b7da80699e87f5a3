"""Run a demo with the oldest versions that the bounds of both packages allow: ``python3.11 .ci/oldest.py``.

Builds both wheels with the Python of the developers' environment (``PYTHON``, by default ``.venv/bin/python``),
installs them into an empty environment of the Python that executes this file, trains the small stored study of the
tests with MLflow, and judges a table. Prints the versions. On Linux, the default package index has torch for CUDA,
with gigabytes of libraries.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECTS = (ROOT / "pyproject.toml", ROOT / "harness" / "judge" / "pyproject.toml")
EXPERIMENT = ROOT / "tests" / "compatibility" / "study" / "stored.yaml"
BOUND = re.compile(r"(?P<name>[A-Za-z0-9._-]+)>=(?P<version>[0-9.]+)")
SCORES = """\
variant,seed,accuracy
base,1,0.801
base,2,0.822
new,1,0.842
new,2,0.864
"""


def oldest(requirements: Sequence[str]) -> dict[str, str]:
    """Return the lower bound of each requirement by the name of its package; requirements with ``==`` have none."""
    bounds = {}
    for requirement in requirements:
        match = BOUND.fullmatch(requirement)
        if match:
            bounds[match["name"]] = match["version"]
        elif "==" not in requirement:
            raise ValueError(f"{requirement!r} has no lower bound; write NAME>=VERSION")
    return bounds


def constraints(projects: Sequence[Path]) -> str:
    """Return the constraints file with the oldest version of each dependency; the largest bound of both counts."""
    versions: dict[str, str] = {}
    for path in projects:
        requirements = tomllib.loads(path.read_text(encoding="utf-8"))["project"]["dependencies"]
        for name, version in oldest(requirements).items():
            versions[name] = max(version, versions.get(name, version), key=_numbers)
    return "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def main() -> None:
    """Build, install and run the demo; exit with the code of the first command that fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(ROOT / ".ci" / "build", folder / "dist")
        (folder / "oldest.txt").write_text(constraints(PROJECTS), encoding="utf-8")
        venv.create(folder / "venv", with_pip=True)
        programs = folder / "venv" / "bin"
        wheels = sorted((folder / "dist").glob("*.whl"))
        run(programs / "python", "-m", "pip", "install", "-c", folder / "oldest.txt", *wheels)
        run(programs / "python", "-m", "pip", "freeze")
        demo = folder / "demo"
        demo.mkdir()
        (demo / EXPERIMENT.name).write_bytes(EXPERIMENT.read_bytes())
        (demo / "scores.csv").write_text(SCORES, encoding="utf-8")
        run(programs / "h2h", "run", EXPERIMENT.name, folder=demo)
        run(programs / "h2h", "sync", EXPERIMENT.name, folder=demo)  # fails if MLflow lacks a run
        run(programs / "headtohead-judge", "scores.csv", "--baseline", "base", folder=demo)


def run(*command: object, folder: Path | None = None) -> None:
    """Run a command without the packages of other environments; exit with its code if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(part) for part in command], cwd=folder, env=environment, check=False)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
