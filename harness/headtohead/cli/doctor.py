"""``h2h doctor``: check that the installation, the machine and the stores can run an experiment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click

from headtohead.cli.options import load_plugins, plugin_option, runs_option
from headtohead_judge.output import echo

OK = "OK"
WARN = "WARN"
FAIL = "FAIL"

Diagnosis = tuple[str, str, str]
"""Level, subject and text of a printed line."""

PACKAGES = ("headtohead", "torch", "numpy", "scipy", "pandas", "pydantic", "matplotlib")

DOCTOR_WIDTH = 512
"""Width of the linear layers whose speed is measured."""

LOW_SPACE = 2 * 1024**3
NO_SPACE = 100 * 1024**2


@click.command()
@runs_option
@plugin_option
def command(runs: Path) -> None:
    """Check Python, packages, devices, disk, plugins, data cache and trackers."""
    failed = False
    for level, subject, text in _diagnoses(runs):
        failed |= level == FAIL
        echo(f"{level:4}  {subject}: {text}")
    if failed:
        sys.exit(1)


def _installed_versions() -> dict[str, str]:
    """Return the version of each of `PACKAGES` that an import loads; a package that is not installed is left out."""
    from importlib import metadata

    versions = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _diagnoses(runs: Path) -> Iterator[Diagnosis]:
    import platform

    yield OK, "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    import torch

    from headtohead.data import cache_root
    from headtohead.errors import HeadToHeadError
    from headtohead.model.precision import describe_bfloat16, faster_precision
    from headtohead.plugins.launcher import cpu_cores

    versions = _installed_versions()
    yield OK, "packages", ", ".join(f"{name} {version}" for name, version in versions.items())
    missing = [name for name in PACKAGES if name not in versions]
    if missing:
        problem = f"not installed: {', '.join(missing)}; install headtohead with its dependencies"
        yield FAIL, "packages", problem
    yield OK, "cpu", f"{cpu_cores()} cores, {torch.get_num_threads()} threads in torch"
    yield OK, "precision", f"{describe_bfloat16()} on this processor"
    faster = faster_precision(DOCTOR_WIDTH)
    if faster:
        yield OK, "training speed", faster
    if not torch.cuda.is_available():
        yield OK, "device", "cpu; no CUDA device"
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        memory = f"{properties.total_memory / 1024**3:.0f} GiB"
        yield OK, f"cuda:{number}", f"{properties.name}, {memory}"
    try:
        entries = list(load_plugins().all())
    except HeadToHeadError as error:
        yield FAIL, "plugins", str(error)
    else:
        external = sorted({entry.distribution for entry in entries} - {"headtohead"})
        text = f"{len(entries)} entries"
        if external:
            text += f", external: {', '.join(external)}"
        yield OK, "plugins", text
    yield _folder("runs folder", runs)
    yield _folder("data cache", cache_root())
    yield from _trackers(runs)


def _folder(subject: str, folder: Path) -> Diagnosis:
    """Write a temporary file in the folder or its nearest existing parent, and check the free space."""
    import shutil
    import tempfile

    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"h2h")
    except OSError as error:
        return FAIL, subject, f"cannot write to '{existing}': {error.strerror or error}"
    free = shutil.disk_usage(existing).free
    level = OK
    if free < NO_SPACE:
        level = FAIL
    elif free < LOW_SPACE:
        level = WARN
    return level, subject, f"'{folder}' is writable, {free / 1024**3:.1f} GiB free"


def _trackers(runs: Path) -> Iterator[Diagnosis]:
    """Check the trackers of the default loggers."""
    from headtohead.errors import HeadToHeadError
    from headtohead.tracking.shipping import DEFAULT_LOGGERS, logger_entry

    for name in DEFAULT_LOGGERS:
        try:
            entry = logger_entry(name)
            entry.require()
            state = entry.check_tracker(runs)
        except HeadToHeadError as error:
            yield FAIL, name, str(error)
        else:
            if state is not None:
                yield OK, name, state
