"""Training a stack: every member's steps in one program, resumable bit for bit on a CPU."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from headtohead.data import PreparedData
from headtohead.data.batches import Batches, make_batches, padded_length
from headtohead.errors import HeadToHeadError
from headtohead.model.counting import LARGE_VOCABULARY
from headtohead.model.members import same_or_each
from headtohead.model.transformer import Transformer
from headtohead.planning.schedule import evaluation_interval, planned_steps
from headtohead.schema.run_config import RunConfig
from headtohead.training import checkpoint
from headtohead.training.backends import (
    BatchSpec,
    Eager,
    Graphs,
    Owned,
    ReplayFailed,
    Shape,
    choose,
    cuda_capture,
    not_tested,
    rounded,
)
from headtohead.training.evaluate import Forced, teacher_forced, token_losses
from headtohead.training.optimise import StackOptimizer, alike, clip_gradients, freeze, trained
from headtohead.training.tensors import IGNORE_INDEX, Batch, SplitTensors, pads_of

if TYPE_CHECKING:
    from headtohead.training.compiled import Compiled

SAVING = 50
"""A resume point is followed by so many times its own writing time: at most 2 % goes into them."""


@dataclass
class Member:
    """Where one run of a stack stands. ``ended`` is None while it trains, else why it stopped.

    ``key`` identifies the run in a resume point, whichever stack wrote it.
    """

    seed: int
    key: str
    ended: str | None = None
    best: float | None = None
    best_step: int | None = None
    evaluations_since_best: int = 0


@dataclass
class Progress:
    """Where the whole stack stands; everything that a resume needs beside the tensors."""

    step: int = 0
    train_seconds: float = 0.0
    steps_since: int = 0
    members: list[Member] = field(default_factory=list)


@dataclass(frozen=True)
class Evaluation:
    """What is known of one member at an evaluation."""

    member: int
    step: int
    epoch: float
    metrics: dict[str, float]


class StackTraining:
    """The training of one stack.

    Args:
        config: The variant of the members, or of the first.
        seeds: One per member.
        data: The prepared data.
        device: Where to train.
        resume_path: File of the resume point; read if it exists.
        on_evaluation: Called for each live member at each evaluation.
        on_progress: Called after every step with the step and the number of steps.
        configs: The variants of the members, where they differ in what a stack allows
            (``model/members.py``).
        on_fall_back: Receives the reason where another backend than ``train.backend`` is used.
        unverified: Returns why a backend is not verified on this machine, or an empty text.
        keys: What identifies each member in a resume point; by default its number.
        saving: Returns the context in which resume points are written; it may raise.
    """

    def __init__(
        self,
        config: RunConfig,
        seeds: Sequence[int],
        data: PreparedData,
        device: torch.device,
        resume_path: Path | None = None,
        on_evaluation: Callable[[Evaluation], None] = lambda evaluation: None,
        on_progress: Callable[[int, int], None] = lambda step, steps: None,
        num_microbatches: int = 1,
        configs: Sequence[RunConfig] | None = None,
        on_fall_back: Callable[[str], None] = lambda why: None,
        unverified: Callable[[str], str] = not_tested,
        keys: Sequence[str] | None = None,
        saving: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.config = config
        self.train = config.train
        trains = [one.train for one in configs or [config] * len(seeds)]
        self.device = device
        self.resume_path = resume_path
        self.on_evaluation = on_evaluation
        self.on_progress = on_progress
        self.saving = saving
        self.num_microbatches = num_microbatches
        dtype = torch.float64 if self.train.precision == "float64" else torch.float32
        self.model = Transformer(config, seeds, len(data.source_vocabulary), len(data.target_vocabulary), configs).to(
            device, dtype
        )
        freeze(self.model, config.quirks.trainable)
        self.parameters = trained(self.model)
        owners = [self.model.members_of(name) for name, one in self.model.named_parameters() if one.requires_grad]
        shared = all(len(own) == len(seeds) for own in owners)
        self.owners = None if shared else owners
        norms = [math.inf if one.clip_norm is None else one.clip_norm for one in trains]
        self.clip_norm = same_or_each(norms)
        self.smoothed = [
            (members, trains[members[0]].label_smoothing)
            for members in alike(trains, lambda train: train.label_smoothing)
        ]
        self.target_words = self.model.rows.target
        self.splits = split_tensors(config, data, device)
        training = self.splits["train"]
        lengths = training.source_lengths.cpu().numpy(), training.target_lengths.cpu().numpy()
        self.plan = make_batches(config, *lengths, data.record["longest"])
        # A batch of one-word targets without boundary tokens has nothing to predict.
        self.may_lack_words = bool((training.host_target_lengths == 0).any())
        self.steps = planned_steps(self.train, self.plan.steps_per_epoch)
        self._choose_backend(on_fall_back, unverified)
        captured = isinstance(self.backend, Graphs)
        self.optimizer = StackOptimizer(trains, self.model, self.steps, captured)
        self.evaluate_every = evaluation_interval(self.train, self.steps)
        names = keys or [str(number) for number in range(len(seeds))]
        self.progress = Progress(members=list(map(Member, seeds, names)))
        # Sums stay on the device and are read at evaluations: no step waits for the host.
        self.loss_sums = torch.zeros(len(seeds), dtype=torch.float64, device=device)
        self.token_sums = torch.zeros_like(self.loss_sums)
        self.best_weights: dict[int, dict[str, Tensor]] = {}

    def _choose_backend(self, log: Callable[[str], None], unverified: Callable[[str], str]) -> None:
        asked, device = self.train.backend, self.device

        def missing(name: str) -> str:
            why = unverified(name)
            if why:
                log(f"train.backend auto uses eager: {why}")
            return why

        known = device.type == "cuda" or asked == "compile"
        planned = planned_shapes(self.plan, self.steps) if known else Counter()
        obstacle = self.model.obstacle
        self.choice = choose(asked, device.type, planned.values(), obstacle, missing)
        if asked not in ("auto", self.choice.name):
            log(f"train.backend {asked} is not used: {self.choice.why}")
        # Backends receive the training with every call: one that held it would be a reference
        # cycle, and a stack's memory would stay allocated until the garbage collector runs.
        self.compiled: Compiled | None = None
        if self.choice.name == "compile":
            from headtohead.training.compiled import Compiled

            self.compiled = Compiled(planned, log)
        self.backend: Eager | Graphs = Eager()
        if device.type == "cuda" and self.choice.name != "eager":
            self.backend = Graphs(planned, cuda_capture(device), log)

    @property
    def live(self) -> list[int]:
        """Members that still train."""
        return [i for i, member in enumerate(self.progress.members) if member.ended is None]

    def run(self, seconds_left: Callable[[], float] | None = None) -> None:
        """Train to the end, from the resume point if there is one.

        Raises:
            TimeoutError: If ``seconds_left`` falls to zero; the resume point is then current.
        """
        self._resume()
        saved, pause = time.monotonic(), self.train.checkpoint_seconds
        batches, snapshot = self._batches(), self._snapshot()
        while self.progress.step < self.steps and self.live:
            try:
                self._step(next(batches))
            except ReplayFailed:
                self._restore(*snapshot)
                batches = self._batches()
                continue
            step = self.progress.step
            self.on_progress(step, self.steps)
            if step % self.evaluate_every == 0 or step == self.steps:
                self._evaluate()
                snapshot = self._snapshot()
            if seconds_left is not None and seconds_left() <= 0:
                self.save_resume_point()
                raise TimeoutError
            if time.monotonic() - saved >= pause:
                began = time.monotonic()
                self.save_resume_point()
                saved = time.monotonic()
                if pause:
                    pause = max(self.train.checkpoint_seconds, SAVING * (saved - began))
        if self.steps == 0:
            self.on_progress(0, 0)
            self._evaluate()
        self.save_resume_point()
        self._restore_best()

    def retire(self, member: int, reason: str) -> None:
        """Stop caring for a member; its neighbours go on unchanged."""
        self.progress.members[member].ended = reason

    # -- steps -----------------------------------------------------------------------------------

    def _batches(self) -> Iterator[BatchSpec]:
        """Yield the batches from the current step on."""
        per_epoch = self.plan.steps_per_epoch
        while True:
            epoch, done = divmod(self.progress.step, per_epoch)
            seeds = [member.seed for member in self.progress.members]
            for rows, source_time, target_time in self.plan.batches(seeds, epoch, done):
                yield self._cut(rows, source_time, target_time)

    def _cut(self, rows: Tensor, source_time: int, target_time: int) -> BatchSpec:
        """Return a batch of rows ``[member, batch]`` on the host, on its way to the device."""
        live, count = self.splits["train"].live(rows), rows.shape[1]
        if self.choice.name == "compile":
            live = count * target_time
        elif self.device.type == "cuda":
            # Few shapes count for more there than few positions.
            live = rounded(live, (count, target_time))
        if self.device.type == "cuda":
            rows = rows.pin_memory()  # or the copy would wait for the device
        shape = Shape(count, source_time, target_time, live)
        return BatchSpec(rows.to(self.device, non_blocking=True), shape)

    def _batch(self, cut: BatchSpec) -> Batch:
        return self.splits["train"].batch(cut.rows, cut.shape.source_time, cut.shape.target_time)

    def _step(self, cut: BatchSpec) -> None:
        started = time.perf_counter()
        if not self.model.training:
            self.model.train()
        progress = self.progress
        self.model.dropout_rng.set_step(progress.step)
        self.optimizer.begin(progress.step + 1)
        self.backend(self, cut)
        progress.step += 1
        progress.steps_since += 1
        progress.train_seconds += time.perf_counter() - started

    def update(self, rows: Tensor, shape: Shape, eager: bool = False) -> None:
        """Execute the device's part of a step; what differs between steps is in tensors by now.

        Args:
            rows: Of the training part, ``[member, batch]``.
            shape: Of the batch.
            eager: Whether compiled code is left aside.
        """
        self.clear_gradients()
        losses = (self.eager_gradients if eager else self.gradients)(rows, shape)
        if self.clip_norm != math.inf:
            clip_gradients(self.parameters, self.clip_norm, self.owners)
        self.optimizer.update()
        self.loss_sums += losses.double()
        self.token_sums += self.splits["train"].target_lengths[rows].sum(dim=1)

    def clear_gradients(self) -> None:
        """Set all gradients to None, so that no step accumulates onto those of a failed one."""
        self.optimizer.clear_gradients()

    def state(self) -> dict[str, list[Owned]]:
        """Return everything that a step changes, by kind."""
        everyone = tuple(range(self.model.members))
        kinds = {
            "weights": [
                Owned(one, self.model.members_of(name))
                for name, one in self.model.named_parameters()
                if one.requires_grad
            ],
            "losses": [Owned(self.loss_sums, everyone)],
            "words": [Owned(self.token_sums, everyone)],
        }
        for name, value in self.optimizer.state().items():
            index, _, kind = name.partition("/")
            members = self.optimizer.members[int(index)] if value.dim() else None
            kinds.setdefault(kind, []).append(Owned(value, members))
        for _, buffer in self.model.named_buffers():
            kinds.setdefault("buffers", []).append(Owned(buffer, None))
        return kinds

    def gradients(self, rows: Tensor, shape: Shape) -> Tensor:
        """Give the parameters their gradients and return the members' losses, ``[member]``."""
        if self.compiled is None:
            return self.eager_gradients(rows, shape)
        return self.compiled(self, rows, shape)

    def eager_gradients(self, rows: Tensor, shape: Shape) -> Tensor:
        """Do the same operation by operation."""
        return self._backward(self._batch(BatchSpec(rows, shape)), shape.live)

    def _backward(self, batch: Batch, live: int) -> Tensor:
        """Accumulate gradients of the members' mean token losses; return those, ``[member]``."""
        words = batch.target_lengths.sum(dim=1).to(self.parameters[0].dtype)
        if self.may_lack_words:
            words = words.clamp(min=1)
        rows = batch.source.shape[1]
        if self.num_microbatches == 1 or rows == 1 or self.model.position_is_row:
            self.model.dropout_rng.start_microbatch(batch.shape)
            total = self._accumulate(batch, live, words)
            self.model.dropout_rng.finish_microbatch()
            return total
        total = torch.zeros_like(words)
        for part in np.array_split(range(rows), min(self.num_microbatches, rows)):
            piece = batch.part(slice(int(part[0]), int(part[-1]) + 1))
            self.model.dropout_rng.start_microbatch(first=int(part[0]), rows=len(part))
            total += self._accumulate(piece, min(live, piece.labels[0].numel()), words)
            self.model.dropout_rng.finish_microbatch()
        return total

    def _accumulate(self, batch: Batch, live: int, words: Tensor) -> Tensor:
        enabled = self.train.precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16) if enabled else nullcontext():
            hidden = self.model.hidden(
                batch.source, batch.source_lengths, batch.decoder_input_ids, batch.target_lengths
            )
            labels = batch.labels
            if self.target_words >= LARGE_VOCABULARY:
                hidden, labels = live_positions(hidden, labels, live)
            logits = self.model.project(hidden)
        losses = self._token_losses(logits.float() if enabled else logits, labels)
        means = losses.sum(dim=(1, 2)) / words
        # As of their sum, which keeps members apart: each one's gradient is that of its own loss.
        torch.autograd.backward([means], [torch.ones_like(means)])
        return means.detach()

    def _token_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the losses that are trained on, smoothed as each member asks."""
        if len(self.smoothed) == 1:
            return token_losses(logits, labels, self.smoothed[0][1])
        return torch.cat(
            [
                token_losses(logits[one.start : one.stop], labels[one.start : one.stop], smoothing)
                for one, smoothing in self.smoothed
            ]
        )

    # -- evaluations -----------------------------------------------------------------------------

    def _evaluate(self) -> None:
        progress = self.progress
        started = time.perf_counter()
        wait(self.device)
        progress.train_seconds += time.perf_counter() - started
        train_losses = (self.loss_sums / max(1, progress.steps_since)).tolist()
        split = self.splits["valid"]
        forced = teacher_forced(self.model, split, split.padded_batches(self.config.evaluate.batch_size))
        for index in self.live:
            self._evaluate_member(index, train_losses[index] if progress.step else None, forced)
        self.loss_sums.zero_()
        progress.steps_since = 0

    def _evaluate_member(self, index: int, train_loss: float | None, forced: Forced) -> None:
        step = self.progress.step
        metrics = {f"valid/{name}": value for name, value in forced.metrics(index).items()}
        if train_loss is not None:
            rate = self.optimizer.rate(index, step)
            metrics = {"train/loss": train_loss, "train/lr": rate} | metrics
        if not math.isfinite(metrics["valid/loss"] + metrics.get("train/loss", 0.0)):
            self.retire(index, "diverged")
        epoch = step / self.plan.steps_per_epoch
        self.on_evaluation(Evaluation(index, step, epoch, metrics))
        if self.progress.members[index].ended is None:
            self._watch(index, metrics)

    def _watch(self, index: int, metrics: dict[str, float]) -> None:
        """Keep the best weights and stop a member that no longer improves, if asked to."""
        stopping = self.train.early_stopping
        if stopping is None:
            return
        member = self.progress.members[index]
        value = metrics[stopping.metric]
        if stopping.metric == "valid/token_accuracy":
            value = -value
        if member.best is None or value < member.best:
            member.best, member.best_step = value, self.progress.step
            member.evaluations_since_best = 0
            self.best_weights[index] = self.model.member_state(index)
            return
        member.evaluations_since_best += 1
        if member.evaluations_since_best >= stopping.patience:
            member.ended = "stopped early"

    def _restore_best(self) -> None:
        """Give members their best weights, where early stopping kept them."""
        for index, weights in self.best_weights.items():
            self.model.load_member(index, weights)

    # -- resume points ---------------------------------------------------------------------------

    def save_resume_point(self) -> None:
        """Write everything that the rest of the training depends on."""
        if self.resume_path is None:
            return
        with self.saving():
            checkpoint.save(self.resume_path, self._tensors(), self._state())

    def _resume(self) -> None:
        if self.resume_path is not None and self.resume_path.exists():
            self._restore(*checkpoint.load(self.resume_path))

    def _snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return a copy in host memory to go back to where a replay fails; empty where none can."""
        if not isinstance(self.backend, Graphs) or self.backend.fell_back:
            return {}, {}
        tensors = {name: one.detach().to("cpu", copy=True) for name, one in self._tensors().items()}
        return tensors, self._state()

    def _tensors(self) -> dict[str, Tensor]:
        """Return every tensor that the rest of the training depends on."""
        tensors = {f"model/{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"optimizer/{name}": one for name, one in self.optimizer.rows().items()}
        tensors |= {"sums/losses": self.loss_sums, "sums/tokens": self.token_sums}
        for member, weights in self.best_weights.items():
            tensors |= {f"best/{member}/{name}": value for name, value in weights.items()}
        return tensors

    def _state(self) -> dict[str, Any]:
        """Return the rest of a resume point: the progress, and whose rows each tensor has."""
        everyone = tuple(range(self.model.members))
        owners = {
            name: own
            for name in self._tensors()
            if not name.startswith("best/") and (own := self._owner(name)) != (name, everyone)
        }
        return asdict(self.progress) | {"owners": owners}

    def _owner(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Return a saved tensor's name in a stack of one, and the members of its first axis."""
        section, _, rest = name.partition("/")
        parameter, slash, kind = rest.partition("/")
        plain, members = self.model.owner(parameter)
        return f"{section}/{plain}{slash}{kind}", members

    def _restore(self, tensors: dict[str, Tensor], point: Mapping[str, Any]) -> None:
        """Go back, or on, to a resume point of this stack or of a larger one with the same members.

        Members that have ended since stay ended.
        """
        state = dict(point)
        saved = [Member(**member) for member in state.pop("members")]
        owners = state.pop("owners")
        found = {member.key: place for place, member in enumerate(saved)}
        try:
            places = [found[member.key] for member in self.progress.members]
        except KeyError as error:
            raise HeadToHeadError(
                f"checkpoint '{self.resume_path}' is of other runs; delete it and run the same command again"
            ) from error
        rows: dict[tuple[str, int], Tensor] = {}
        for name, value in tensors.items():
            if not name.startswith("best/"):
                plain, members = owners.get(name, (name, range(len(saved))))
                rows |= {(plain, one): row for one, row in zip(members, value, strict=True)}
        kinds = dict.fromkeys(name.rpartition("/")[2] for name in tensors if name.startswith("optimizer/"))

        def stacked(name: str) -> Tensor:
            plain, members = self._owner(name)
            return torch.stack([rows[plain, places[member]] for member in members])

        def moments(name: str) -> dict[str, Tensor]:
            plain, members = self._owner(f"optimizer/{name}")
            first = places[members[0]]  # a parameter without gradients has none
            return {kind: stacked(f"optimizer/{name}/{kind}") for kind in kinds if (f"{plain}/{kind}", first) in rows}

        retired = {i: m.ended for i, m in enumerate(self.progress.members) if m.ended}
        self.progress = Progress(**state, members=[saved[place] for place in places])
        for index, reason in retired.items():
            self.progress.members[index].ended = reason
        self.clear_gradients()
        self.model.load_state_dict({name: stacked(f"model/{name}") for name in self.model.state_dict()})
        self.optimizer.load(moments)
        self.best_weights = {
            index: {name: value.to(self.device) for name, value in weights.items()}
            for index, place in enumerate(places)
            if (weights := _under(tensors, f"best/{place}/"))
        }
        self.loss_sums.copy_(stacked("sums/losses"))
        self.token_sums.copy_(stacked("sums/tokens"))


def live_positions(hidden: Tensor, labels: Tensor, live: int) -> tuple[Tensor, Tensor]:
    """Gather the positions that have a target word, ``live`` a member, padding filling the rest.

    Args:
        hidden: ``[member, batch, time, d_model]``.
        writes: Target ids ``[member, batch, time]``.
        live: At least the largest number of targets of a member.

    Returns:
        ``[member, 1, live, d_model]`` and ``[member, 1, live]``.
    """
    targets = labels.flatten(1)
    order = (targets == IGNORE_INDEX).to(torch.uint8).argsort(dim=1, stable=True)[:, :live]
    chosen = order.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
    kept = hidden.flatten(1, 2).gather(1, chosen)
    return kept.unsqueeze(1), targets.gather(1, order).unsqueeze(1)


def planned_shapes(plan: Batches, steps: int) -> Counter[tuple[int, int, int]]:
    """Return the planned steps by rows of a member, source and target time, as in one epoch."""
    epoch = Counter(
        (rows.shape[1], source_time, target_time) for rows, source_time, target_time in plan.batches([0], 0)
    )
    return Counter({shape: round(count * steps / plan.steps_per_epoch) for shape, count in epoch.items()})


def split_tensors(config: RunConfig, data: PreparedData, device: torch.device) -> dict[str, SplitTensors]:
    """Return the parts as tensors; training sentences as long as their batches want them."""
    fixed = padded_length(config, data.record["longest"]) or 0
    pads = pads_of(data.source_vocabulary, data.target_vocabulary)
    return {
        name: SplitTensors.of(
            split, device, shift_targets=config.quirks.shift_targets, pads=pads, width=fixed if name == "train" else 0
        )
        for name, split in data.splits.items()
    }


def wait(device: torch.device) -> None:
    """Wait for what a GPU was told to do; on a CPU it is done already."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
