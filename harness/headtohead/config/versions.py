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
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        name = re.search(r"model name\s*: (.+)", text)
        if name:
            return name[1]
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
    recorded_version, version = recorded.get("headtohead"), versions()["headtohead"]
    changes = []
    if recorded_version not in (None, version):
        changes.append(f"headtohead {recorded_version}, now {version}")
    return (*changes, *changed_plugins(sources, used))


def changed_plugins(sources: Mapping[str, str], used: Sequence[Registered]) -> tuple[str, ...]:
    """Return the changes of plugin entries, and of what they read, since a run; arguments as for `drift`."""
    changes = []
    for entry in used:
        for label, sha256 in entry.hashes.items():
            if sources.get(label, sha256) != sha256:
                changes.append(f"{label} has changed")
    return tuple(changes)


def _commit(file: Path) -> str | None:
    """Return the commit of the repository in which a file is committed, or None."""
    path = file.resolve()
    git = ["git", "-C", str(path.parent), "-c", "core.fsmonitor=false"]
    try:
        listed = children.run_program(
            [*git, "ls-files", "--error-unmatch", "--", path.name], timeout=10
        )
        if listed.returncode:
            return None
        head = children.run_program([*git, "rev-parse", "HEAD"], timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if head.returncode:
        return None
    return head.stdout.strip()
