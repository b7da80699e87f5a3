"""Reject calls that would drop finished runs from an experiment's report, or report runs of changed plugins.

``experiment.json`` and the report contain the runs of the last plan. Editing the experiment file may
replace runs; options of a single call and another file of the same name may not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from headtohead.config.labels import Scalar
from headtohead.config.loading import LoadedExperiment, Override, experiment_name
from headtohead.config.project import next_command
from headtohead.planning.notes import count_are
from headtohead.planning.plan import Plan
from headtohead.planning.variants import is_runtime
from headtohead.storage import states
from headtohead.storage.experiment import EXPERIMENT, ExperimentDirectory, VariantRecord
from headtohead.storage.leases import observe

PROTECTED = states.RESULTS | states.ACTIVE


def find_replaced(plan: Plan, *, stale: bool = False) -> str | None:
    """Return why ``h2h run`` rejects a plan, with what would be lost and what to do instead, or None.

    The experiment's name may be that of another file, overrides may drop finished or running runs, or, without
    ``stale``, plugins of finished runs have changed. Additional seeds and variants drop no run, and neither do
    overrides of fields that no result depends on.
    """
    loaded, plans = plan.loaded, [plan, *([plan.tuning.plan] if plan.tuning else [])]
    for own in plans:
        if not (own.directory / EXPERIMENT).exists():
            continue
        recorded = ExperimentDirectory.read(own.directory).record.file or ""
        other = (plan.runs_root.resolve().parent / recorded).resolve()
        if recorded and other.is_file() and other != loaded.path.resolve():
            return (
                f"experiment '{own.name}' in '{plan.runs_root}' has the runs of the file '{recorded}'; "
                f"rename '{loaded.path}', or add --name LABEL (name= in Python)"
            )
    changes_runs = loaded.seeds_option or not all(
        is_runtime(*override.path[:2]) or _is_in_base(loaded, override)
        for override in loaded.overrides
    )
    for own in plans if changes_runs else ():
        protected = list(
            _protected(own, plan.tuning.record.fields if plan.tuning and own is not plan else ())
        )
        if dropped := protected.count(False):
            return (
                f"experiment '{own.name}' has {len(protected)} finished or running runs, and "
                f"{' '.join(loaded.run_options)} would drop {dropped} of them from its report; add --name LABEL (name= "
                f"in Python) to create experiment '{experiment_name(loaded.path)}-LABEL', or edit the experiment file "
                "and run it without these options"
            )
    changed = [
        run
        for part in plans
        for run in part.selected
        if run.changed_plugins and run.is_done and not stale
    ]
    if not changed:
        return None
    words = [
        next_command("run", loaded.path, plan.runs_root),
        *replace(loaded, label=None).run_options,
    ]
    changes = ", ".join(sorted({change for run in changed for change in run.changed_plugins}))
    return (
        f"{count_are(len(changed), 'finished run')} STALE: {changes}; add --stale (stale=True in Python) to retrain, "
        f"or keep the old results in '{plan.name}' and train in a separate experiment: {' '.join(words)} --name LABEL"
    )


def _is_in_base(loaded: LoadedExperiment, override: Override) -> bool:
    """Return whether the file's ``base`` has the value of an override, which then changes nothing."""
    value: Any = loaded.file.base
    for part in override.path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return bool(value == override.value and value is not None)


def dropped_note(plan: Plan) -> str | None:
    """Return a sentence if finished runs are no longer planned and leave the report, else None."""
    if not (dropped := list(_protected(plan)).count(False)):
        return None
    return (
        f"{count_are(dropped, 'finished run')} no longer in the plan and leave the report, because the file or the "
        "options changed; --name LABEL keeps both experiments, h2h clean lists the runs"
    )


def _protected(plan: Plan, tuned: Collection[str] = ()) -> Iterator[bool]:
    """Yield, for each recorded run that is finished or running, whether the plan contains it.

    Before settings are chosen, run hashes are not final, and runs are compared by variant and seed. Of a sweep of the
    fields ``tuned``, the plan lacks further values until all listed values have results, as with ``--fresh``. They are
    contained if the listed values of their variant are recorded.
    """

    def untuned(variant: VariantRecord) -> dict[str, Scalar]:
        return {axis: value for axis, value in variant.axes.items() if axis not in tuned}

    if not (plan.directory / EXPERIMENT).exists():
        return
    is_final = plan.tuning is None or plan.tuning.is_chosen
    planned = {run.run_hash if is_final else (run.variant, run.seed) for run in plan.runs}
    experiment = ExperimentDirectory.read(plan.directory)
    known = {run.run_hash for run in experiment.record.runs}
    new = [
        untuned(plan.by_slug[run.variant].record) for run in plan.runs if run.run_hash not in known
    ]
    swept = [untuned(variant.record) for variant in plan.variants if tuned]
    for recorded in experiment.record.runs:
        if observe(recorded.path(experiment.path)).state in PROTECTED:
            own = untuned(experiment.record.by_slug[recorded.variant])
            is_planned = (
                recorded.run_hash if is_final else (recorded.variant, recorded.seed)
            ) in planned
            yield is_planned or (own in swept and own not in new)
