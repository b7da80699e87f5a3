"""The worker: a process that trains a stack and writes the run directories of its members.

It does not import mlflow.
"""

from __future__ import annotations

import gc
import logging
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path

import torch

from headtohead import files
from headtohead.config.entries import parsed_options, plugins_of, watched_entries
from headtohead.data import prepare_recorded
from headtohead.errors import HeadToHeadError, PluginError, is_disk_error, is_out_of_memory
from headtohead.escaping import visible
from headtohead.plugins.launcher import WorkerPlugins, watch_nothing
from headtohead.plugins.registry import Registered, current
from headtohead.schema.run_config import RunConfig
from headtohead.storage import exits, states
from headtohead.storage.examples import write_examples
from headtohead.storage.leases import Busy, Lease, LeaseLost
from headtohead.storage.objects import load_plugins
from headtohead.storage.results import MetricLine, ResultsRecord
from headtohead.storage.run import CHECKPOINT, EXAMPLES, TRANSLATIONS, VOCABULARY, RunRecord
from headtohead.storage.run_directory import RunWriter
from headtohead.storage.stack import StackFolder
from headtohead.training import checkpoint
from headtohead.training.loop import (
    End,
    Evaluation,
    StackTraining,
    TimeLimitReached,
    TrainingEvents,
)
from headtohead.training.maps import SentenceMaps, probe_maps, summary, write_maps
from headtohead.training.memory import is_device_error, keep_freed_memory, machine_load
from headtohead.training.results import (
    MemberResults,
    cost_metrics,
    score_splits,
    translations_table,
)

PROGRESS_SECONDS = 0.5

MAX_VALUE = 1e300
"""Metrics of at least this size are not recorded, as if they were infinite."""

log = logging.getLogger(__name__)


def work(
    path: Path,
    device: str,
    plugins: WorkerPlugins,
    watch: Callable[[], None] = watch_nothing,
) -> int:
    """Train a stack, from its resume point if it exists; return an exit code of `exits`.

    Errors do not raise, but become exit codes: BUSY if another process holds or takes over a lease, or the stack no
    longer exists; TIMEOUT if its time limit has passed; INPUT for a `HeadToHeadError`, such as of a damaged record; and
    DISK, OOM, DEVICE or FAILED by the kind of any other error. If all runs have a final state already, the resume
    points are removed, nothing is trained, and the code is OK. The leases are released at the end.

    Args:
        path: The stack's folder.
        device: ``"cpu"`` or ``"cuda"``; if the stack began on another one, its record is changed.
        plugins: The plugins that the parent loaded.
        watch: Called after each record of the progress.
    """
    folder = StackFolder(path)
    try:
        lease = Lease(*(run.path for run in folder.runs()))
        with files.disk_errors():
            lease.acquire()
    except Busy:
        return exits.BUSY
    except (OSError, HeadToHeadError) as error:
        # The record of the stack cannot be read, or it is gone with the stack.
        return _report(error) if folder.exists else exits.BUSY
    try:
        # Before the leases were free, another process may have split the stack or finished its runs.
        if not folder.exists:
            return exits.BUSY
        files.remove_leftovers(path)
        if not folder.open_runs():
            folder.resume_points.clear()
        else:
            if folder.record.device != device:  # the stack began on another device
                folder.change(device=device)
                folder.record_execution(lease, {run.path for run in folder.open_runs()})
            Worker(folder, device, plugins, lease, watch).run()
    except LeaseLost as error:
        _log(str(error))
        return exits.BUSY
    except TimeLimitReached:
        return exits.TIMEOUT
    except Exception as error:
        return _report(error)
    finally:
        try:
            lease.release()
        except OSError as error:  # an unreleased lease is taken over after the end of this process
            _log(f"lease not released: {error}")
    return exits.OK


