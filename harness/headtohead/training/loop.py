"""Training a stack: every member's steps in one program, resumable bit for bit on a CPU."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from headtohead.data import PreparedData
from headtohead.data.batches import Batches, BatchPlan, SentenceBatches
from headtohead.experiment.schema import RunConfig
from headtohead.model.members import same_or_each
from headtohead.model.transformer import Transformer
from headtohead.training import checkpoint
from headtohead.training.evaluate import Forced, teacher_forced, token_losses
from headtohead.training.optimise import (
    StackOptimizer,
    alike,
    clip_gradients,
    freeze,
    trained,
)
from headtohead.training.program import (
    Cut,
    Eager,
    Graphs,
    Shape,
    choose,
    cuda_record,
    rounded,
)
from headtohead.training.tensors import IGNORED, Batch, SplitTensors, pads_of

LARGE_VOCABULARY = 512
"""Words from which it pays to project only the positions that have a target, not padding."""

SAVING = 50
"""A resume point is followed by so many times its own writing time: at most 2 % goes into them."""


@dataclass
class Member:
    """Where one run of a stack stands. ``ended`` is None while it trains, else why it stopped."""

    seed: int
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
        on_fall_back: Told why the chosen program is given up, if it is.
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
        micro_batch: int = 1,
        configs: Sequence[RunConfig] | None = None,
        on_fall_back: Callable[[str], None] = lambda why: None,
    ) -> None:
        self.config = config
        self.train = config.train
        trains = [one.train for one in configs or [config] * len(seeds)]
        self.device = device
        self.resume_path = resume_path
        self.on_evaluation = on_evaluation
        self.on_progress = on_progress
        self.micro_batch = micro_batch
        dtype = torch.float64 if self.train.precision == "float64" else torch.float32
        self.model = Transformer(
            config, seeds, len(data.source_vocabulary), len(data.target_vocabulary), configs
        ).to(device, dtype)
        freeze(self.model, self.train.parts)
        self.parameters = trained(self.model)
        owners = [
            self.model.members_of(name)
            for name, one in self.model.named_parameters()
            if one.requires_grad
        ]
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
        self.plan = make_batches(config, training, data.record["longest"])
        # A batch of one-word targets without boundary tokens has nothing to predict.
        self.may_lack_words = bool((training.host_target_lengths == 0).any())
        self.steps = planned_steps(config, self.plan.steps_per_epoch)
        self.optimizer = StackOptimizer(trains, self.model, self.steps)
        self.evaluate_every = self.train.evaluate_every or max(1, round(self.steps / 10))
        self.progress = Progress(members=[Member(seed) for seed in seeds])
        # Sums stay on the device and are read at evaluations: no step waits for the host.
        self.loss_sums = torch.zeros(len(seeds), dtype=torch.float64, device=device)
        self.token_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.best_weights: dict[int, dict[str, Tensor]] = {}
        self._choose_program(on_fall_back)

    def _choose_program(self, say: Callable[[str], None]) -> None:
        asked, device = self.train.program, self.device
        known = device.type == "cuda" or asked == "compile"
        planned = planned_shapes(self.plan, self.steps) if known else Counter()
        self.choice = choose(asked, device.type, planned.values(), self.model.obstacle)
        if asked not in ("auto", self.choice.name):
            say(f"train.program {asked} is not taken: {self.choice.why}")
        self.gradients: Callable[[Tensor, Shape], Tensor] = self._gradients
        if self.choice.name == "compile":
            from headtohead.training.compiled import Compiled

            self.gradients = Compiled(self.model, self._gradients, planned, say)
        self.program: Eager | Graphs = Eager(self._update)
        if device.type == "cuda" and self.choice.name != "eager":
            self.program = Graphs(self._update, self.state, planned, cuda_record(device), say)

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
        batches = self._batches()
        while self.progress.step < self.steps and self.live:
            self._step(next(batches))
            step = self.progress.step
            self.on_progress(step, self.steps)
            if step % self.evaluate_every == 0 or step == self.steps:
                self._evaluate()
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

    def _batches(self) -> Iterator[Cut]:
        """Yield the batches from the current step on."""
        per_epoch = self.plan.steps_per_epoch
        while True:
            epoch, done = divmod(self.progress.step, per_epoch)
            seeds = [member.seed for member in self.progress.members]
            for rows, source_time, target_time in self.plan.batches(seeds, epoch, done):
                yield self._cut(rows, source_time, target_time)

    def _cut(self, rows: Tensor, source_time: int, target_time: int) -> Cut:
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
        return Cut(rows.to(self.device, non_blocking=True), shape)

    def _batch(self, cut: Cut) -> Batch:
        return self.splits["train"].batch(cut.rows, cut.shape.source_time, cut.shape.target_time)

    def _step(self, cut: Cut) -> None:
        started = time.perf_counter()
        if not self.model.training:
            self.model.train()
        progress = self.progress
        self.model.stream.begin(progress.step)
        self.optimizer.begin(progress.step + 1)
        self.program(cut)
        progress.step += 1
        progress.steps_since += 1
        progress.train_seconds += time.perf_counter() - started

    def _update(self, rows: Tensor, shape: Shape) -> None:
        """Do the device's part of a step; what differs between steps is in tensors by now."""
        losses = self.gradients(rows, shape)
        if self.clip_norm != math.inf:
            clip_gradients(self.parameters, self.clip_norm, self.owners)
        self.optimizer.update()
        self.loss_sums += losses.double()
        self.token_sum += self.splits["train"].target_lengths[rows].sum()

    def state(self) -> dict[str, list[Tensor]]:
        """Return all that a step changes, by kind."""
        kinds: dict[str, list[Tensor]] = {}
        for name, value in self.optimizer.state().items():
            kinds.setdefault(name.partition("/")[2], []).append(value)
        return {
            "weights": list(self.parameters), **kinds,
            "losses": [self.loss_sums], "words": [self.token_sum],
        }  # fmt: skip

    def _gradients(self, rows: Tensor, shape: Shape) -> Tensor:
        return self._backward(self._batch(Cut(rows, shape)), shape.live)

    def _backward(self, batch: Batch, live: int) -> Tensor:
        """Accumulate gradients of the members' mean token losses; return those, ``[member]``."""
        words = batch.target_lengths.sum(dim=1).to(self.parameters[0].dtype)
        if self.may_lack_words:
            words = words.clamp(min=1)
        rows = batch.source.shape[1]
        if self.micro_batch == 1 or rows == 1 or self.model.reads_row:
            self.model.stream.see(batch.shape)
            return self._accumulate(batch, live, words)
        total = torch.zeros_like(words)
        for part in torch.arange(rows).tensor_split(min(self.micro_batch, rows)):
            piece = batch.part(slice(int(part[0]), int(part[-1]) + 1))
            self.model.stream.see(first=int(part[0]), rows=len(part))
            total += self._accumulate(piece, min(live, piece.writes[0].numel()), words)
        return total

    def _accumulate(self, batch: Batch, live: int, words: Tensor) -> Tensor:
        enabled = self.train.precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16) if enabled else nullcontext():
            hidden = self.model.hidden(
                batch.source, batch.source_lengths, batch.reads, batch.target_lengths
            )
            writes = batch.writes
            if self.target_words >= LARGE_VOCABULARY:
                hidden, writes = live_positions(hidden, writes, live)
            logits = self.model.project(hidden)
        losses = self._token_losses(logits.float() if enabled else logits, writes)
        means = losses.sum(dim=(1, 2)) / words
        # As of their sum, which keeps members apart: each one's gradient is that of its own loss.
        torch.autograd.backward([means], [torch.ones_like(means)])
        return means.detach()

    def _token_losses(self, logits: Tensor, writes: Tensor) -> Tensor:
        """Return the losses that are trained on, smoothed as each member asks."""
        if len(self.smoothed) == 1:
            return token_losses(logits, writes, self.smoothed[0][1])
        return torch.cat([
            token_losses(logits[one.start : one.stop], writes[one.start : one.stop], smoothing)
            for one, smoothing in self.smoothed
        ])  # fmt: skip

    # -- evaluations -----------------------------------------------------------------------------

    def _evaluate(self) -> None:
        progress = self.progress
        started = time.perf_counter()
        wait(self.device)
        progress.train_seconds += time.perf_counter() - started
        train_losses = (self.loss_sums / max(1, progress.steps_since)).tolist()
        split = self.splits["valid"]
        forced = teacher_forced(
            self.model, split, split.padded_batches(self.config.evaluate.batch_size)
        )
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
        tensors = {f"model/{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"optimizer/{name}": one for name, one in self.optimizer.state().items()}
        for member, weights in self.best_weights.items():
            tensors |= {f"best/{member}/{name}": value for name, value in weights.items()}
        tensors |= {"loss_sums": self.loss_sums, "token_sum": self.token_sum}
        checkpoint.save(self.resume_path, tensors, asdict(self.progress))

    def _resume(self) -> None:
        if self.resume_path is None or not self.resume_path.exists():
            return
        tensors, state = checkpoint.load(self.resume_path)
        members = [Member(**member) for member in state.pop("members")]
        retired = {i: m.ended for i, m in enumerate(self.progress.members) if m.ended}
        self.progress = Progress(**state, members=members)
        for index, reason in retired.items():
            self.progress.members[index].ended = reason
        self.model.load_state_dict(_under(tensors, "model/"))
        self.optimizer.load(_under(tensors, "optimizer/"))
        self.best_weights = {
            index: {name: value.to(self.device) for name, value in weights.items()}
            for index in range(len(members))
            if (weights := _under(tensors, f"best/{index}/"))
        }
        self.loss_sums.copy_(tensors["loss_sums"])
        self.token_sum.copy_(tensors["token_sum"])


def live_positions(hidden: Tensor, writes: Tensor, live: int) -> tuple[Tensor, Tensor]:
    """Gather the positions that have a target word, ``live`` a member, padding filling the rest.

    Args:
        hidden: ``[member, batch, time, d_model]``.
        writes: Target ids ``[member, batch, time]``.
        live: At least the largest number of targets of a member.

    Returns:
        ``[member, 1, live, d_model]`` and ``[member, 1, live]``.
    """
    targets = writes.flatten(1)
    order = (targets == IGNORED).to(torch.uint8).argsort(dim=1, stable=True)[:, :live]
    chosen = order.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
    kept = hidden.flatten(1, 2).gather(1, chosen)
    return kept.unsqueeze(1), targets.gather(1, order).unsqueeze(1)


def planned_steps(config: RunConfig, steps_per_epoch: int) -> int:
    """Return the number of optimizer steps: ``steps``, or ``epochs`` (default 10) times one."""
    if config.train.steps is not None:
        return config.train.steps
    if config.train.epochs == 0:
        return 0
    return max(1, round((config.train.epochs or 10) * steps_per_epoch))


def planned_shapes(plan: Batches, steps: int) -> Counter[tuple[int, int, int]]:
    """Return the planned steps by rows of a member, source and target time, as in one epoch."""
    epoch = Counter(
        (rows.shape[1], source_time, target_time)
        for rows, source_time, target_time in plan.batches([0], 0)
    )
    return Counter({
        shape: round(count * steps / plan.steps_per_epoch) for shape, count in epoch.items()
    })  # fmt: skip


def split_tensors(
    config: RunConfig, data: PreparedData, device: torch.device
) -> dict[str, SplitTensors]:
    """Return the parts as tensors; training sentences as long as their batches want them."""
    fixed = padded_length(config, data.record["longest"]) or 0
    pads = pads_of(data.source_vocabulary, data.target_vocabulary)
    return {
        name: SplitTensors.of(
            split, device, predicts=config.train.target, pads=pads,
            width=fixed if name == "train" else 0,
        )
        for name, split in data.splits.items()
    }  # fmt: skip


def make_batches(config: RunConfig, training: SplitTensors, longest: Mapping[str, int]) -> Batches:
    """Return the batches that a configuration asks for.

    Args:
        config: The variant.
        training: The training part.
        longest: Tokens of the longest sentence of the corpus, by side.
    """
    lengths = training.source_lengths.cpu().numpy(), training.target_lengths.cpu().numpy()
    if config.train.batch_size is None:
        exact = config.train.length_buckets == "exact"
        return BatchPlan(*lengths, config.train.batch_tokens, exact)
    fixed = padded_length(config, longest)
    if fixed is None:
        return SentenceBatches(*lengths, config.train.batch_size)
    read = fixed - 1 if config.train.target == "next" else fixed
    return SentenceBatches(*lengths, config.train.batch_size, (fixed, max(1, read)))


def padded_length(config: RunConfig, longest: Mapping[str, int]) -> int | None:
    """Return the tokens that every training sentence is padded to, None where batches differ."""
    pad_to = config.train.pad_to
    if config.train.batch_size is None or pad_to == "batch":
        return None
    return max(longest.values()) if pad_to == "corpus" else pad_to


def wait(device: torch.device) -> None:
    """Wait for what a GPU was told to do; on a CPU it is done already."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
