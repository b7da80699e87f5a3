"""The records of a plan: ``experiment.json``, and ``run.json`` of each run before its stack is assigned."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headtohead.config.entries import entries_of
from headtohead.config.project import in_project
from headtohead.config.versions import versions
from headtohead.data.reading import file_sha256
from headtohead.errors import HeadToHeadError
from headtohead.planning.lookup import PlannedRun
from headtohead.planning.notes import notes_of
from headtohead.planning.plan import Plan
from headtohead.plugins.reads import Read
from headtohead.plugins.registry import Registered, calling, find_entry
from headtohead.plugins.sources import name_in_project, source_name
from headtohead.schema.run_config import EntryConfig
from headtohead.storage import states
from headtohead.storage.contrasts import ContrastRecord
from headtohead.storage.existing import run_directories
from headtohead.storage.experiment import (
    EntryRecord,
    ExperimentDirectory,
    ExperimentRecord,
    LooksRecord,
    MarginRecord,
    VariantRecord,
)
from headtohead.storage.record import read_record
from headtohead.storage.run import RUN, PluginRecord, ReadRecord, RunRecord, read_status
from headtohead.storage.run_directory import now


def experiment_record(plan: Plan, command: str = "") -> ExperimentRecord:
    """Return the content of ``experiment.json``; nothing is written.

    Margins and looks of the stored record keep their dates; a missing or damaged one counts as none. Files of data that
    do not exist are left out.

    Args:
        plan: The plan, with at least one run.
        command: The shell command that runs the experiment; default: ``h2h run`` with the options of this call.

    Raises:
        HeadToHeadError: If a file of the data cannot be read; or if the file has a margin and a run directory of the
            experiment is a symbolic link.
        pydantic.ValidationError: If the plan has no run.
    """
    file = plan.loaded.file
    path = in_project(plan.loaded.path, plan.runs_root)
    stored = ExperimentDirectory.find_record(plan.directory)
    return ExperimentRecord(
        name=plan.name,
        question=file.question,
        description=file.description,
        file=path,
        text=plan.loaded.text,
        command=command or " ".join(["h2h run", path, *plan.loaded.run_options]),
        created=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        axes=plan.design.axes,
        axis_names=plan.design.axis_names,
        baseline=plan.design.baseline,
        seeds=plan.design.seeds,
        variants=tuple(variant.record for variant in plan.variants),
        tuning=plan.tuning.record if plan.tuning else None,
        excluded=plan.design.excluded,
        contrasts=plan.contrasts,
        match=file.match,
        entries=_compared_entries(plan),
        metrics=plan.metrics,
        margins=_margins(plan, stored),
        looks=_looks(plan, stored),
        late_fields=_late_fields(plan, stored),
        probes=plan.probes,
        notes=tuple(notes_of(plan)),
        data=plan.data.record,
        data_files=_data_files(plan),
        runs=plan.runs,
        versions=versions(plan.loaded.path),
    )


def run_record(plan: Plan, run: PlannedRun) -> RunRecord:
    """Return the content of a run's ``run.json`` before its stack is assigned; nothing is written.

    The hashes of plugins and of what they read are those of the plan.

    Raises:
        KeyError: If the run's variant is none of the plan.
    """
    variant = plan.variant_of(run)
    return RunRecord(
        run_hash=run.run_hash,
        experiment=plan.name,
        variant=run.variant,
        seed=run.seed,
        plugins=plugin_records(variant.plugins, plan.runs_root.resolve().parent),
        data=plan.data_of(run).record,
        versions=versions(plan.loaded.path),
        created=now(),
        **variant.record.resolved,
    )


def plugin_records(plugins: Iterable[Registered], project: Path) -> tuple[PluginRecord, ...]:
    """Return the records of the plugin entries that a run uses.

    A source file is named by its import name if it is installed, by its path from ``project`` if it is inside, else by
    its absolute path; the source of a notebook's cell is None.
    """
    return tuple(_plugin_record(entry, project) for entry in plugins)


def _plugin_record(entry: Registered, project: Path) -> PluginRecord:
    """Return the record of a plugin entry: its origin, and the hashes of its source and of what it reads."""
    reads = tuple(_read_record(read, project) for read in entry.reads)
    return PluginRecord(
        family=entry.family,
        name=entry.name,
        module=entry.module,
        distribution=entry.distribution,
        version=entry.version,
        source_sha256=entry.source_sha256,
        source=source_name(entry.entry, project),
        reads=reads,
    )


def _read_record(read: Read, project: Path) -> ReadRecord:
    """Return the record of a file or variable that a plugin reads; a variable has no path."""
    path = None
    if read.path is not None:
        # The folder without links: a link may lead to another file later.
        path = name_in_project(read.path.parent.resolve() / read.path.name, project)
    return ReadRecord(name=read.name, path=path, sha256=read.sha256)


def _data_files(plan: Plan) -> dict[str, str]:
    """Return the sha256 of each data file of the variants."""
    names = {name for variant in plan.variants for name in variant.config.data.files}
    hashes = {}
    for name in sorted(names):
        path = Path(name).expanduser()
        if path.is_file():
            hashes[in_project(path, plan.runs_root)] = file_sha256(path)
    return hashes


def _compared_entries(plan: Plan) -> tuple[EntryRecord, ...]:
    """Return the plugin entries in which the variants differ, with the entries that these combine, each once.

    A role in which all variants have the same names is left out, also if their options differ; names of combined
    entries count. If the variants have different numbers of entries, such as those of two architectures, the entries of
    all roles are returned.

    Raises:
        HeadToHeadError: If an entry is not registered, or a plugin fails.
    """
    chosen = [list(entries_of(variant.config)) for variant in plan.variants]
    groups: Iterable[Sequence[tuple[str, EntryConfig]]] = chosen
    if len({len(entries) for entries in chosen}) == 1:
        groups = zip(*chosen, strict=True)  # a group has the entries of a role, one per variant
    records: dict[tuple[str, str], EntryRecord] = {}
    for entries in groups:
        if all(entry == entries[0] for entry in entries):
            continue
        used = {_with_combined(family, entry): None for family, entry in entries}
        if len(used) == 1:
            continue
        for family, names in used:
            for name in names:
                summary = find_entry(family, name).entry.summary()
                record = EntryRecord(family=family, name=name, summary=summary)
                records.setdefault((family, name), record)
    return tuple(records.values())


def _with_combined(family: str, chosen: EntryConfig) -> tuple[str, tuple[str, ...]]:
    """Return the family of an entry, and its name with the names of the entries that it combines."""
    entry = find_entry(family, chosen.name).entry
    with calling(entry):
        return family, (chosen.name, *entry.depends_on(chosen.options))


def _margins(plan: Plan, stored: ExperimentRecord | None) -> dict[str, MarginRecord]:
    """Return the margins of the file by metric, with the date since when they have had their value.

    A margin with the value of the stored record keeps its date, and whether it was late. A new or changed margin has
    the present time, and is late if there are results.

    Raises:
        HeadToHeadError: If a margin has changed, and a run directory of the experiment is a symbolic link.
    """
    earlier: Mapping[str, MarginRecord] = {} if stored is None else stored.margins
    changed = set()
    for metric, value in plan.margins.items():
        if metric not in earlier or earlier[metric].value != value:
            changed.add(metric)
    is_late = bool(changed) and _has_results(plan, plan.design.seeds)
    date = now()
    margins = {}
    for metric, value in plan.margins.items():
        if metric in changed:
            margins[metric] = MarginRecord(value=value, since=date, late=is_late)
        else:
            margins[metric] = earlier[metric]
    return margins


WHOLE_QUESTION = "the whole question"
"""Stands for all fields of a question."""


def _late_fields(plan: Plan, stored: ExperimentRecord | None) -> dict[str, str]:
    """Return the fields of the question that were chosen after results existed, with the date of the last change.

    A new experiment whose runs are all results of other experiments has `WHOLE_QUESTION`.

    Numbers of seeds that looks plan have a record of their own (`_looks`), and so have margins.

    Raises:
        HeadToHeadError: If a field has changed, and a run directory of the experiment is a symbolic link.
    """
    if stored is None:
        is_late = bool(plan.runs) and all(run.is_done and run.reused_from for run in plan.runs)
        return {WHOLE_QUESTION: now()} if is_late else {}
    axes = {*stored.axes} & {*plan.design.axes}
    variants = [variant.record for variant in plan.variants]
    before = _question(stored.variants, stored.baseline, stored.contrasts, axes)
    present = _question(variants, plan.design.baseline, plan.contrasts, axes)
    before["metrics.primary"] = stored.metrics.primary
    present["metrics.primary"] = plan.metrics.primary
    if plan.looks is None:
        before["seeds"] = stored.seeds
        present["seeds"] = plan.design.seeds
    changed = [name for name in present if present[name] != before[name]]
    late_fields = dict(stored.late_fields)
    if changed and _has_results(plan, {*stored.seeds, *plan.design.seeds}):
        late_fields |= dict.fromkeys(changed, now())
    return late_fields


def _question(
    variants: Iterable[VariantRecord],
    baseline: str,
    contrasts: Iterable[ContrastRecord],
    axes: Collection[str],
) -> dict[str, Any]:
    """Return what is compared: the variants, the baseline, and the contrasts that the experiment file declares.

    The variants are compared by their slugs, which depend on all axes, so that a further axis is a change. The baseline
    and the contrasts are compared by the values of ``axes`` that their variants have, so that it is no change of these.
    Names of contrasts and sources of expected results do not count.
    """
    settings = {}
    for variant in variants:
        settings[variant.slug] = str([(axis, variant.axes[axis]) for axis in sorted(axes)])
    declared = []
    for contrast in contrasts:
        if contrast.family != "declared":
            continue
        weights = []
        for setting in contrast.settings:
            sides = []
            for side in setting:
                sides.append(
                    (settings[side.variant], side.weight, str(side.metric), str(side.lengths))
                )
            weights.append(sorted(sides))
        expected = None
        if contrast.expect is not None:
            expected = contrast.expect.model_copy(update={"source": ""})
        declared.append((weights, expected))
    return {"design": set(settings), "baseline": settings[baseline], "contrasts": declared}


def _has_results(plan: Plan, seeds: Collection[int]) -> bool:
    """Return whether the plan has a result: of its runs, or of a run in its folder with one of the seeds and its data.

    Damaged run directories are skipped.

    Raises:
        HeadToHeadError: If a run directory is a symbolic link.
    """
    if any(run.is_done for run in plan.runs):
        return True
    for path in run_directories(plan.directory):
        with suppress(HeadToHeadError):  # a damaged run
            record = read_record(RunRecord, path / RUN)
            if record is None or record.seed not in seeds:
                continue
            has_result = read_status(path).state in states.RESULTS
            if has_result and record.data["data_hash"] in plan.prepared:
                return True
    return False


def _looks(plan: Plan, stored: ExperimentRecord | None) -> LooksRecord | None:
    """Return the looks of the plan, with those that were taken; None if there never were looks.

    Looks at the seeds of the stored record keep its date and the smaller looks that it has taken; other looks have the
    present time. If the number of seeds is fixed now and was not before, ``seeds`` and ``taken`` are empty.
    """
    earlier = None if stored is None else stored.looks
    if plan.looks is None:
        if earlier is None or not earlier.seeds:
            return earlier
        return LooksRecord(seeds=(), taken=(), since=now())
    present = len(plan.design.seeds)
    if earlier is None or earlier.seeds != plan.looks.seeds:
        return LooksRecord(seeds=plan.looks.seeds, taken=(present,), since=now())
    before = [seeds for seeds in earlier.taken if seeds < present]
    return earlier.model_copy(update={"taken": (*before, present)})
