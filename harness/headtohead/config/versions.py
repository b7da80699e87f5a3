"""Versions of the code that made a result; the record has them, the run hash does not."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from headtohead import children
from headtohead.plugins.registry import Registered


@cache
def versions(file: Path | None = None) -> dict[str, str | None]:
    """Return the versions of headtohead, Python and torch, platform, processor, and the commit of an experiment file.

    The commit is None if the file is not in a Git repository.
    """
    return {
        "headtohead": importlib.metadata.version("headtohead"),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "git_commit": _commit(file) if file else None,
        "platform": platform.platform(),
        "processor": _processor(),
    }


@cache
def _processor() -> str:
    """Return the processor, on which the rounding of products depends."""
    with suppress(OSError):
        if found := re.search(
            r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8")
        ):
            return found[1]
    return platform.processor() or platform.machine()


def drift(
    recorded: Mapping[str, str | None], sources: Mapping[str, str], used: Sequence[Registered]
) -> tuple[str, ...]:
    """Return the code changes since a run was recorded; a run with changes is STALE.

    Args:
        recorded: The versions of the run.
        sources: The hashes of its plugin entries and of what they read, as `Registered.hashes` has them.
        used: The entries that its configuration uses now.
    """
    then, now = recorded.get("headtohead"), versions()["headtohead"]
    version = [f"headtohead {then}, now {now}"] if then is not None and then != now else []
    return (*version, *changed_plugins(sources, used))


def changed_plugins(sources: Mapping[str, str], used: Sequence[Registered]) -> tuple[str, ...]:
    """Return the changes of plugin entries, and of what they read, since a run; arguments as for `drift`."""
    now = [(label, sha256) for entry in used for label, sha256 in entry.hashes.items()]
    return tuple(
        f"{label} has changed" for label, sha256 in now if sources.get(label, sha256) != sha256
    )


def _commit(file: Path) -> str | None:
    """Return the commit of the repository in which a file is committed, or None."""
    git = ["git", "-C", str(file.resolve().parent), "-c", "core.fsmonitor=false"]
    try:
        if children.run_program(
            [*git, "ls-files", "--error-unmatch", "--", file.resolve().name], timeout=10
        ).returncode:
            return None
        done = children.run_program([*git, "rev-parse", "HEAD"], timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout.strip()
