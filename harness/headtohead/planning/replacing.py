"""Reject calls that would drop finished runs from an experiment's report, or report runs of changed plugins.

``experiment.json`` and the report contain the runs of the last plan. Editing the experiment file may
replace runs; options of a single call and another file of the same name may not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from headtohead.config.labels import Scalar
from headtohead.config.loading import LoadedExperiment, Override, experiment_name
from headtohead.config.project import next_command
from headtohead.planning.notes import count_are
from headtohead.planning.plan import Plan
from headtohead.planning.variants import is_runtime
from headtohead.storage import states
from headtohead.storage.experiment import (
    EXPERIMENT,
    ExperimentDirectory,
    PlannedRunRecord,
    VariantRecord,
)
from headtohead.storage.leases import observe

OTHER_FILE = (
    "experiment '{experiment}' in '{root}' has the runs of the file '{other}'; rename '{file}', or add --name LABEL "
    "(name= in Python)"
)
DROPPED_RUNS = (
    "experiment '{experiment}' has {number} finished or running runs, and the plan with {options} would drop "
    "{dropped} of them from its report; add --name LABEL (name= in Python) to create experiment '{label}', or edit the "
    "experiment file and run it without these options"
)
CHANGED_PLUGINS = (
    "{runs_are} STALE: {changes}; add --stale (stale=True in Python) to retrain, or keep the old results in "
    "'{experiment}' and train in a separate experiment: {command} --name LABEL"
)

PROTECTED = states.RESULTS | states.ACTIVE


def find_replaced(plan: Plan, *, stale: bool = False) -> str | None:
    """Return the message with which ``h2h run`` rejects a plan and what to do instead, or None if it may run.

    The first of these reasons counts:

    - The folder of the experiment, or of its sweep, has the runs of another file that still exists.
    - The call has options that change runs, and the plan lacks finished or running runs of the last plan.
    - Plugins of finished runs have changed.

    Args:
        plan: The plan.
        stale: Whether stale runs are retrained, so that changed plugins are no reason.

    Raises:
        HeadToHeadError: If the stored ``experiment.json`` or the status of one of its runs is damaged, or the folder is
            a copy of another experiment.
    """
    parts = [plan]  # the experiment and its sweep
    if plan.tuning is not None:
        parts.append(plan.tuning.plan)
    message = _other_file(plan, parts)
    if message is None:
        message = _dropped_runs(plan, parts)
    if message is None and not stale:
        message = _changed_plugins(plan, parts)
    return message


def _other_file(plan: Plan, parts: Sequence[Plan]) -> str | None:
    """Return the message that the folder of a part of the plan has the runs of another file, or None."""
    for part in parts:
        other_file = _recorded_file(part)
        if other_file is not None:
            return OTHER_FILE.format(
                experiment=part.name, root=plan.runs_root, other=other_file, file=plan.loaded.path
            )
    return None


def _dropped_runs(plan: Plan, parts: Sequence[Plan]) -> str | None:
    """Return the message that a part of the plan lacks finished or running runs of its last plan, or None.

    None also if no option of the call changes runs; additional seeds and variants drop no run. With an option that
    changes runs, the runs that an edit of the file dropped count too.
    """
    if not _changes_runs(plan.loaded):
        return None
    for part in parts:
        tuned: Collection[str] = ()
        if plan.tuning is not None and part is not plan:
            tuned = plan.tuning.record.fields
        protected = _count_protected(part, tuned)
        if protected.dropped:
            return DROPPED_RUNS.format(
                experiment=part.name,
                number=protected.recorded,
                options=" ".join(plan.loaded.run_options),
                dropped=protected.dropped,
                label=f"{experiment_name(plan.loaded.path)}-LABEL",
            )
    return None


def _recorded_file(plan: Plan) -> str | None:
    """Return the experiment file of the stored record if it is another one that still exists, else None."""
    if not (plan.directory / EXPERIMENT).exists():
        return None
    recorded = ExperimentDirectory.read(plan.directory).record.file
    if not recorded:
        return None
    path = (plan.runs_root.resolve().parent / recorded).resolve()
    is_other = path.is_file() and path != plan.loaded.path.resolve()
    return recorded if is_other else None


def _changes_runs(loaded: LoadedExperiment) -> bool:
    """Return whether the call has ``--seeds``, or ``--set`` of a field that results depend on.

    A ``--set`` with the value that ``base`` has changes nothing and does not count.
    """
    if loaded.seeds_option:
        return True
    for override in loaded.overrides:
        has_no_effect = is_runtime(*override.path[:2]) or _is_in_base(loaded, override)
        if not has_no_effect:
            return True
    return False


def _is_in_base(loaded: LoadedExperiment, override: Override) -> bool:
    """Return whether the file's ``base`` has the value of an override, which then changes nothing."""
    value: Any = loaded.file.base
    for part in override.path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return bool(value == override.value and value is not None)


