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
from headtohead.planning.plan import Plan
from headtohead.plugins.registry import Registry
from headtohead.storage import states
from headtohead.storage.experiment import EXPERIMENT, ExperimentDirectory
from headtohead.storage.leases import observe

PROTECTED = states.RESULTS | states.ACTIVE


def refuse_replacing(plan: Plan, registry: Registry, *, stale: bool = False) -> None:
    """Raise an error if the overrides of a plan drop finished or running runs, or if its name is another file's.

    Overrides of fields that no result depends on are allowed, as are additional seeds and variants. Finished runs with
    a changed plugin are an error too, unless ``stale`` is set, which retrains them.

    Raises:
        HeadToHeadError: With the other file, the changed plugins, or the options and the number of dropped runs, and
            what to do instead.
    """
    reason = replaced_results(plan, registry) or (None if stale else stale_results(plan))
    if reason:
        raise HeadToHeadError(reason)


def replaced_results(plan: Plan, registry: Registry) -> str | None:
    """Return why ``h2h run`` rejects the file or the overrides of a plan, or None."""
    loaded = plan.loaded
    for own in (plan, *([plan.tuning.plan] if plan.tuning else [])):
        if taken := _taken_by(own):
            return (
                f"experiment '{own.name}' in '{plan.runs_root}' has the runs of the file '{taken}'; "
                f"rename '{loaded.path}', or add --name LABEL (name= in Python)"
            )
    if not loaded.overrides and loaded.seeds_option is None:
        return None
    tuned = plan.tuning is None or plan.tuning.is_done
    planned = [(plan, tuned), *([(plan.tuning.plan, True)] if plan.tuning else [])]
    for checked, resolved in planned:
        protected = list(_protected(checked, resolved))
        dropped = protected.count(False)
        if dropped and _changes(loaded, registry):
            base = experiment_name(loaded.path)
            return (
                f"experiment '{checked.name}' has {len(protected)} finished or running runs, and "
                f"{' '.join(loaded.run_options)} would drop {dropped} of them from its report; add "
                f"--name LABEL (name= in Python) to create experiment '{base}-LABEL', or "
                "edit the experiment file"
            )
    return None


def stale_results(plan: Plan) -> str | None:
    """Return why ``h2h run`` rejects a plan with finished runs whose plugins have changed, or None."""
    plans = [plan, *([plan.tuning.plan] if plan.tuning else [])]
    stale = [run for part in plans for run in part.selected if run.changed_plugins]
    if not stale:
        return None
    loaded = plan.loaded
    words = [next_command("run", loaded.path, plan.runs_root), *replace(loaded, label=None).run_options]
    runs = "1 finished run is" if len(stale) == 1 else f"{len(stale)} finished runs are"
    changes = ", ".join(sorted({change for run in stale for change in run.changed_plugins}))
    return (
        f"{runs} STALE: {changes}; add --stale (stale=True in Python) to retrain, or keep the old results in "
        f"'{plan.name}' and train in a separate experiment: {' '.join(words)} --name LABEL"
    )


def dropped_note(plan: Plan) -> str | None:
    """Return a sentence if finished runs are no longer planned and leave the report, else None."""
    dropped = list(_protected(plan, plan.tuning is None or plan.tuning.is_done)).count(False)
    if not dropped:
        return None
    runs = "1 finished run is" if dropped == 1 else f"{dropped} finished runs are"
    return (
        f"{runs} no longer in the plan and leave the report, because the file or the options changed; --name LABEL "
        "keeps both experiments, h2h clean lists the runs"
    )


def _taken_by(plan: Plan) -> str | None:
    """Return the recorded file of the experiment if it is another file that still exists, else None."""
    if not (plan.directory / EXPERIMENT).exists():
        return None
    recorded = ExperimentDirectory.read(plan.directory).record.file
    if not recorded:
        return None
    other = (plan.runs_root.resolve().parent / recorded).resolve()
    return recorded if other.is_file() and other != plan.loaded.path.resolve() else None


def _protected(plan: Plan, resolved: bool) -> Iterator[bool]:
    """Yield, for each recorded run that is finished or running, whether the plan contains it.

    Args:
        plan: The plan.
        resolved: Whether the run hashes of the plan are final. While tuning is incomplete they are not,
            and runs are compared by variant and seed.
    """
    if not (plan.directory / EXPERIMENT).exists():
        return
    planned = {run.run_hash if resolved else (run.variant, run.seed) for run in plan.runs}
    experiment = ExperimentDirectory.read(plan.directory)
    for recorded in experiment.record.runs:
        if observe(experiment.run_path(recorded))[1] in PROTECTED:
            yield (recorded.run_hash if resolved else (recorded.variant, recorded.seed)) in planned


def _changes(loaded: LoadedExperiment, registry: Registry) -> bool:
    """Return whether the options of the call change the variants or the seeds."""
    if loaded.seeds_option is not None:
        return True

    def keys(loaded: LoadedExperiment) -> list[str]:
        return [variant_key(variant.config, variant.match) for variant in expand(loaded, registry).variants]

    try:
        return keys(loaded) != keys(replace(loaded, overrides=()))
    except HeadToHeadError:  # The file is invalid without the overrides.
        return True
