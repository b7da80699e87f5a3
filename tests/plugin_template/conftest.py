"""Packages written by the command and installed as in their READMEs, without a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from headtohead.plugins.registry import current
from headtohead.plugins.template import TEMPLATE_FAMILIES, write_package

Completed = subprocess.CompletedProcess[str]


RUN_COMMANDS = """
import contextlib, io, json, os
from pathlib import Path
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

folder = Path.cwd()
results = []
for package, words in json.loads((folder / "commands.json").read_text()):
    os.chdir(package)
    results.append(run_command(words))
(folder / "results.json").write_text(json.dumps(results))
"""


@dataclass(frozen=True)
class Installation:
    """A Python with headtohead and the written packages."""

    python: Path
    packages: dict[str, Path]

    def call(self, folder: Path, *arguments: str) -> Completed:
        """Run Python in a folder."""
        return subprocess.run(
            [self.python, *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
            env=os.environ | {"H2H_CACHE": str(folder / "cache")},
        )

    def h2h(self, folder: Path, *arguments: str) -> Completed:
        """Run the command line in a folder."""
        return self.call(folder, "-m", "headtohead.cli", *arguments)

    def each(self, commands: Mapping[str, Sequence[str]]) -> dict[str, Completed]:
        """Run a command in the package of each family, all in one process to import torch once.

        A command runs pytest if its first word is ``pytest``, else h2h.
        """
        pairs = [(str(self.packages[family]), list(words)) for family, words in commands.items()]
        folder = next(iter(self.packages.values())).parent
        (folder / "commands.json").write_text(json.dumps(pairs))
        done = self.call(folder, "-c", RUN_COMMANDS)
        assert done.returncode == 0, done.stderr
        results = json.loads((folder / "results.json").read_text())
        return {
            family: Completed(words, *result) for (family, words), result in zip(commands.items(), results, strict=True)
        }


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A written package of each family."""
    folder = tmp_path_factory.mktemp("scaffold")
    packages = {family: folder / f"my-{family}" for family in TEMPLATE_FAMILIES}
    for family, package in packages.items():
        write_package(family, package.name, package, current())
    return packages


@pytest.fixture(scope="session")
def installation(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """The packages, installed as editable into an environment of their own."""
    python = environment(tmp_path_factory.mktemp("environment"))
    editable = [word for package in packages.values() for word in ("-e", str(package))]
    done = pip(python, "--no-build-isolation", *editable)
    assert done.returncode == 0, done.stderr
    return Installation(python, packages)


def environment(folder: Path) -> Path:
    """Create an environment with the packages of this one, and return its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    ours = sysconfig.get_path("purelib")
    # addsitedir, not a bare path: the .pth files of editable installs must be read too.
    (Path(site) / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n", "utf-8")
    return python


def pip(python: Path, *arguments: str) -> Completed:
    """Install with the pip of this environment into another, without a network."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "--disable-pip-version-check",
            "install",
            "--quiet",
            "--no-index",
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


Invoke = Callable[..., Completed]


@pytest.fixture
def h2h(tmp_path: Path, h2h_here: Invoke) -> Invoke:
    """Run the command line of this environment in an empty folder."""
    return partial(h2h_here, tmp_path)