def _changed_plugins(plan: Plan, parts: Sequence[Plan]) -> str | None:
    """Return the message that plugins of finished runs have changed, with how to keep or replace the results, or None.

    Only the selected runs of the parts of the plan count.
    """
    changed = []
    for part in parts:
        changed += [run for run in part.selected if run.changed_plugins and run.is_done]
    if not changed:
        return None
    changes = {change for run in changed for change in run.changed_plugins}
    words = [
        next_command("run", plan.loaded.path, plan.runs_root),
        *replace(plan.loaded, label=None).run_options,
    ]
    return CHANGED_PLUGINS.format(
        runs_are=count_are(len(changed), "finished run"),
        changes=", ".join(sorted(changes)),
        experiment=plan.name,
        command=" ".join(words),
    )


def dropped_note(plan: Plan) -> str | None:
    """Return a sentence if finished or running runs are no longer planned and leave the report, else None.

    Raises:
        HeadToHeadError: If the stored ``experiment.json`` or the status of one of its runs is damaged, or the folder is
            a copy of another experiment.
    """
    dropped = _count_protected(plan).dropped
    if not dropped:
        return None
    return (
        f"{count_are(dropped, 'finished or running run')} no longer in the plan and leave the report, because the file "
        "or the options changed; --name LABEL keeps both experiments, h2h clean lists the runs"
    )


class Protected(NamedTuple):
    """The number of recorded runs that are finished or running, and of those that the plan lacks."""

    recorded: int
    dropped: int


def _count_protected(plan: Plan, tuned: Collection[str] = ()) -> Protected:
    """Return how many runs of the stored record are finished or running, and how many of them the plan lacks.

    Both are 0 without a stored record. Before settings are chosen, run hashes are not final, and runs are compared by
    variant and seed.

    Args:
        plan: The plan of an experiment, or of its sweep.
        tuned: The fields of the sweep, if ``plan`` is the plan of a sweep; else empty. The plan of a sweep has the
            values that the file lists, and values beyond them only once the listed ones have results. A variant whose
            planned runs are all recorded can therefore have further recorded runs; none of its runs is dropped.

    Raises:
        HeadToHeadError: If the stored record or the status of a recorded run is damaged, or the folder is a copy of
            another experiment.
    """
    if not (plan.directory / EXPERIMENT).exists():
        return Protected(0, 0)
    experiment = ExperimentDirectory.read(plan.directory)
    record_of = experiment.record.by_slug
    are_hashes_final = plan.tuning is None or plan.tuning.is_chosen

    def key(run: PlannedRunRecord) -> object:
        return run.run_hash if are_hashes_final else (run.variant, run.seed)

    planned = {key(run) for run in plan.runs}
    complete = []
    if tuned:
        recorded_hashes = {run.run_hash for run in experiment.record.runs}
        complete = _complete_variants(plan, recorded_hashes, tuned)
    number = 0
    dropped = 0
    for recorded in experiment.record.runs:
        if observe(recorded.path(experiment.path)).state not in PROTECTED:
            continue
        number += 1
        is_of_complete_variant = _untuned(record_of[recorded.variant], tuned) in complete
        if key(recorded) not in planned and not is_of_complete_variant:
            dropped += 1
    return Protected(number, dropped)


def _complete_variants(
    plan: Plan, recorded_hashes: Collection[str], tuned: Collection[str]
) -> list[dict[str, Scalar]]:
    """Return the axis values, without swept fields, of the tuned variants whose planned tuning runs are all recorded.

    The values of a variant occur once for each of its settings.
    """
    incomplete = []
    for run in plan.runs:
        if run.run_hash not in recorded_hashes:
            incomplete.append(_untuned(plan.by_slug[run.variant].record, tuned))
    complete = []
    for variant in plan.variants:
        axes = _untuned(variant.record, tuned)
        if axes not in incomplete:
            complete.append(axes)
    return complete


def _untuned(variant: VariantRecord, tuned: Collection[str]) -> dict[str, Scalar]:
    """Return the axis values of a variant without the fields that the sweep sets."""
    return {axis: value for axis, value in variant.axes.items() if axis not in tuned}
