"""``h2h doctor``: check that the installation, the machine and the stores can run an experiment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import click

from headtohead.cli.options import load_plugins, plugin_option, runs_option
from headtohead.cli.output import echo

OK, WARN, FAIL = "ok", "warn", "fail"

LITTLE_SPACE = 2 * 1024**3
NO_SPACE = 100 * 1024**2


class Diagnosis(NamedTuple):
    """The result of a check, printed as a line; ``level`` is OK, WARN or FAIL."""

    level: str
    subject: str
    text: str


@click.command()
@runs_option
@plugin_option
def command(runs: Path) -> None:
    """Check Python, packages, devices, disk, plugins, data cache and MLflow store."""
    from headtohead.data import cache_root

    folders = [_folder("runs folder", runs), _folder("data cache", cache_root())]
    failed = False
    for level, subject, text in chain(_python(), _packages(), _device(), _plugins(), *folders, _store(runs)):
        failed |= level == FAIL
        echo(f"{level:4}  {subject}: {text}")
    if failed:
        sys.exit(1)


def _python() -> Iterator[Diagnosis]:
    import platform

    version = platform.python_version()
    level = OK if sys.version_info >= (3, 11) else FAIL
    yield Diagnosis(level, "python", f"{version} on {platform.system()} {platform.machine()}")


def _packages() -> Iterator[Diagnosis]:
    """Compare installed versions with the required and, in a source checkout, with the tested ones."""
    from importlib import metadata

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    tested: dict[str, str] = {}
    for path in sorted(Path(__file__).parents[3].glob("constraints*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, equals, pinned = line.partition("==")
            if equals:
                tested[canonicalize_name(name.strip())] = pinned.split(";")[0].strip().partition("+")[0]
    matching = []
    for text in metadata.requires("headtohead") or ():
        requirement = Requirement(text)
        if requirement.marker is not None:  # of an extra
            continue
        name = requirement.name
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Diagnosis(FAIL, name, f"not installed; run pip install '{text}'")
            continue
        pinned = tested.get(canonicalize_name(name), version)
        if not requirement.specifier.contains(version, prereleases=True):
            yield Diagnosis(FAIL, name, f"{version} is installed, {requirement.specifier} is needed")
        elif version.partition("+")[0] != pinned:
            yield Diagnosis(WARN, name, f"{version} is installed, {pinned} was tested")
        else:
            matching.append(f"{name} {version}")
    yield Diagnosis(OK, "packages", ", ".join(matching))


def _device() -> Iterator[Diagnosis]:
    import torch

    from headtohead.model.precision import describe_bfloat16
    from headtohead.plugins.launcher import cpu_cores

    yield Diagnosis(OK, "cpu", f"{cpu_cores()} cores, {torch.get_num_threads()} threads in torch")
    yield Diagnosis(OK, "precision", f"{describe_bfloat16()} on this processor")
    if not torch.cuda.is_available():
        yield Diagnosis(OK, "device", "cpu; no CUDA device")
        return
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        text = f"{properties.name}, {properties.total_memory / 1024**3:.0f} GiB"
        yield Diagnosis(OK, f"cuda:{number}", text)


def _plugins() -> Iterator[Diagnosis]:
    from headtohead.errors import HeadToHeadError

    try:
        registry = load_plugins()
    except HeadToHeadError as error:
        yield Diagnosis(FAIL, "plugins", str(error))
        return
    entries = list(registry.all())
    others = sorted({entry.distribution for entry in entries} - {"headtohead"})
    external = f", external: {', '.join(others)}" if others else ""
    yield Diagnosis(OK, "plugins", f"{len(entries)} entries{external}")


def _folder(subject: str, folder: Path) -> Iterator[Diagnosis]:
    """Write a temporary file in the folder or its nearest existing parent, and check the free space."""
    import shutil
    import tempfile

    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"h2h")
    except OSError as error:
        yield Diagnosis(FAIL, subject, f"cannot write to '{existing}': {error.strerror or error}")
        return
    free = shutil.disk_usage(existing).free
    level = FAIL if free < NO_SPACE else WARN if free < LITTLE_SPACE else OK
    yield Diagnosis(level, subject, f"'{folder}' is writable, {free / 1024**3:.1f} GiB free")


def _store(runs: Path) -> Iterator[Diagnosis]:
    """Open the MLflow store if it exists."""
    from headtohead.config.project import default_uri, readable
    from headtohead.errors import HeadToHeadError
    from headtohead.tracking.store import database_of, open_store

    uri = default_uri(runs)
    database = database_of(uri)
    if database is not None and not database.exists():
        yield Diagnosis(OK, "mlflow", f"'{database}' will be created by the first run")
        return
    try:
        open_store(uri, create=False)
    except HeadToHeadError as error:
        yield Diagnosis(FAIL, "mlflow", str(error))
        return
    yield Diagnosis(OK, "mlflow", f"{readable(uri)} can be opened")
