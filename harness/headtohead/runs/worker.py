"""The worker: one process that trains one stack and writes its members' directories.

It imports no tracking library; the run directories are all it leaves behind.
"""

from __future__ import annotations

import errno
import gc
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from headtohead import plugins
from headtohead.data import prepare, read_prepared
from headtohead.errors import HeadToHeadError
from headtohead.experiment.schema import RunConfig
from headtohead.runs import exits, files, states
from headtohead.runs.claims import Busy, Claim
from headtohead.runs.objects import load_objects
from headtohead.runs.stack import StackFolder
from headtohead.training import checkpoint
from headtohead.training.loop import Evaluation, StackTraining
from headtohead.training.maps import probe_maps, summary, write_maps
from headtohead.training.memory import keep_freed_memory
from headtohead.training.results import (
    SplitResults,
    assemble,
    cost_metrics,
    decode_limit,
    score_test_split,
    translations_table,
)

PROGRESS_SECONDS = 0.5


def work(path: Path, device: str) -> int:
    """Train the stack in ``path`` from its resume point, if it has one; return an exit code."""
    folder = StackFolder(path)
    claim = Claim(path)
    try:
        claim.acquire()
    except Busy:
        return exits.BUSY
    except OSError as error:
        return _report(error)
    try:
        Worker(folder, device).run()
    except TimeoutError:
        return exits.TIMEOUT
    except Exception as error:
        return _report(error)
    finally:
        _quietly(claim.release)
    return exits.OK


def _report(error: Exception) -> int:
    if isinstance(error, HeadToHeadError):
        print(error, file=sys.stderr)
        return exits.INPUT
    traceback.print_exception(error, file=sys.stderr)
    if is_disk_error(error):
        return exits.DISK
    return exits.OOM if is_out_of_memory(error) else exits.FAILED


def _quietly(action: Any) -> None:
    """Give a claim back where the disk allows it; a claim left behind is taken over later."""
    try:
        action()
    except OSError as error:
        print(f"claim not released: {error}", file=sys.stderr)


def is_disk_error(error: BaseException) -> bool:
    """Tell a full or unwritable disk from a fault of a run."""
    full = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES}
    if isinstance(error, OSError) and error.errno in full:
        return True
    # safetensors reports the operating system's error as text.
    return type(error).__name__ == "SafetensorError" and "os error 28" in str(error)