def _report(error: Exception) -> int:
    """Write an error to standard error and return its exit code.

    INPUT for a `HeadToHeadError`, else DISK, OOM, DEVICE or FAILED by the kind of error. If the error cannot be
    written, the code is DISK, except that of an out-of-memory error.

    A `PluginError` is reported as the error of the plugin: its variants fail, not the study.
    """
    if isinstance(error, PluginError) and isinstance(error.__cause__, Exception):
        return _report(error.__cause__)
    log.info("the worker ends with an error", exc_info=error)
    # The last line is the reason that the parent shows for INPUT, DEVICE and FAILED.
    if isinstance(error, HeadToHeadError):
        return exits.INPUT if _log(str(error)) else exits.DISK
    is_logged = _log("".join(traceback.format_exception(error)))
    if is_disk_error(error, of_plugin=True):
        return exits.DISK
    if is_out_of_memory(error):
        return exits.OOM
    is_reason_logged = _log(current().describe(error))
    if not is_logged or not is_reason_logged:
        return exits.DISK
    return exits.DEVICE if is_device_error(error) else exits.FAILED


def _log(text: str) -> bool:
    """Write to the log; return False if the disk is full."""
    try:
        print(visible(text.rstrip("\n")), file=sys.stderr, flush=True)
    except OSError:
        return False
    return True


def _refuse_changed_reads_of(record: RunRecord, entries: Iterable[Registered]) -> None:
    """Raise if the recorded hash of a file or variable that an entry declares to read differs from the present one.

    Files and variables that the record lacks are not checked.

    Args:
        record: The record of the run.
        entries: The entries that its configuration uses, with the present hashes of what they read.

    Raises:
        HeadToHeadError: If a hash has changed.
    """
    recorded: dict[tuple[str, str, str], str | None] = {}
    for plugin in record.plugins:
        for recorded_read in plugin.reads:
            key = (plugin.family, plugin.name, recorded_read.name)
            recorded[key] = recorded_read.sha256
    for entry in entries:
        for read in entry.reads:
            key = (entry.family, entry.name, read.name)
            if recorded.get(key, read.sha256) != read.sha256:
                raise HeadToHeadError(
                    f"'{read.name}', which {entry.family} '{entry.name}' reads, has changed since the run was planned; "
                    "run the same command again"
                )


