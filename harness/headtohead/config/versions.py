"""Versions of the code that made a result; the record has them, the run hash does not."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headtohead import children
from headtohead.config.builder import FAMILIES
from headtohead.config.source_location import dotted
from headtohead.config.validation_errors import format_validation_error
from headtohead.errors import HeadToHeadError
from headtohead.plugins.registry import Registered, Registry
from headtohead.schema.run_config import EntryConfig, RunConfig


@cache
def versions(file: Path | None = None) -> dict[str, str | None]:
    """Return the versions of headtohead, Python and torch, the platform, and the commit of an experiment file.

    The commit is None if the file is not in a Git repository.
    """
    return {
        "headtohead": _version("headtohead"),
        "python": platform.python_version(),
        "torch": _version("torch"),
        "git_commit": _commit(file) if file else None,
        "platform": platform.platform(),
    }


def plugins_of(config: RunConfig, registry: Registry) -> list[Registered]:
    """Return the entries that a configuration uses, including the entries that these depend on."""
    used: dict[tuple[str, str], None] = {}
    for family, chosen in entries_of(config):
        used[family, chosen.name] = None
        entry = registry.find(family, chosen.name).entry
        for name in entry.depends_on(entry.Options.model_validate(chosen.options)):
            used[family, name] = None
    return [registry.find(family, name) for family, name in used]


def recorded_config(recorded: Mapping[str, Any], registry: Registry, run: str) -> RunConfig:
    """Return the configuration of a record if this process can build its model.

    Records contain the names of entries, not their code.

    Raises:
        HeadToHeadError: With the first entry that is not registered and how to register it, or the first option
            that its entry refuses.
    """
    config = RunConfig.model_validate(recorded)
    for family, chosen in entries_of(config):
        if chosen.name not in registry.entries[family]:
            raise HeadToHeadError(
                f"run '{run}' uses {family} '{chosen.name}', which no plugin registers here; load the "
                "plugin that defines it with --plugin FILE, or install its package"
            )
        options = registry.find(family, chosen.name).entry.Options
        try:
            options.model_validate(chosen.options)
        except ValidationError as error:
            field, message = format_validation_error(error, options, chosen.options)
            raise HeadToHeadError(
                f"the record of run '{run}' is damaged: {family} '{chosen.name}': {dotted(field)}: {message}; restore "
                "it, or move its folder away"
            ) from error
    return config


def entries_of(config: RunConfig) -> Iterator[tuple[str, EntryConfig]]:
    """Yield the dataset, and family and entry of every family and role."""
    yield "dataset", EntryConfig(name=config.data.dataset, options=config.data.options)
    for family in FAMILIES:
        yield from ((family, entry) for entry in getattr(config, family).by_role().values())


def drift(
    recorded: Mapping[str, str | None], sources: Mapping[tuple[str, str], str], used: Sequence[Registered]
) -> tuple[str, ...]:
    """Return the code changes since a run was recorded; a run with changes is STALE.

    Args:
        recorded: The versions of the run.
        sources: The source hash of each of its plugin entries, by family and name.
        used: The entries that its configuration uses now.
    """
    then, now = recorded.get("headtohead"), versions()["headtohead"]
    version = [f"headtohead {then}, now {now}"] if then is not None and then != now else []
    return (*version, *changed_plugins(sources, used))


def changed_plugins(sources: Mapping[tuple[str, str], str], used: Sequence[Registered]) -> tuple[str, ...]:
    """Return the plugin entries with another source than that of a run; arguments as for `drift`."""
    return tuple(
        f"{entry.family} '{entry.name}' has changed"
        for entry in used
        if sources.get((entry.family, entry.name), entry.source_sha256) != entry.source_sha256
    )


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit(file: Path) -> str | None:
    """Return the commit of the repository in which a file is committed, or None."""
    git = ["git", "-C", str(file.resolve().parent), "-c", "core.fsmonitor=false"]
    done = None
    for words in (["ls-files", "--error-unmatch", "--", file.resolve().name], ["rev-parse", "HEAD"]):
        try:
            done = children.run_program([*git, *words], timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode:
            return None
    return done.stdout.strip() if done else None
