"""Trials: a few steps of each variant in this process, in a folder of their own.

No worker is started, so that a debugger works in plugins, and errors keep their traceback.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from headtohead import files
from headtohead.config.loading import LoadedExperiment
from headtohead.execution.scheduler import Machine, new_stack, pending, write_planned
from headtohead.execution.worker import Worker
from headtohead.planning.design import Design
from headtohead.planning.planner import make_plan
from headtohead.planning.variants import Variant
from headtohead.plugins.launcher import WorkerPlugins
from headtohead.plugins.registry import Registry
from headtohead.storage.experiment import EXPERIMENT
from headtohead.storage.leases import Lease
from headtohead.storage.paths import inside
from headtohead.storage.run_directory import RunDirectory
from headtohead.storage.run_files import delete_run_files
from headtohead.training.loop import Evaluation

FOLDER = ".try"
"""Folder of trials in the runs folder; no other command reads it."""

SENTENCES = 20
"""Maximum number of test sentences that a trial translates."""

PRINTED_STEPS = 20

Log = Callable[[str], object]


def try_out(
    loaded: LoadedExperiment,
    registry: Registry,
    runs_root: Path,
    cache: Path,
    machine: Machine,
    *,
    only: Sequence[str] = (),
    steps: int = 20,
    log: Log = print,
) -> Path:
    """Train the first seed of each variant in this process; arguments as for `headtohead.trial`. Tuning is omitted."""
    file = loaded.file.model_copy(update={"tune": None, "seeds": 1})
    loaded = replace(loaded, seeds=loaded.seeds[:1], file=file)
    root = inside(runs_root, FOLDER)
    plan = make_plan(
        loaded, registry, root, cache, fresh=True, adapt=partial(_shortened, steps=steps), initial_runs=runs_root
    ).limited_to(only)
    delete_run_files(inside(root, plan.name))
    plan.directory.mkdir(parents=True, exist_ok=True)
    files.write_json(plan.directory / EXPERIMENT, plan.record().to_json())
    runs = pending(plan)
    log(f"trying {len(runs)} variant{'s' * (len(runs) != 1)} for {steps} steps in {plan.directory}")
    _, threads = machine.launcher.share(machine.device, 1, 1, machine.threads)
    for run in runs:
        log(f"{run.variant}:")
        path = inside(plan.directory, run.directory)
        with Lease(path) as lease:
            write_planned(plan, [run], lease)
            stack = new_stack(plan, [run], machine, cache, threads, lease)
            trial = _Trial(stack, machine.device, WorkerPlugins(), lease)
            trial.log = log
            trial.run()
        _log_end(RunDirectory(path), log)
    return plan.directory


class _Trial(Worker):
    """A worker in this process that raises errors, and logs loss and speed."""

    log: Log
    loss_sum = tokens = 0.0
    moment = math.nan

    @contextmanager
    def _isolated(self, index: int) -> Iterator[None]:
        yield

    def _on_progress(self, step: int, steps: int) -> None:
        super()._on_progress(step, steps)
        training, now = self.training, time.perf_counter()
        before = 0.0 if training.progress.steps_since == 1 else self.loss_sum
        self.loss_sum = float(training.loss_sums[0])
        if step % max(1, steps // PRINTED_STEPS) == 0 or step in {1, steps}:
            tokens = float(training.token_sums[0])
            speed = (tokens - self.tokens) / (now - (self.moment if step > 1 else self.started))
            self.log(f"  step {step}/{steps}  loss {self.loss_sum - before:.4g}  {speed:,.0f} tokens/s")
            self.tokens, self.moment = tokens, time.perf_counter()

    def _on_evaluation(self, evaluation: Evaluation) -> None:
        super()._on_evaluation(evaluation)
        self.log(f"  evaluation: {_shown(evaluation.metrics)}")


def _shortened(design: Design, steps: int) -> Design:
    def shortened(variant: Variant) -> Variant:
        train, evaluate = variant.config.train, variant.config.evaluate
        limit = min(evaluate.test_limit or SENTENCES, SENTENCES)
        sections = {
            "train": train.model_copy(update={"steps": steps, "epochs": None, "evaluate_every": steps}),
            "evaluate": evaluate.model_copy(update={"test_limit": limit}),
        }
        return replace(variant, config=variant.config.model_copy(update=sections))

    return replace(design, variants=tuple(map(shortened, design.variants)))


def _log_end(run: RunDirectory, log: Log) -> None:
    results = run.results
    if results is None:
        log(f"  {run.state}: {run.status.reason}")
        return
    tested = {name: value for name, value in results.metrics.items() if name.startswith("test/") and value is not None}
    sentences = sum(bucket["n"] for bucket in results.buckets)
    log(f"  {sentences} test sentence{'s' * (sentences != 1)}: {_shown(tested)}")


def _shown(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
