"""Packages written by the command and installed into a folder, without a network."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from headtohead.plugins.template import TEMPLATES, write_package

Results = list[tuple[int, str, str]]
Each = Callable[[Sequence[tuple[str, Sequence[str]]]], Results]

RUN_COMMANDS = """
import contextlib, io, json, os, sys
import pytest
from click.testing import CliRunner
from headtohead.cli import main

def run_command(words):
    if words[0] == "pytest":
        with contextlib.redirect_stdout(io.StringIO()) as output:
            code = pytest.main(words[1:])
        return int(code), output.getvalue(), ""
    done = CliRunner().invoke(main, words, prog_name="h2h")
    return done.exit_code, done.stdout, done.stderr

results = []
for package, words in json.loads(sys.argv[1]):
    os.chdir(package)
    results.append(run_command(words))
print("results:" + json.dumps(results))
"""


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A written package of each family."""
    folder = tmp_path_factory.mktemp("packages")
    packages = {family: folder / f"my-{family.replace('_', '-')}" for family in TEMPLATES}
    for family, package in packages.items():
        write_package(family, package.name, package)
    return packages


@pytest.fixture(scope="session")
def each(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Each:
    """Install the packages; return a function that runs commands in packages, all in one process."""
    folder = tmp_path_factory.mktemp("site")
    offline = (
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--disable-pip-version-check",
    )
    words = (
        "-m",
        "pip",
        "install",
        *offline,
        "--target",
        str(folder),
        *map(str, packages.values()),
    )
    subprocess.run([sys.executable, *words], check=True, timeout=280)
    environment = os.environ | {"H2H_CACHE": str(folder / "cache"), "PYTHONPATH": str(folder)}

    def run(commands: Sequence[tuple[str, Sequence[str]]]) -> Results:
        given = json.dumps([(str(packages[family]), list(words)) for family, words in commands])
        command = [sys.executable, "-c", RUN_COMMANDS, given]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=280, env=environment
        )
        results: Results = json.loads(done.stdout.rpartition("results:")[2])
        return results

    return run
