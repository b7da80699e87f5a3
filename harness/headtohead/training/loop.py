"""The training loop of a stack; on a CPU, a resumed training is identical bit for bit."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from headtohead.data import PreparedData
from headtohead.data.batches import Batches, make_batches, padded_length
from headtohead.data.splits import PARTS
from headtohead.errors import HeadToHeadError
from headtohead.model.dropout import Dropout, kernel_fault
from headtohead.model.loss import backward_loss
from headtohead.model.members import same_or_each
from headtohead.model.quirks import changed_batch
from headtohead.model.transformer import Transformer
from headtohead.planning.schedule import averaging_interval, loss_interval, planned_steps
from headtohead.planning.validation import evaluation_interval
from headtohead.schema.choices import PRECISIONS
from headtohead.schema.run_config import RunConfig
from headtohead.storage.metrics import higher_is_better
from headtohead.storage.stack import ResumePoints
from headtohead.training import checkpoint
from headtohead.training.backends import BackendChoice, BatchShape, BatchSpec, Graphs, Owned, choose
from headtohead.training.cuda import configure, copied, cuda_capture, rounded, wait
from headtohead.training.evaluate import TeacherForced, teacher_forced
from headtohead.training.optimise import (
    StackOptimizer,
    clip_gradients,
    freeze,
    trainable_parameters,
)
from headtohead.training.tensors import SplitTensors

TF32_CAPABILITY = (8, 0)
"""Compute capability of the first GPUs with tf32."""

SAVING = 50
"""Minimum interval between resume points, in multiples of the time to write them: at most 2 % of the
training time is spent on resume points.
"""


MIN_JUDGED_STEPS = 100
"""Fewest steps of a run that can diverge with finite losses: the loss of shorter training may be that of its start."""


class End(StrEnum):
    """Why a member of a stack no longer trains."""

    DIVERGED = "diverged"
    STOPPED_EARLY = "stopped early"
    RAISED = "raised"
    FINISHED_BEFORE = "ended before"


@dataclass
class MemberProgress:
    """Progress of a run of a stack.

    Args:
        seed: Seed of the run.
        ended: None while the run trains, else why it stopped.
        ended_step: Step at which it stopped before the end of training.
        ended_tokens: Target tokens seen until then.
        best: Best value of the early-stopping metric; smaller is better.
        best_step: Step of the best value.
        evaluations_since_best: Evaluations without a better value.
    """

    seed: int
    ended: End | None = None
    ended_step: int | None = None
    ended_tokens: float | None = None
    best: float | None = None
    best_step: int | None = None
    evaluations_since_best: int = 0

    @property
    def has_weights(self) -> bool:
        """Whether the member has weights to score: it trains to the end, or early stopping has kept its best ones."""
        return self.ended in (None, End.STOPPED_EARLY)


@dataclass
class Progress:
    """Progress of a stack: the state of a resume point besides its tensors.

    Attributes:
        step: Number of finished steps.
        train_seconds: Time in steps, without evaluations.
        elapsed_seconds: Time since the start of the training, with that of earlier attempts, at the resume point.
        steps_since: Number of steps in the present averaging interval.
        loss_step: Step at which training losses were last reported.
        members: The progress of each member.
    """

    step: int = 0
    train_seconds: float = 0.0
    elapsed_seconds: float = 0.0
    steps_since: int = 0
    loss_step: int = 0
    members: list[MemberProgress] = field(default_factory=list)


_PROGRESS = TypeAdapter(Progress)


@dataclass
class Clock:
    """The time since the start of a training.

    Attributes:
        started: Start of this attempt, a value of ``time.monotonic``.
        earlier: Seconds of earlier attempts until the resume point.
    """

    started: float = field(default_factory=time.monotonic)
    earlier: float = 0.0

    @property
    def seconds(self) -> float:
        """The time of all attempts."""
        return self.earlier + time.monotonic() - self.started


@dataclass(frozen=True)
class Evaluation:
    """The metrics of a member at an evaluation, or its training loss between two evaluations.

    ``divergence`` is why the member diverged, or empty.
    """

    member: int
    step: int
    epoch: float
    metrics: dict[str, float]
    divergence: str = ""


class TimeLimitReached(Exception):
    """The time limit of a stack is reached."""


@dataclass(frozen=True, kw_only=True)
class TrainingEvents:
    """What a training calls; by default nothing.

    Args:
        on_evaluation: Called for each active member at each evaluation, and for a member that diverged between two.
        on_loss: Called for each active member with its training loss, at `loss_interval` between evaluations.
        on_progress: Called after every step with the step and the number of steps.
        on_fall_back: Receives a line if another backend than ``train.backend`` is used or a resume point is damaged.
        saving: Returns the context in which resume points are written; it may raise.
    """

    on_evaluation: Callable[[Evaluation], None] = lambda evaluation: None
    on_loss: Callable[[Evaluation], None] = lambda loss: None
    on_progress: Callable[[int, int], None] = lambda step, steps: None
    on_fall_back: Callable[[str], None] = lambda why: None
    saving: Callable[[], AbstractContextManager[None]] = nullcontext


NO_EVENTS = TrainingEvents()


class StackTraining:
    """The training of one stack.

    Args:
        config: The variant of the members, or of the first member.
        seeds: A seed per member.
        data: The prepared data.
        device: The device.
        resume_points: Folder of the resume points; the newest intact resume point is loaded.
        configs: A variant per member, where they differ as ``model/members.py`` allows.
        events: Receives what happens.
    """

    def __init__(
        self,
        config: RunConfig,
        seeds: Sequence[int],
        data: PreparedData,
        device: torch.device,
        resume_points: ResumePoints | None = None,
        configs: Sequence[RunConfig] | None = None,
        events: TrainingEvents = NO_EVENTS,
    ) -> None:
        self.config = config
        self.train = config.train
        self.configs = list(configs or [config] * len(seeds))
        trains = [member_config.train for member_config in self.configs]
        self.device = device
        self.resume_points = resume_points
        self.events = events
        self.num_microbatches = 1
        """Number of pieces in which a batch is computed, to save memory."""
        if device.type == "cuda":
            configure()
        self.model = _build_model(config, seeds, data, device, configs)
        self._log_slow_paths()
        freeze(self.model, config.train.trainable)
        self.parameters = trainable_parameters(self.model)
        self.owners = _owners(self.model)
        """Members of each parameter; None if all parameters have all members."""
        norms = [math.inf if train.clip_norm is None else train.clip_norm for train in trains]
        self.clip_norm = same_or_each(norms)
        self.smoothing = same_or_each([train.label_smoothing for train in trains])
        self.splits = split_tensors(config, data, device)
        training = self.splits["train"]
        lengths = training.prompt_lengths.numpy(), training.host_target_lengths.numpy()
        self.uniform_loss = math.log(len(data.target_vocabulary))
        self.batches = make_batches(config, *lengths, data.record["longest"])
        # A batch of targets with a single token and without boundary tokens has no labels.
        self.may_lack_labels = bool((training.num_labels == 0).any())
        self.has_unlabelled = not torch.equal(training.num_labels, training.host_target_lengths)
        self.steps = planned_steps(
            self.train, self.batches.steps_per_epoch, self.batches.tokens_per_epoch
        )
        self.choice, self.backend = self._choose_backend()
        self.optimizer = StackOptimizer(
            trains, self.model, self.steps, capturable=self.backend is not None
        )
        self.evaluate_every = evaluation_interval(
            config, data, self.steps, self.batches.tokens_per_epoch / self.batches.steps_per_epoch
        )
        self.report_every = loss_interval(self.steps)
        self.progress = Progress(members=list(map(MemberProgress, seeds)))
        self.clock = Clock()
        # Sums stay on the device until an evaluation, so steps do not synchronise with the host.
        self.loss_sums = torch.zeros(len(seeds), dtype=torch.float64, device=device)
        self.token_sums = torch.zeros_like(self.loss_sums)
        self.reported_sums = torch.zeros_like(self.loss_sums)
        """The part of ``loss_sums`` that earlier values of the training loss include."""
        self.best_weights: dict[int, dict[str, Tensor]] = {}
        self._last_validation: TeacherForced | None = None

    def _log_slow_paths(self) -> None:
        """Log what this GPU computes without its fast kernels."""
        if self.device.type != "cuda":
            return
        if (
            self.train.precision == "tf32"
            and torch.cuda.get_device_capability(self.device) < TF32_CAPABILITY
        ):
            self.events.on_fall_back(
                "train.precision tf32 computes in float32: this GPU has no tf32"
            )
        drops = any(isinstance(module, Dropout) and module.rate for module in self.model.modules())
        fault = kernel_fault(self.device) if drops else ""
        if fault:
            self.events.on_fall_back(
                f"dropout uses several operations instead of one kernel: {fault}"
            )

    def _choose_backend(self) -> tuple[BackendChoice, Graphs | None]:
        """Return how steps are executed; None executes them eagerly."""
        planned: Counter[tuple[int, int, int]] = Counter()
        if self.device.type == "cuda":
            planned = planned_shapes(self.batches, self.steps)
        requested = self.train.backend
        choice = choose(requested, self.device.type, planned.values(), self.model.obstacle)
        if requested not in ("auto", choice.name):
            self.events.on_fall_back(f"train.backend {requested} is not used: {choice.why}")
        if choice.name != "cuda-graphs":
            return choice, None
        # ``Graphs`` receives the training with every call. A stored reference would be a cycle, and the
        # memory of a stack would stay allocated until the garbage collector runs.
        return choice, Graphs(planned, cuda_capture(self.device), self.events.on_fall_back)

    @property
    def active_members(self) -> list[int]:
        """Members that still train."""
        return [i for i, member in enumerate(self.progress.members) if member.ended is None]

    @property
    def average_every(self) -> int:
        """Steps over which a mean training loss is computed; `evaluate_every` is as many or twice as many."""
        return averaging_interval(self.train, self.steps)

    def run(self, seconds_left: Callable[[], float] | None = None) -> None:
        """Train to the end, from the resume point if it exists.

        Raises:
            TimeLimitReached: If ``seconds_left`` falls to 0. A resume point is written before.
        """
        self._resume()
        saved, pause = time.monotonic(), self.train.checkpoint_seconds
        batches = self._batches()
        while self.progress.step < self.steps and self.active_members:
            self._step(next(batches))
            step = self.progress.step
            self.events.on_progress(step, self.steps)
            self._report()
            if seconds_left is not None and seconds_left() <= 0:
                self.save_resume_point()
                raise TimeLimitReached
            if time.monotonic() - saved >= pause:
                self._wait()
                began = time.monotonic()
                self.save_resume_point()
                saved = time.monotonic()
                if pause:
                    pause = max(self.train.checkpoint_seconds, SAVING * (saved - began))
        if self.steps == 0:
            self.events.on_progress(0, 0)
            self._evaluate()
        # A process that is killed while it scores repeats at most this many seconds of training.
        if time.monotonic() - saved >= self.train.checkpoint_seconds:
            self.save_resume_point()
        for member, weights in self.best_weights.items():
            self.model.load_member(member, weights)

    def train_steps(self, count: int, proceed: Callable[[], bool] = lambda: True) -> int:
        """Train the next steps without evaluations, and return their number.

        Args:
            count: Number of steps.
            proceed: Called after each step; the steps end if it returns False.
        """
        batches = self._batches()
        for done in range(count):
            self._step(next(batches))
            if not proceed():
                return done + 1
        return count

    def retire(self, member: int, reason: End) -> None:
        """Mark a member as ended; the others continue unchanged."""
        self.progress.members[member].ended = reason
        self.progress.members[member].ended_step = self.progress.step
        self.progress.members[member].ended_tokens = float(self.token_sums[member])

    # -- steps -----------------------------------------------------------------------------------

    def _batches(self) -> Iterator[BatchSpec]:
        """Yield the batches from the current step on, without end."""
        per_epoch = self.batches.steps_per_epoch
        while True:
            epoch, done = divmod(self.progress.step, per_epoch)
            seeds = [member.seed for member in self.progress.members]
            for rows, source_time, target_time in self.batches.of_epoch(seeds, epoch, done):
                yield self.batch_spec(rows, source_time, target_time)

    def batch_spec(self, rows: Tensor, source_time: int, target_time: int) -> BatchSpec:
        """Return a batch of rows ``[member, batch]``, with an asynchronous copy of them to the device."""
        num_target_tokens, count = self.splits["train"].num_target_tokens(rows), rows.shape[1]
        if self.device.type == "cuda":
            num_target_tokens = rounded(num_target_tokens, (count, target_time))
        return BatchSpec(
            copied(rows, self.device),
            BatchShape(count, source_time, target_time, num_target_tokens),
        )

    def _step(self, spec: BatchSpec) -> None:
        started = time.perf_counter()
        if not self.model.training:
            self.model.train()
        progress = self.progress
        self.model.dropout_rng.set_step(progress.step)
        self.optimizer.set_step(progress.step + 1)
        if self.backend is None:
            self.update(*spec)
        else:
            self.backend(self, spec)
        progress.step += 1
        progress.steps_since += 1
        progress.train_seconds += time.perf_counter() - started

    def update(self, rows: Tensor, shape: BatchShape) -> None:
        """Execute the device's part of a step; all inputs that differ between steps are tensors.

        The rows are those of the training part, ``[member, batch]``.
        """
        self.clear_gradients()
        losses = self.gradients(rows, shape)
        if self.clip_norm != math.inf:
            clip_gradients(self.parameters, self.clip_norm, self.owners)
        self.optimizer.update()
        self.loss_sums += losses.double()
        self.token_sums += self.splits["train"].target_lengths[rows].sum(dim=1)

    def clear_gradients(self) -> None:
        """Set all gradients to None, so that a step never accumulates onto those of a failed step."""
        self.optimizer.clear_gradients()

    def state(self) -> dict[str, list[Owned]]:
        """Return all tensors that a step changes, by kind."""
        all_members = tuple(range(self.model.members))
        kinds = {
            "weights": [
                Owned(parameter, members)
                for _, parameter, members in self.model.owned_parameters()
                if parameter.requires_grad
            ],
            "losses": [Owned(self.loss_sums, all_members)],
            "tokens": [Owned(self.token_sums, all_members)],
        }
        for kind, value, members in self.optimizer.owned_moments():
            kinds.setdefault(kind, []).append(Owned(value, members))
        for _, buffer in self.model.named_buffers():
            kinds.setdefault("buffers", []).append(Owned(buffer, None))
        return kinds

    def gradients(self, rows: Tensor, shape: BatchShape) -> Tensor:
        """Set the gradients of the parameters and return the losses, ``[member]``."""
        batch = self.splits["train"].batch(rows, shape.source_time, shape.target_time)
        num_labels = batch.num_labels.sum(dim=1).to(self.parameters[0].dtype)
        smoothing, unlabelled = self.smoothing, self.has_unlabelled
        if self.may_lack_labels:
            num_labels = num_labels.clamp(min=1)
        if self.num_microbatches == 1 or shape.rows == 1 or self.model.position_is_row:
            self.model.dropout_rng.start_microbatch(batch.shape)
            total = backward_loss(
                self.model, batch, shape.num_target_tokens, num_labels, smoothing, unlabelled
            )
            self.model.dropout_rng.finish_microbatch()
            return total
        total = torch.zeros_like(num_labels)
        for part in np.array_split(range(shape.rows), min(self.num_microbatches, shape.rows)):
            first = int(part[0])
            piece = batch.part(slice(first, int(part[-1]) + 1))
            self.model.microbatch = first, shape.rows
            self.model.dropout_rng.start_microbatch(first=first, rows=len(part))
            most = min(shape.num_target_tokens, piece.labels[0].numel())
            total += backward_loss(self.model, piece, most, num_labels, smoothing, unlabelled)
            self.model.dropout_rng.finish_microbatch()
        self.model.microbatch = None
        return total

    def _wait(self) -> None:
        """Wait for the launched steps, and add the time to that of the training."""
        started = time.perf_counter()
        wait(self.device)
        self.progress.train_seconds += time.perf_counter() - started

    # -- evaluations -----------------------------------------------------------------------------

    def final_validation(self) -> TeacherForced:
        """Return the teacher-forced sums of the validation part for the final weights of all members.

        They are those of the last evaluation. The part is evaluated again if early stopping has restored earlier
        weights of a member, or if the training was resumed at its end.
        """
        if self._last_validation is None or self.best_weights:
            return self._validation()
        return self._last_validation

    def _validation(self) -> TeacherForced:
        split = self.splits["valid"]
        batches = split.padded_batches(self.config.evaluate.batch_size)
        return teacher_forced(self.model, split, batches)

    def _report(self) -> None:
        """Evaluate or report the training loss, if a step is due for it."""
        step = self.progress.step
        if step % self.evaluate_every == 0 or step == self.steps:
            self._evaluate()
        elif step % self.average_every == 0:
            self._check_losses()
        elif step % self.report_every == 0:
            self._report_losses()

    def _report_losses(self) -> None:
        """Report the training loss of the active members without an evaluation."""
        self._wait()
        losses = self._take_losses()
        for index in self.active_members:
            self.events.on_loss(self._evaluation(index, self._loss_metrics(index, losses)))

    def _loss_metrics(self, index: int, losses: Sequence[float]) -> dict[str, float]:
        """Return the training loss of a member, among those of `_take_losses`, and its learning rate."""
        rate = self.optimizer.rate(index, self.progress.step)
        return {"train/loss": losses[index], "train/lr": rate}

    def _evaluation(
        self, index: int, metrics: dict[str, float], divergence: str = ""
    ) -> Evaluation:
        """Return the metrics of a member at the present step, and why it diverged."""
        step = self.progress.step
        return Evaluation(index, step, step / self.batches.steps_per_epoch, metrics, divergence)

    def _check_losses(self) -> None:
        """Report the training losses at the end of an averaging interval, and end members that are not finite.

        This is what an evaluation does without a validation, so that the final training loss and the verdict whether a
        run diverged do not depend on the number of validations.
        """
        means = self._mean_losses()
        losses = self._take_losses()
        for index in self.active_members:
            metrics = self._loss_metrics(index, losses)
            divergence = self._divergence([means[index]])
            if divergence:
                self.retire(index, End.DIVERGED)
                self.events.on_evaluation(self._evaluation(index, metrics, divergence))
            else:
                self.events.on_loss(self._evaluation(index, metrics))
        self._start_means()

    def _divergence(self, losses: Sequence[float], *, is_at_end: bool = False) -> str:
        """Return why a member has diverged at the present step, or an empty text.

        Args:
            losses: Its validation loss at an evaluation, and its mean training loss.
            is_at_end: Whether these are the losses of a complete training, of which one must be below that of a
                uniform guess.
        """
        if not math.isfinite(sum(losses)):
            return f"the loss is not finite at step {self.progress.step}"
        if is_at_end and min(losses) > self.uniform_loss:
            return (
                f"the validation loss, {losses[0]:,.2f}, and the training loss are worse than that of a uniform guess, "
                f"{self.uniform_loss:,.2f}; lower train.lr"
            )
        return ""

    def _mean_losses(self) -> list[float]:
        """Return the mean training loss per member over the averaging interval, for which the device is waited for."""
        self._wait()
        means: list[float] = (self.loss_sums / max(1, self.progress.steps_since)).tolist()
        return means

    def _start_means(self) -> None:
        """Start the next averaging interval."""
        self.loss_sums.zero_()
        self.reported_sums.zero_()
        self.progress.steps_since = 0

    def _take_losses(self) -> list[float]:
        """Return the mean training loss per member since the last call, for which the device is waited for."""
        num_steps = max(1, self.progress.step - self.progress.loss_step)
        losses: list[float] = ((self.loss_sums - self.reported_sums) / num_steps).tolist()
        self.reported_sums.copy_(self.loss_sums)
        self.progress.loss_step = self.progress.step
        return losses

    def _evaluate(self) -> None:
        mean_losses = self._mean_losses()
        train_losses = self._take_losses()
        step = self.progress.step
        forced = self._validation()
        self._last_validation = forced
        # Training that is too short has not diverged, and early stopping returns to the best weights.
        is_at_end = step >= max(self.steps, MIN_JUDGED_STEPS) and self.train.early_stopping is None
        for index in self.active_members:
            metrics = {f"valid/{name}": value for name, value in forced.metrics(index).items()}
            losses = [metrics["valid/loss"]]
            if step:
                metrics = self._loss_metrics(index, train_losses) | metrics
                losses.append(mean_losses[index])
            divergence = self._divergence(losses, is_at_end=is_at_end)
            if divergence:
                self.retire(index, End.DIVERGED)
            self.events.on_evaluation(self._evaluation(index, metrics, divergence))
            self._stop_early(index, metrics)
        self._start_means()

    def _stop_early(self, index: int, metrics: dict[str, float]) -> None:
        """Apply early stopping: store the best weights, and end a member that no longer improves."""
        stopping, member = self.train.early_stopping, self.progress.members[index]
        if stopping is None or member.ended is not None:
            return
        value = metrics[stopping.metric]
        if higher_is_better(stopping.metric):
            value = -value
        if member.best is None or value < member.best:
            member.best, member.best_step = value, self.progress.step
            member.evaluations_since_best = 0
            self.best_weights[index] = self.model.member_state(index)
            return
        member.evaluations_since_best += 1
        if member.evaluations_since_best >= stopping.patience:
            self.retire(index, End.STOPPED_EARLY)

    # -- resume points ---------------------------------------------------------------------------

    def save_resume_point(self) -> None:
        """Write the resume point: everything that the rest of the training depends on."""
        if self.resume_points is None:
            return
        self._wait()
        self.progress.elapsed_seconds = self.clock.seconds
        tensors = {f"model/{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"optimizer/{name}": value for name, value in self.optimizer.state().items()}
        for member, weights in self.best_weights.items():
            tensors |= {f"best/{member}/{name}": value for name, value in weights.items()}
        tensors |= {f"sums/{name}": sums for name, sums in self._sums().items()}
        state = asdict(self.progress)
        with self.events.saving():
            self.resume_points.save(
                self.progress.step, lambda path: checkpoint.save(path, tensors, state)
            )

    def _resume(self) -> None:
        """Load the newest intact resume point, and remove damaged resume points."""
        damaged = []
        for point in self.resume_points.newest_first() if self.resume_points else ():
            try:
                if not point.is_intact():
                    raise HeadToHeadError("its sha256 is not that of its name")
                self._restore(*checkpoint.load(point.path))
                self.clock.earlier = self.progress.elapsed_seconds
                break
            except HeadToHeadError as error:
                damaged.append(f"the resume point of step {point.step} is damaged ({error})")
                with self.events.saving():
                    point.path.unlink(missing_ok=True)
        for reason in damaged:
            self.events.on_fall_back(f"{reason}; training continued from step {self.progress.step}")

    def _restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Load a resume point of this stack. Members that have ended since then stay ended.

        Raises:
            HeadToHeadError: If another version of headtohead or another stack wrote it; then nothing is changed.
        """
        progress = _progress_of(state)
        seeds = [member.seed for member in self.progress.members]
        stored_seeds = [member.seed for member in progress.members]
        if stored_seeds != seeds or not 0 <= progress.step <= self.steps:
            raise HeadToHeadError("it belongs to other runs")
        weights = _under(tensors, "model/")
        moments = _under(tensors, "optimizer/")
        best_weights = _under(tensors, "best/")
        sums = _under(tensors, "sums/")
        if progress.step > 0 and not moments:
            raise HeadToHeadError("it lacks the state of the optimizer")
        checkpoint.require_shapes(self._sums(), sums)
        checkpoint.require_shapes(self.model.state_dict(), weights)

        for current, stored in zip(self.progress.members, progress.members, strict=True):
            stored.ended = current.ended or stored.ended
        self.progress = progress
        self.clear_gradients()
        self.model.load_state_dict(weights)
        self.optimizer.load(moments)
        for name, values in self._sums().items():
            values.copy_(sums[name])
        self.best_weights = {}
        for index, member in enumerate(progress.members):
            if member.best_step is not None:
                member_weights = _under(best_weights, f"{index}/")
                self.best_weights[index] = {
                    name: value.to(self.device) for name, value in member_weights.items()
                }

    def _sums(self) -> dict[str, Tensor]:
        """Return the sums per member of the present averaging interval, and those of the whole training."""
        return {
            "losses": self.loss_sums,
            "reported": self.reported_sums,
            "tokens": self.token_sums,
        }


