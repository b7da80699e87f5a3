"""Changes since the runs of an experiment were trained: fields of its file, data files, and sources of its plugins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from headtohead import files
from headtohead.config.source_location import shown
from headtohead.config.yaml_text import parse
from headtohead.errors import HeadToHeadError
from headtohead.plugins.sources import source_file, source_sha256
from headtohead.storage import states
from headtohead.storage.experiment import ExperimentDirectory
from headtohead.storage.leases import observe
from headtohead.storage.record import leaves
from headtohead.storage.run import PluginRecord
from headtohead.storage.run_directory import RunDirectory

PROSE = ("question", "description")
"""Fields of an experiment file that no result depends on."""

MAX_FIELDS = 3
"""Number of changed fields that are named."""


def stale_changes(experiment: ExperimentDirectory, file: Path | None = None) -> tuple[str, ...]:
    """Return the changes since the runs of an experiment were planned and trained; an answer with changes is STALE.

    Files that are missing on this machine count as unchanged. Comments and the notation of a file do not count. The
    experiment ``file`` is by default the recorded file in the project.
    """
    project = experiment.path.resolve().parent.parent
    plugins = {
        f"{plugin.family} '{plugin.name}' has changed"
        for plugin in _plugins(experiment)
        if plugin.source is not None
        and (path := source_file(plugin.source, project)) is not None
        and source_sha256(path) != plugin.source_sha256
    }
    fields = _changed_fields(experiment.record.text, file or project / (experiment.record.file or ""))
    data = [
        f"data file '{name}' has changed"
        for name, sha256 in experiment.record.data_files.items()
        if (path := project / name).is_file() and files.sha256(path) != sha256
    ]
    return (*fields, *data, *sorted(plugins))


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
    for name in changed[:MAX_FIELDS]:
        old, new = before.get(name), now.get(name)
        is_long = any(isinstance(value, list) or len(shown(value)) > 40 for value in (old, new))
        yield f"{name} has changed" if is_long else f"{name} was {shown(old)}, is now {shown(new)}"
    if len(changed) > MAX_FIELDS:
        yield f"{len(changed) - MAX_FIELDS} more fields have changed"


def _plugins(experiment: ExperimentDirectory) -> set[PluginRecord]:
    """Return the plugins of the first finished run of each variant."""
    found: dict[str, tuple[PluginRecord, ...]] = {}
    for run in experiment.record.runs:
        path = run.path(experiment.path)
        with suppress(HeadToHeadError):  # a damaged run, which the reader of its results names
            if run.variant not in found and observe(path).state in states.RESULTS:
                found[run.variant] = RunDirectory(path).record.plugins
    return {plugin for plugins in found.values() for plugin in plugins}
