"""The runs of a plan with the states of their directories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headtohead.config.identity import run_hashes
from headtohead.config.versions import changed_plugins, drift
from headtohead.planning.costs import PlannedVariant
from headtohead.plugins.registry import Registered
from headtohead.storage import states
from headtohead.storage.existing import ExistingRun, ExistingRuns, refuse_difference
from headtohead.storage.experiment import PlannedRunRecord
from headtohead.storage.run import ExecutionRecord
from headtohead.storage.run_directory import RunDirectory

MISSING = "MISSING"
"""State of a planned run without a directory."""


class PlannedRun(PlannedRunRecord):
    """A run of the plan with the state of its directory.

    ``stale`` lists the code and plugin versions that changed after a finished run was recorded, ``changed_plugins``
    only the plugins, also of incomplete runs. ``experiment.json`` holds the fields of `PlannedRunRecord` only.
    """

    state: str = MISSING
    reason: str | None = None
    stale: tuple[str, ...] = ()
    changed_plugins: tuple[str, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether the run has a result; a diverged run has a result."""
        return self.state in states.RESULTS


@dataclass(frozen=True)
class FinishedRun:
    """A DONE run, how it was trained, and its final metrics."""

    run: PlannedRun
    execution: ExecutionRecord | None
    metrics: Mapping[str, float | None]


def look_up_runs(
    experiment: str,
    variants: Sequence[PlannedVariant],
    seeds_of: Callable[[str], Sequence[int]],
    existing: ExistingRuns | None,
) -> tuple[list[PlannedRun], list[FinishedRun]]:
    """Return the runs of all variants that train, by variant and then by seed, and those of them that are DONE.

    A run without a directory is ``MISSING``. So is a run that only another experiment has finished, if plugins have
    changed since.

    Args:
        experiment: Name of the experiment.
        variants: The variants; one that equals another by construction has no runs.
        seeds_of: Returns the seeds of a variant by its slug.
        existing: Run directories; None ignores all, so that every run is ``MISSING``.

    Raises:
        HeadToHeadError: If the directory of a run is damaged or a symbolic link, or has the hash of a run and another
            configuration.
    """
    runs: list[PlannedRun] = []
    finished: list[FinishedRun] = []
    for variant in variants:
        if variant.record.equal_to:
            continue
        seeds = seeds_of(variant.slug)
        hashes = run_hashes(variant.identity, seeds)
        for seed, run_hash in zip(seeds, hashes, strict=True):
            directory = f"{variant.slug}-s{seed}-{run_hash[:8]}"
            run = PlannedRun(
                variant=variant.slug, seed=seed, run_hash=run_hash, directory=directory
            )
            directory_found = None
            if existing is not None:
                directory_found = existing.find(run_hash, experiment, directory)
            if directory_found is not None:
                refuse_difference(directory_found, variant.identity)
                run = _with_state(run, directory_found, experiment, variant.plugins)
                if run.state == states.DONE:
                    finished.append(_finished(run, directory_found))
            runs.append(run)
    return runs, finished


def _with_state(
    planned: PlannedRun, existing: ExistingRun, experiment: str, plugins: Sequence[Registered]
) -> PlannedRun:
    """Return a copy of a planned run with the state of an existing run of the same hash.

    A run of another experiment is reused, unless its plugins have changed since: then ``planned`` itself is returned.

    Args:
        planned: The run without a state.
        existing: The directory that was found.
        experiment: Name of the planned experiment.
        plugins: The plugin entries that the configuration uses now.
    """
    is_reused = existing.experiment != experiment
    record, status = existing.record, existing.status
    changed = changed_plugins(record.sources, plugins)
    if changed and is_reused:
        return planned
    stale: tuple[str, ...] = ()
    if status.state in states.RESULTS:
        stale = drift(record.versions, record.sources, plugins)
    return planned.model_copy(
        update={
            "state": status.state,
            "reason": status.reason,
            "stale": stale,
            "changed_plugins": changed,
            "directory": planned.directory if is_reused else existing.path.name,
            "reused_from": existing.reference if is_reused else None,
        }
    )


def _finished(run: PlannedRun, existing: ExistingRun) -> FinishedRun:
    metrics = RunDirectory(existing.path, observed_status=existing.status).final_metrics
    return FinishedRun(run, existing.record.execution, metrics)
