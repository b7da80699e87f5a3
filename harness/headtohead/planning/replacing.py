"""Refuse overrides that would replace the results of an experiment.

``experiment.json`` and the report hold what was planned last. An edited file changes the
experiment; options of one call do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headtohead.config.identity import canonical
from headtohead.config.loading import LoadedExperiment, experiment_name
from headtohead.errors import HeadToHeadError
from headtohead.planning.design import expand
from headtohead.planning.plan import Plan
from headtohead.plugins.registry import Registry
from headtohead.storage import states
from headtohead.storage.experiment import ExperimentDirectory
from headtohead.storage.leases import observe
from headtohead.storage.records import EXPERIMENT

PROTECTED = states.RESULTS | states.ACTIVE


def refuse_replacing(plan: Plan, registry: Registry) -> None:
    """Refuse a plan whose overrides leave out runs that have results, or are running.

    Overrides of fields that no result depends on are allowed, and so are further seeds and
    variants: they leave no run out.

    Raises:
        HeadToHeadError: Naming the options, the number of runs and what to type.
    """
    reason = replaced_results(plan, registry)
    if reason:
        raise HeadToHeadError(reason)


def replaced_results(plan: Plan, registry: Registry) -> str | None:
    """Return why ``h2h run`` refuses a plan whose overrides leave out results, or None."""
    loaded = plan.loaded
    if not loaded.overrides and loaded.seeds_option is None:
        return None
    tuned = plan.tuning is None or plan.tuning.is_done
    planned = [(plan, tuned), *([(plan.tuning.plan, True)] if plan.tuning else [])]
    for one, resolved in planned:
        protected = list(_protected(one, resolved))
        lost = protected.count(False)
        if lost and _changes(loaded, registry):
            base = experiment_name(loaded.path)
            return (
                f"experiment '{one.name}' has {len(protected)} finished or running runs, and with "
                f"{' '.join(loaded.run_options)} the report would leave out {lost} of them; add "
                f"--name LABEL (name= in Python), which runs this as experiment '{base}-LABEL', or "
                "write the change into the file"
            )
    return None


def _protected(plan: Plan, resolved: bool) -> Iterator[bool]:
    """Yield, for each recorded run that is finished or running, whether the plan has it.

    Args:
        plan: The plan.
        resolved: Whether its keys are final. Before a sweep has chosen the settings they are not,
            and runs are compared by variant and seed.
    """
    if not (plan.directory / EXPERIMENT).exists():
        return
    kept = {run.key if resolved else (run.variant, run.seed) for run in plan.runs}
    experiment = ExperimentDirectory.read(plan.directory)
    for recorded in experiment.record.runs:
        if observe(experiment.run_path(recorded))[1] in PROTECTED:
            yield (recorded.key if resolved else (recorded.variant, recorded.seed)) in kept


def _changes(loaded: LoadedExperiment, registry: Registry) -> bool:
    """Return whether options of the call change the variants or give the seeds."""
    if loaded.seeds_option is not None:
        return True
    try:
        return _identities(loaded, registry) != _identities(replace(loaded, overrides=()), registry)
    except HeadToHeadError:  # the file cannot be expanded without the overrides
        return True


def _identities(loaded: LoadedExperiment, registry: Registry) -> list[object]:
    variants = expand(loaded, registry).variants
    return [(canonical(one.config, "", registry), one.match) for one in variants]