class Worker:
    """An attempt to train a stack; the process holds the leases of its runs.

    Construction registers the plugins, sets the number of threads of the process, prepares the data and builds the
    model.

    Args:
        folder: The stack.
        device: ``"cpu"`` or ``"cuda"``.
        plugins: The plugins that the parent loaded.
        lease: The acquired lease of all runs of the stack.
        watch: Called after each record of the progress.

    Raises:
        HeadToHeadError: If a record is damaged, a plugin or what it reads has changed or is missing, the data have
            changed, or the code of a plugin changes what all variants share or reads what it does not declare.
        PluginError: If the code of a plugin raises another error while the model is built.
        Exception: Errors of the device, such as too little memory.
    """

    def __init__(
        self,
        folder: StackFolder,
        device: str,
        plugins: WorkerPlugins,
        lease: Lease,
        watch: Callable[[], None] = watch_nothing,
    ) -> None:
        self.folder = folder
        self.record = folder.record
        self.lease = lease
        self.watch = watch
        self.runs = [RunWriter(run.path, lease) for run in folder.runs()]
        self.device = torch.device(device)
        self.started = time.monotonic()
        self.last_progress = 0.0
        self.losses: dict[int, float] = {}
        """The training loss of each member that was last reported."""
        self.load_step = -1
        """The step at which the load of the machine was last measured; -1 before the first evaluation."""
        # The CPU's load is measured from the previous sample on. The GPU has no sample before the first evaluation.
        self.load = machine_load(torch.device("cpu"))
        self.hooks = load_plugins(plugins).manager.hook
        torch.set_num_threads(self.record.threads)
        keep_freed_memory()
        records = [run.record for run in self.runs]
        # Read before the training, which a deleted run directory must not end for the other members.
        self.flops_per_token = [record.counts.flops_per_token for record in records]
        configs = self._configs_by_variant(records)
        self._refuse_changed_reads(records, configs)
        # Members of a stack have the same section `evaluate` and the same data.
        self.config = configs[self.record.members[0].variant]
        self.decoding_limit = records[0].decoding_limit
        recorded_hash = records[0].data["data_hash"]
        self.data = prepare_recorded(self.config.data, Path(self.record.cache), recorded_hash)
        self.training = self._build_training(configs)

    def _configs_by_variant(self, records: Sequence[RunRecord]) -> dict[str, RunConfig]:
        """Return the configuration of each variant of the stack, with the options that its entries parse.

        Args:
            records: The record of each run, in the order of the members.

        Raises:
            HeadToHeadError: If an entry is not registered, or refuses an option; with the name of the run.
        """
        configs: dict[str, RunConfig] = {}
        for run, record, member in zip(self.runs, records, self.record.members, strict=True):
            if member.variant not in configs:
                configs[member.variant] = parsed_options(record.config, run.path.name)
        return configs

    def _refuse_changed_reads(
        self, records: Sequence[RunRecord], configs: Mapping[str, RunConfig]
    ) -> None:
        """Raise if a file or variable that a plugin declares to read has changed since a run was planned.

        What a record lacks is not checked. Sources of plugins cannot differ: the parent sends those of the plan.

        Args:
            records: The record of each run, in the order of the members.
            configs: The configuration of each variant.

        Raises:
            HeadToHeadError: If a hash differs from the recorded one, or a declared file is missing.
        """
        entries = {variant: plugins_of(config) for variant, config in configs.items()}
        for record, member in zip(records, self.record.members, strict=True):
            _refuse_changed_reads_of(record, entries[member.variant])

    def _build_training(self, configs: Mapping[str, RunConfig]) -> StackTraining:
        """Return the training of the members, from the newest intact resume point if there is one.

        Args:
            configs: The configuration of each variant.

        Raises:
            HeadToHeadError: If the code of a plugin changes what all variants share, or reads what it does not declare.
            Exception: Any error that the code of a plugin raises, and errors of the device.
        """
        members = self.record.members
        events = TrainingEvents(
            on_evaluation=self._on_evaluation,
            on_loss=self._on_loss,
            on_progress=self._on_progress,
            on_fall_back=self._on_fall_back,
            saving=self._writing,
        )
        with watched_entries(configs.values()):
            training = StackTraining(
                self.config,
                [member.seed for member in members],
                self.data,
                self.device,
                resume_points=self.folder.resume_points,
                configs=[configs[member.variant] for member in members],
                events=events,
            )
        training.clock.started = self.started
        training.num_microbatches = self.record.num_microbatches
        return training

    def run(self) -> None:
        """Train and evaluate the members, and write their results; runs with a final state are left out.

        At the end, the resume points are removed. An error in the code of one member ends that member only.

        Raises:
            TimeLimitReached: If the time limit of the stack has passed.
            LeaseLost: If another process has taken over a run.
            HeadToHeadError: If a record is damaged.
            Exception: Any error of the disk, the memory, the GPU or the shared training step.
        """
        for index, run in enumerate(self.runs):
            if run.state in states.FINAL:
                self.training.retire(index, End.FINISHED_BEFORE)
                continue
            with self._isolated(index):
                run.begin_attempt(states.RUNNING, steps=self.training.steps)
                self.hooks.on_run_start(run=run.path)
        # Loaded modules stay in memory; without this, each full garbage collection would traverse them.
        gc.freeze()
        log.info(
            "%s: training %d runs on %s with %s",
            self.record.title,
            len(self.runs),
            self.device,
            self.training.choice.name,
        )
        limit = self.record.timeout_seconds
        if limit is None:
            self.training.run(None)
        else:
            self.training.run(lambda: self.started + limit - time.monotonic())
        self._write_progress()
        log.info(
            "%s: trained %d steps, scoring the test part",
            self.record.title,
            self.training.progress.step,
        )
        self._finish()
        log.info("%s: results written", self.record.title)
        with self._writing():
            self.folder.resume_points.clear()

    def _writing(self) -> AbstractContextManager[None]:
        """Return a context for writes to the stack's folder.

        The process that trains the stack holds the leases of all its runs, so it suffices to check the first.
        """
        return self.lease.held(self.runs[0].path)

    @contextmanager
    def _isolated(self, index: int) -> Iterator[None]:
        """Swallow an error of the block and retire the member that it belongs to, with the state FAILED.

        The error is logged, and the end of the run is announced to the hooks. An interrupt is not swallowed.

        Args:
            index: The member.

        Raises:
            LeaseLost: If another process has taken over a run.
            Exception: An error of the disk, the memory or the GPU, which concerns the whole stack, as it was raised.
        """
        try:
            yield
        except Exception as error:
            ends_stack = (
                is_disk_error(error, of_plugin=True)
                or is_out_of_memory(error)
                or is_device_error(error)
            )
            if ends_stack or isinstance(error, LeaseLost):
                raise
            log.info("%s raised an error", self.runs[index].path.name, exc_info=True)
            _log("".join(traceback.format_exception(error)))
            self.training.retire(index, End.RAISED)
            reason = current().describe(error)
            self.runs[index].set_state(
                states.FAILED,
                reason=reason,
                signature=reason[:200],
                step=self.training.progress.step,
            )
            self._announce_end(index, states.FAILED)

    def _on_fall_back(self, reason: str) -> None:
        """Add a fallback or a damaged resume point to the log and the stack's notes, which results include."""
        _log(reason)
        log.info("%s: %s", self.record.title, reason)
        with self._writing():
            self.folder.note(reason)

    def _announce_end(self, index: int, state: str) -> None:
        try:
            self.hooks.on_run_end(run=self.runs[index].path, state=state)
        except Exception as error:
            # The state is already written; an error in a plugin must not change it.
            _log("".join(traceback.format_exception(error)))

    def _on_progress(self, step: int, steps: int) -> None:
        moment = time.monotonic()
        if moment - self.last_progress >= PROGRESS_SECONDS or step == steps:
            self.last_progress = moment
            self._write_progress()

    def _write_progress(self) -> None:
        """Write the step, the seconds, and the mean over members of their last training losses, to the stack's folder.

        The loss is None before the first one is reported.

        Raises:
            LeaseLost: If another process has taken over the stack.
        """
        loss = None
        if self.losses:
            loss = sum(self.losses.values()) / len(self.losses)
        with self._writing():
            self.folder.write_progress(
                step=self.training.progress.step,
                steps=self.training.steps,
                seconds=self.training.clock.seconds,
                loss=loss,
            )
        self.watch()

    def _on_evaluation(self, evaluation: Evaluation) -> None:
        """Append a member's metrics and the load of the machine to its history, and call the hook ``on_evaluation``.

        Metrics that `_finite` leaves out are not appended. The load is measured at the first member of an evaluation.
        For a member that diverged, the hook is not called; it gets the state DIVERGED, and its end is announced. An
        error here, such as of a plugin, retires the member with the state FAILED; `_isolated` lists the errors that are
        raised instead.
        """
        index = evaluation.member
        step = evaluation.step
        run = self.runs[index]
        with self._isolated(index):
            finite = _finite(evaluation.metrics)
            if step != self.load_step:  # a sample per evaluation, for all members
                self.load_step = step
                self.load = machine_load(self.device)
            run.log_metrics(step, evaluation.epoch, time.time(), finite | self.load)
            log.debug("%s: step %d: %s", run.path.name, step, finite)
            if "train/loss" in finite:
                self.losses[index] = finite["train/loss"]
            if not evaluation.divergence:
                self.hooks.on_evaluation(run=run.path, step=step, metrics=finite)
                return
            run.set_state(states.DIVERGED, step=step, reason=evaluation.divergence)
            self._announce_end(index, states.DIVERGED)

    def _on_loss(self, loss: Evaluation) -> None:
        """Append a member's training loss between two evaluations to its history."""
        with self._isolated(loss.member):
            finite = _finite(loss.metrics)
            self.runs[loss.member].log_metrics(loss.step, loss.epoch, time.time(), finite)
            if "train/loss" in finite:
                self.losses[loss.member] = finite["train/loss"]

    def _finish(self) -> None:
        """Score the members that reached the end of their training or stopped early, and write their results.

        All other members, and runs that are DONE, are left out. If no member is left, nothing is scored. An error while
        the results of a member are written retires this member, unless it is one of the errors below.

        Raises:
            LeaseLost: If another process has taken over a run.
            Exception: Any error of the scoring of all members together, the disk, the memory or the GPU.
        """
        finished = []
        for index, member in enumerate(self.training.progress.members):
            if member.has_weights and self.runs[index].state != states.DONE:
                finished.append(index)
        if not finished:
            return
        scored = score_splits(self.training, self.data, self.decoding_limit)
        maps = []
        for probe in self.record.probes:
            maps_of_members = probe_maps(
                self.training.model,
                self.data,
                probe.source,
                probe.target,
                self.decoding_limit,
                probe.target_from or "",
            )
            maps.append(maps_of_members)
        for index in finished:
            with self._isolated(index):
                member_maps = [maps_of_members[index] for maps_of_members in maps]
                with self.runs[index].writing() as directory:
                    self._finish_member(directory, index, scored.results(index), member_maps)
                self._announce_end(index, states.DONE)

    def _finish_member(
        self,
        directory: Path,
        index: int,
        member_results: MemberResults,
        maps: Sequence[SentenceMaps],
    ) -> None:
        """Write the files of a member's result, the scores and the state DONE last.

        The model has the weights that are saved. The metrics are those of `_last_metrics`; scores, summaries of the
        maps and costs are added, and replace metrics of the same name.

        Args:
            directory: The run directory, whose lease is held.
            index: The member.
            member_results: Its scores, translations and values per example.
            maps: Its attention maps, one per probe sentence; no file without any.

        Raises:
            OSError: If the disk is full.
            LeaseLost: If another process has taken over the run.
        """
        scores, translations, examples = member_results
        run = self.runs[index]
        member = self.training.progress.members[index]
        if maps:
            write_maps(directory / "attention", maps)
        weights = self.training.model.member_state(index)
        run_hash = self.record.members[index].run_hash
        checkpoint.save(directory / CHECKPOINT, weights, {"run_hash": run_hash})
        source_words = self.data.source_vocabulary.words
        target_words = self.data.target_vocabulary.words
        run.write_json(VOCABULARY, {"source": source_words, "target": target_words})
        files.write_text(directory / TRANSLATIONS, translations_table(translations))
        write_examples(directory / EXAMPLES, examples)
        metrics = self._last_metrics(index, member.best_step)
        metrics |= scores.metrics
        metrics |= summary(maps)
        metrics |= self._costs
        metrics["system/wall_seconds"] = self.training.clock.seconds
        metrics["system/tokens_seen"] = member.ended_tokens or float(
            self.training.token_sums[index]
        )
        results = dict(scores) | {"metrics": metrics, "notes": self.folder.record.notes}
        run.finish(ResultsRecord(**results), member.ended_step or self.training.progress.step)

    @cached_property
    def _costs(self) -> dict[str, float]:
        return cost_metrics(self.training, self.flops_per_token)

    def _last_metrics(self, index: int, best_step: int | None) -> dict[str, float | None]:
        """Return the last value of each metric in a member's history, without metrics of the machine (``system/``).

        The training loss is instead the mean of `training_loss`.

        Args:
            index: The member.
            best_step: The step of the best evaluation; only metrics of this step count. None: those of all steps.
        """
        metrics: dict[str, float | None] = {}
        lines = [line for line in self.runs[index].history() if line is not None]
        for line in lines:
            if best_step is not None and line.step != best_step:
                continue
            for name, value in line.values.items():
                if not name.startswith("system/"):
                    metrics[name] = value
        if "train/loss" in metrics:
            metrics["train/loss"] = training_loss(lines, best_step, self.training.average_every)
        return metrics


def training_loss(
    lines: Iterable[MetricLine], step: int | None, average_every: int
) -> float | None:
    """Return the mean training loss of the averaging interval that ends at a step; None without a loss in it.

    A history has the loss more often; each value is the mean over the steps since the value before. The result weights
    the values by these steps.

    Args:
        lines: The history of a run; the last line of a step counts.
        step: The last step of the interval; None: the last step with a training loss.
        average_every: Steps of an averaging interval; the last one may be shorter.
    """
    losses: dict[int, float] = {}
    for line in lines:
        loss = line.values.get("train/loss")
        if loss is not None:
            losses[line.step] = loss
    if not losses:
        return None
    end = max(losses) if step is None else step
    begin = (end - 1) // average_every * average_every
    total = 0.0
    previous = begin
    for loss_step in sorted(losses):
        if begin < loss_step <= end:
            total += losses[loss_step] * (loss_step - previous)
            previous = loss_step
    if previous == begin:  # no loss in the interval
        return None
    return total / (previous - begin)


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics that are not NaN and whose absolute value is less than `MAX_VALUE`."""
    finite = {}
    for name, value in metrics.items():
        if not math.isnan(value) and abs(value) < MAX_VALUE:
            finite[name] = value
    return finite
