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
from headtohead_judge.numbers import counted

PROSE = ("question", "description", "names")
"""Fields of an experiment file that no result depends on."""

MAX_FIELDS = 3
"""Number of changed fields that are named."""

MAX_QUOTED = 40
"""Number of characters of a value that is quoted."""


def stale_changes(experiment: ExperimentDirectory, file: Path | None = None) -> tuple[str, ...]:
    """Return the changes since the runs of an experiment were planned and trained; an answer with changes is STALE.

    Files that are missing on this machine count as unchanged. Comments and the notation of a file do not count. The
    experiment ``file`` is by default the recorded file in the project.
    """
    project = _project(experiment)
    if file is None:
        file = project / (experiment.record.file or "")
    return (
        *_changed_fields(experiment.record.text, file),
        *_changed_data(experiment),
        *_changed_plugins(_plugins(experiment), project),
    )


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
        recorded = plugin.hashes
        for label, sha256 in _present_hashes(plugin, project).items():
            if recorded[label] != sha256:
                changed.add(f"{label} has changed")
    return sorted(changed)


def _present_hashes(plugin: PluginRecord, project: Path) -> dict[str, str]:
    """Return the present hashes of a plugin as `PluginRecord.hashes` has them; of missing files, the recorded ones."""
    sha256 = plugin.source_sha256
    if plugin.source is not None:
        source = source_file(plugin.source, project)
        if source is not None:
            sha256 = source_sha256(source)
    reads = []
    for read in plugin.reads:
        if read.path is None:
            reads.append((read.name, variable_sha256(read.name)))
        elif (project / read.path).exists():
            reads.append((read.name, content_sha256(project / read.path)))
    return labelled_hashes(plugin.family, plugin.name, sha256, reads)


def _changed_fields(recorded: str, file: Path) -> Iterator[str]:
    """Yield the changed fields of an experiment file, with both values."""
    if not recorded or not file.is_file():
        return
    try:
        written = files.read_text(file).removeprefix("\ufeff")
        before = dict(leaves(parse(recorded, str(file))[0]))
        now = dict(leaves(parse(written, str(file))[0]))
    except HeadToHeadError:
        yield "the experiment file is invalid"
        return
    changed = []
    for name in dict.fromkeys([*before, *now]):
        if name not in PROSE and before.get(name) != now.get(name):
            changed.append(name)
    for name in changed[:MAX_FIELDS]:
        old = before.get(name)
        new = now.get(name)
        if _is_short(old) and _is_short(new):
            yield f"{name} was {shown(old)}, is now {shown(new)}"
        else:
            yield f"{name} has changed"
    if len(changed) > MAX_FIELDS:
        yield f"{counted(len(changed) - MAX_FIELDS, 'more field')} changed"


def _is_short(value: object) -> bool:
    """Return whether a message can quote a value."""
    return not isinstance(value, list) and len(shown(value)) <= MAX_QUOTED


def _plugins(experiment: ExperimentDirectory) -> set[PluginRecord]:
    """Return the plugins of the first finished run of each variant."""
    plugins: set[PluginRecord] = set()
    variants: set[str] = set()
    for run in experiment.record.runs:
        path = run.path(experiment.path)
        with suppress(HeadToHeadError):  # a damaged run, which the reader of its results names
            if run.variant not in variants and observe(path).state in states.RESULTS:
                plugins.update(RunDirectory(path).record.plugins)
                variants.add(run.variant)
    return plugins
