"""Reject calls that would drop finished runs from an experiment's report, or report runs of changed plugins.

``experiment.json`` and the report contain the runs of the last plan. Editing the experiment file may
replace runs; options of a single call and another file of the same name may not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headtohead.config.loading import LoadedExperiment, experiment_name
from headtohead.config.project import next_command
from headtohead.errors import HeadToHeadError
from headtohead.planning.design import expand, variant_key
from headtohead.planning.plan import Plan, count_are
from headtohead.storage import states
from headtohead.storage.experiment import EXPERIMENT, ExperimentDirectory
from headtohead.storage.leases import observe

PROTECTED = states.RESULTS | states.ACTIVE


def refuse_replacing(plan: Plan, *, stale: bool = False) -> None:
    """Raise an error if `replaced_results` finds a reason, or `stale_results` does and ``stale`` is not set.

    Raises:
        HeadToHeadError: With what would be lost, and what to do instead.
    """
    reason = replaced_results(plan) or (None if stale else stale_results(plan))
    if reason:
        raise HeadToHeadError(reason)


def replaced_results(plan: Plan) -> str | None:
    """Return why ``h2h run`` rejects the file or the overrides of a plan, or None.

    The experiment's name may be that of another file, or overrides may drop finished or running runs. Additional seeds
    and variants drop none, and neither do overrides of fields that no result depends on.
    """
    loaded = plan.loaded
    for own in _plans(plan):
        if taken := _taken_by(own):
            return (
                f"experiment '{own.name}' in '{plan.runs_root}' has the runs of the file '{taken}'; "
                f"rename '{loaded.path}', or add --name LABEL (name= in Python)"
            )
    for own in _plans(plan) if loaded.overrides or loaded.seeds_option is not None else ():
        protected = list(_protected(own))
        if (dropped := protected.count(False)) and _change_runs(loaded):
            return (
                f"experiment '{own.name}' has {len(protected)} finished or running runs, and "
                f"{' '.join(loaded.run_options)} would drop {dropped} of them from its report; add --name LABEL (name= "
                f"in Python) to create experiment '{experiment_name(loaded.path)}-LABEL', or edit the experiment file "
                "and run it without these options"
            )
    return None


def stale_results(plan: Plan) -> str | None:
    """Return why ``h2h run`` rejects a plan with finished runs whose plugins have changed, or None."""
    stale = [run for part in _plans(plan) for run in part.selected if run.changed_plugins]
    if not stale:
        return None
    loaded = plan.loaded
    words = [next_command("run", loaded.path, plan.runs_root), *replace(loaded, label=None).run_options]
    changes = ", ".join(sorted({change for run in stale for change in run.changed_plugins}))
    return (
        f"{count_are(len(stale), 'finished run')} STALE: {changes}; add --stale (stale=True in Python) to retrain, or "
        f"keep the old results in '{plan.name}' and train in a separate experiment: {' '.join(words)} --name LABEL"
    )


def dropped_note(plan: Plan) -> str | None:
    """Return a sentence if finished runs are no longer planned and leave the report, else None."""
    if not (dropped := list(_protected(plan)).count(False)):
        return None
    return (
        f"{count_are(dropped, 'finished run')} no longer in the plan and leave the report, because the file or the "
        "options changed; --name LABEL keeps both experiments, h2h clean lists the runs"
    )


def _plans(plan: Plan) -> list[Plan]:
    """Return the plan and that of its tuning runs."""
    return [plan, *([plan.tuning.plan] if plan.tuning else [])]


def _taken_by(plan: Plan) -> str | None:
    """Return the recorded file of the experiment if it is another file that still exists, else None."""
    if not (plan.directory / EXPERIMENT).exists():
        return None
    recorded = ExperimentDirectory.read(plan.directory).record.file
    if not recorded:
        return None
    other = (plan.runs_root.resolve().parent / recorded).resolve()
    return recorded if other.is_file() and other != plan.loaded.path.resolve() else None


def _protected(plan: Plan) -> Iterator[bool]:
    """Yield, for each recorded run that is finished or running, whether the plan contains it.

    While tuning is incomplete, run hashes are not final, and runs are compared by variant and seed.
    """
    if not (plan.directory / EXPERIMENT).exists():
        return
    is_final = plan.tuning is None or plan.tuning.is_done
    planned = {run.run_hash if is_final else (run.variant, run.seed) for run in plan.runs}
    experiment = ExperimentDirectory.read(plan.directory)
    for recorded in experiment.record.runs:
        if observe(recorded.path(experiment.path)).state in PROTECTED:
            yield (recorded.run_hash if is_final else (recorded.variant, recorded.seed)) in planned


def _change_runs(loaded: LoadedExperiment) -> bool:
    """Return whether the options of the call change the variants or may change the seeds of the file."""

    def keys(loaded: LoadedExperiment) -> list[str]:
        variants = expand(loaded, loaded.load_plugins()).variants
        return [variant_key(variant.config, variant.match) for variant in variants]

    try:
        return loaded.seeds_option is not None or keys(loaded) != keys(replace(loaded, overrides=()))
    except HeadToHeadError:  # the file is invalid without the overrides
        return True
