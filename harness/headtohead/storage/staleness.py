"""What has changed since the runs of an experiment were trained: fields of its file, and sources of its plugins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from headtohead import files
from headtohead.config.source_location import shown
from headtohead.config.yaml_text import parse
from headtohead.errors import HeadToHeadError
from headtohead.plugins.sources import source_file
from headtohead.storage import states
from headtohead.storage.experiment import ExperimentDirectory
from headtohead.storage.leases import observe
from headtohead.storage.record import leaves, read_record
from headtohead.storage.run import RUN, PluginRecord

PROSE = ("question", "description")
"""Fields of an experiment file that no result depends on."""

MOST_FIELDS = 3
"""Number of changed fields that are named."""


def stale_changes(experiment: ExperimentDirectory, file: Path | None = None) -> tuple[str, ...]:
    """Return the changes since the runs of an experiment were planned and trained; an answer with changes is STALE.

    Files that are missing on this machine count as unchanged. Comments and the notation of a file do not count.

    Args:
        experiment: The experiment.
        file: The experiment file, if the caller has it; default: the recorded file in the project.
    """
    project = experiment.path.resolve().parent.parent
    plugins = {
        f"{plugin.family} '{plugin.name}' has changed": None
        for plugin in _plugins(experiment)
        if _is_changed(plugin, project)
    }
    return (*_changed_fields(experiment.record.text, file or project / (experiment.record.file or "")), *plugins)


def _changed_fields(recorded: str, file: Path) -> Iterator[str]:
    """Yield the changed fields of an experiment file, with both values."""
    if not recorded or not file.is_file():
        return
    try:
        written = files.read_text(file).removeprefix("\ufeff")
        before, now = (dict(leaves(parse(text, str(file))[0])) for text in (recorded, written))
    except HeadToHeadError:
        yield "the experiment file is invalid"
        return
    names = [name for name in dict.fromkeys([*before, *now]) if name not in PROSE]
    changed = [name for name in names if before.get(name) != now.get(name)]
    for name in changed[:MOST_FIELDS]:
        old, new = before.get(name), now.get(name)
        is_long = any(isinstance(value, list) or len(shown(value)) > 40 for value in (old, new))
        yield f"{name} has changed" if is_long else f"{name} was {shown(old)}, is now {shown(new)}"
    if len(changed) > MOST_FIELDS:
        yield f"{len(changed) - MOST_FIELDS} more fields have changed"


class _Plugins(BaseModel):
    """The plugins in ``run.json``."""

    plugins: tuple[PluginRecord, ...]


def _plugins(experiment: ExperimentDirectory) -> Iterator[PluginRecord]:
    """Yield the plugins of the first finished run of each variant, each once."""
    variants: set[str] = set()
    found: set[PluginRecord] = set()
    for run in experiment.record.runs:
        path = experiment.run_path(run)
        try:
            if run.variant in variants or observe(path)[1] not in states.RESULTS:
                continue
            record = read_record(_Plugins, path / RUN)
        except HeadToHeadError:  # a damaged run, which the reader of its results names
            continue
        if record is not None:
            variants.add(run.variant)
            yield from (plugin for plugin in record.plugins if plugin not in found)
            found.update(record.plugins)


def _is_changed(plugin: PluginRecord, project: Path) -> bool:
    path = None if plugin.source is None else source_file(plugin.source, project)
    return path is not None and files.sha256(path) != plugin.source_sha256