def _progress_of(state: Mapping[str, Any]) -> Progress:
    """Return the progress of a resume point; raise a `HeadToHeadError` that names the first invalid field."""
    try:
        return _PROGRESS.validate_python(state)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field_path = ".".join(map(str, first["loc"]))
        raise HeadToHeadError(f"{field_path}: {first['msg']}") from error


def _build_model(
    config: RunConfig,
    seeds: Sequence[int],
    data: PreparedData,
    device: torch.device,
    configs: Sequence[RunConfig] | None,
) -> Transformer:
    """Return the model of a stack on its device, in the precision of its weights."""
    words = len(data.source_vocabulary), len(data.target_vocabulary)
    model = Transformer(config, seeds, *words, configs)
    dtype = getattr(torch, PRECISIONS[config.train.precision].weights)
    return model.to(device, dtype)


def _owners(model: Transformer) -> list[tuple[int, ...]] | None:
    """Return the members of each trained parameter; None if all parameters have all members."""
    owners = []
    for _, parameter, members in model.owned_parameters():
        if parameter.requires_grad:
            owners.append(members)
    if all(len(members) == model.members for members in owners):
        return None
    return owners


def planned_shapes(batches: Batches, steps: int) -> Counter[tuple[int, int, int]]:
    """Return the planned steps by (rows, source time, target time), extrapolated from an epoch."""
    epoch = Counter(
        (rows.shape[1], source_time, target_time)
        for rows, source_time, target_time in batches.of_epoch([0], 0)
    )
    return Counter(
        {shape: round(count * steps / batches.steps_per_epoch) for shape, count in epoch.items()}
    )


def split_tensors(
    config: RunConfig, data: PreparedData, device: torch.device, parts: Collection[str] = PARTS
) -> dict[str, SplitTensors]:
    """Return the parts as tensors, with training sentences padded as ``train.pad_to`` requires."""
    fixed = padded_length(config, data.record["longest"]) or 0
    return {
        name: SplitTensors.of(
            split,
            device,
            change=partial(changed_batch, config),
            pads=(data.source_vocabulary.pad, data.target_vocabulary.pad),
            width=fixed if name == "train" else 0,
            joined="encoder" not in config.roles,
        )
        for name, split in data.splits.items()
        if name in parts
    }


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
