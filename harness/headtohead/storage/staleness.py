"""Changes since the runs of an experiment were trained: fields of its file, data files, and sources of its plugins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from headtohead import files
from headtohead.config.source_location import shown
from headtohead.config.yaml_text import parse
from headtohead.errors import HeadToHeadError
from headtohead.plugins.reads import content_sha256, labelled_hashes, variable_sha256
from headtohead.plugins.sources import source_file, source_sha256
from headtohead.storage import states
from headtohead.storage.experiment import EXPERIMENT, ExperimentDirectory
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
    project = _project(experiment)
    fields = _changed_fields(
        experiment.record.text, file or project / (experiment.record.file or "")
    )
    return (*fields, *_changed_data(experiment), *_changed_plugins(_plugins(experiment), project))


def stale_run(run: RunDirectory) -> tuple[str, ...]:
    """Return the changes since a run with a result was planned: of its plugins, what they read, and its data files.

    Those of other states are empty: the next ``h2h run`` trains such a run with the present files.
    """
    if run.state not in states.RESULTS:
        return ()
    folder = run.path.resolve().parent
    plugins = _changed_plugins(run.record.plugins, folder.parent.parent)
    if not (folder / EXPERIMENT).exists():
        return tuple(plugins)
    return (*_changed_data(ExperimentDirectory.read(folder)), *plugins)


def _project(experiment: ExperimentDirectory) -> Path:
    return experiment.path.resolve().parent.parent


def _changed_data(experiment: ExperimentDirectory) -> Iterator[str]:
    """Yield the changed data files of an experiment."""
    for name, sha256 in experiment.record.data_files.items():
        path = _project(experiment) / name
        if path.is_file() and files.sha256(path) != sha256:
            yield f"data file '{name}' has changed"


def _changed_plugins(plugins: Iterable[PluginRecord], project: Path) -> list[str]:
    """Return the plugins, and the files and variables that they read, whose content has changed, sorted."""
    changed = set()
    for plugin in plugins:
        now = _present_hashes(plugin, project)
        changed |= {
            f"{label} has changed"
            for label, sha256 in now.items()
            if plugin.hashes[label] != sha256
        }
    return sorted(changed)


def _present_hashes(plugin: PluginRecord, project: Path) -> dict[str, str]:
    """Return the present hashes of a plugin as `PluginRecord.hashes` has them; of missing files, the recorded ones."""
    source = source_file(plugin.source, project) if plugin.source is not None else None
    sha256 = plugin.source_sha256 if source is None else source_sha256(source)
    reads = []
    for read in plugin.reads:
        if read.path is None:
            reads.append((read.name, variable_sha256(read.name)))
        elif (path := project / read.path).exists():
            reads.append((read.name, content_sha256(path)))
    return labelled_hashes(plugin.family, plugin.name, sha256, reads)


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