def is_out_of_memory(error: BaseException) -> bool:
    """Tell a lack of memory, on the GPU or the host, from a fault of a run."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and "allocate memory" in str(error)
    )


class Worker:
    """One attempt at one stack."""

    def __init__(self, folder: StackFolder, device: str) -> None:
        self.folder = folder
        self.record = folder.record
        self.runs = folder.runs()
        self.device = torch.device(device)
        self.started = time.monotonic()
        self.last_said = 0.0
        self.last_metrics: dict[int, dict[str, float]] = {}
        registry = plugins.use_files([Path(file) for file in self.record.plugin_files])
        for plugin in load_objects(folder.experiment):
            plugins.register(plugin)
        self.hooks = registry.manager.hook
        torch.set_num_threads(self.record.threads)
        keep_freed_memory()
        self.config = RunConfig.model_validate(self.record.config)
        self.data = (
            read_prepared(Path(self.record.prepared)) if self.record.prepared
            else prepare(self.config.data, Path(self.record.cache))
        )  # fmt: skip
        self.training = StackTraining(
            self.config,
            [member.seed for member in self.record.members],
            self.data,
            self.device,
            resume_path=folder.resume_path,
            on_evaluation=self._on_evaluation,
            on_progress=self._on_progress,
            micro_batch=self.record.micro_batch,
            configs=[
                self.config if one.config is None else RunConfig.model_validate(one.config)
                for one in self.record.members
            ],
            on_fall_back=self._on_fall_back,
        )

    def run(self) -> None:
        """Train, score and finish every member that is not finished yet."""
        for index, run in enumerate(self.runs):
            if run.state in states.FINAL:
                self.training.retire(index, "ended before")
                continue
            with self._isolated(index):
                run.begin_attempt()
                run.set_state(states.RUNNING, steps=self.training.steps)
                self.hooks.on_run_start(run=run.path)
        # What is loaded stays: without this every full collection walks through all of it.
        gc.freeze()
        limit = self.record.timeout_seconds
        left = None if limit is None else lambda: self.started + limit - time.monotonic()
        self.training.run(left)
        self._finish()
        self.folder.resume_path.unlink(missing_ok=True)

    @contextmanager
    def _isolated(self, index: int) -> Iterator[None]:
        """Retire a member whose own work raises; a full disk or memory is the stack's matter."""
        try:
            yield
        except Exception as error:
            if is_disk_error(error) or is_out_of_memory(error):
                raise
            traceback.print_exception(error, file=sys.stderr)
            self.training.retire(index, "raised")
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            self.runs[index].set_state(
                states.FAILED, reason=reason, signature=reason[:200],
                step=self.training.progress.step,
            )  # fmt: skip
            self._announce_end(index, states.FAILED)

    def _on_fall_back(self, why: str) -> None:
        """Say in the log, to watchers and in results that the chosen program is given up."""
        print(why, file=sys.stderr)
        self.folder.note(why)

    def _announce_end(self, index: int, state: str) -> None:
        try:
            self.hooks.on_run_end(run=self.runs[index].path, state=state)
        except Exception as error:  # the run's state is written; a listener cannot change it
            traceback.print_exception(error, file=sys.stderr)

    def _on_progress(self, step: int, steps: int) -> None:
        moment = time.monotonic()
        if moment - self.last_said >= PROGRESS_SECONDS or step == steps:
            self.last_said = moment
            self.folder.write_progress(
                step=step, steps=steps, phase="training" if step < steps else "scoring",
                seconds=self.training.progress.train_seconds,
            )  # fmt: skip

    def _on_evaluation(self, evaluation: Evaluation) -> None:
        index, run = evaluation.member, self.runs[evaluation.member]
        with self._isolated(index):
            finite = {k: v for k, v in evaluation.metrics.items() if v == v and abs(v) < 1e300}
            run.log_metrics(evaluation.step, evaluation.epoch, time.time(), finite)
            self.last_metrics[index] = finite
            if self.training.progress.members[index].ended == "diverged":
                run.set_state(
                    states.DIVERGED, step=evaluation.step,
                    reason=f"the loss is not finite at step {evaluation.step}",
                )  # fmt: skip
                self._announce_end(index, states.DIVERGED)
                return
            run.set_state(states.RUNNING, step=evaluation.step)
            self.hooks.on_evaluation(run=run.path, step=evaluation.step, metrics=finite)

    def _finish(self) -> None:
        finished = [
            index
            for index, member in enumerate(self.training.progress.members)
            if member.ended in {None, "stopped early"} and self.runs[index].state != states.DONE
        ]
        if not finished:
            return
        results = score_test_split(self.training, self.data)
        for index in finished:
            with self._isolated(index):
                self._finish_member(index, results(index))
                self._announce_end(index, states.DONE)

    def _finish_member(self, index: int, test: SplitResults) -> None:
        run, member = self.runs[index], self.training.progress.members[index]
        maps = [
            probe_maps(
                self.training.model, index, self.data, probe["source"], probe["target"],
                decode_limit(self.training), probe.get("target_from", "reference"),
            )
            for probe in self.record.probes
        ]  # fmt: skip
        if maps:
            write_maps(run.path / "attention", maps)
        weights = self.training.model.member_state(index)
        checkpoint.save(
            run.path / "checkpoint.safetensors", weights, {"key": self.record.members[index].key}
        )
        files.write_json(run.path / "vocabulary.json", {
            "source": self.data.source_vocabulary.words,
            "target": self.data.target_vocabulary.words,
        })  # fmt: skip
        files.write_text(run.path / "translations.tsv", translations_table(test.translations))
        last = self._last_metrics(index, member.best_step)
        costs = cost_metrics(self.training)
        costs["system/wall_seconds"] = time.monotonic() - self.started
        step = member.best_step or self.training.progress.step
        run.set_state(states.RUNNING, step=self.training.progress.step)
        run.log_metrics(step, step / self.training.plan.steps_per_epoch, time.time(), test.metrics)
        run.finish(
            assemble(test, last, summary(maps), costs, self.training.plan.padding(),
                     member.best_step, member.ended == "stopped early",
                     self.training.choice, self.folder.record.notes)
        )  # fmt: skip

    def _last_metrics(self, index: int, best_step: int | None) -> dict[str, float]:
        """Return the validation metrics of the weights that are kept."""
        found: dict[str, float] = {}
        for line in files.read_lines(self.runs[index].path / "metrics.jsonl"):
            if best_step is None or line["step"] == best_step:
                found |= {k: v for k, v in line["values"].items() if not k.startswith("test/")}
        return found
