"""Checks of a stack as the study trains it: its sizes, data, batches, precision and members.

Code can depend on sizes: a leak that needs a length of 32, a head width of 16 or six members is invisible in the small
configurations of the invariants. These checks build the planned stack itself, on a CPU and in the process of the
command, and have limits of time and memory. What does not fit is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import torch
from torch import Tensor

from headtohead.data import PreparedData
from headtohead.model.quirks import key_sides
from headtohead.planning.lookup import PlannedRun
from headtohead.planning.plan import Plan
from headtohead.planning.stacking import training_bytes
from headtohead.plugins.registry import find_masking
from headtohead.schema.run_config import RunConfig, changed
from headtohead.storage.metrics import counted
from headtohead.testing.checks.clock import Clock
from headtohead.testing.checks.passes import Forward, derivative, isolation, trained_tensors
from headtohead.testing.invariant import known_violations
from headtohead.testing.subject import hides, move_parameters
from headtohead.testing.verdict import Verdict, does_not_apply, within
from headtohead.training.backends import BatchSpec
from headtohead.training.loop import StackTraining

SECONDS = 30.0
"""Processor time of all checks of a stack."""

FLOAT64_BYTES = 2 * 2**30
"""Estimated memory of a float64 stack, above which it has fewer members than the planned stack."""

MAX_BATCHES = 200
"""Number of batches of the first epoch among which the largest is chosen."""

OWN_PASSES = 16
"""Passes over a batch for which the time of a part must suffice."""

PASSES_OF_A_STEP = 4
"""Time of a training step, in forward passes."""

STEPS = 3
"""Training steps of the stack and of its members alone."""

BOUNDS = {"float64": 1e-9, "float32": 1e-3, "tf32": 1e-3, "bfloat16": 0.05}
"""Largest change of outputs by rounding, relative to the largest output."""

CLOSE = 1e-8
"""Largest float64 difference between weights trained in a stack and alone, relative to the largest weight."""


STATEMENTS = {
    "trained-tensors": "Every tensor that a backward pass reaches is a parameter of the model.",
    "finite-as-trained": "Losses and gradients of the first step are finite in the precision of the study.",
    "isolation-as-trained": (
        "A target token changes outputs of its own sequence from its own position on and nothing else, in training and "
        "in evaluation, in the precision of the study and in float64."
    ),
    "derivative-as-trained": "Gradients equal finite differences.",
    "stack-as-alone": "Members trained together have the weights of members trained alone.",
}
"""The checks and what they state."""


@dataclass(frozen=True)
class PlannedStack:
    """A stack of the plan.

    Args:
        configs: The variant of each member.
        seeds: The seed of each member.
        data: The prepared data.
        member_bytes: Estimated memory of a member in training.
    """

    configs: tuple[RunConfig, ...]
    seeds: tuple[int, ...]
    data: PreparedData
    member_bytes: int

    @classmethod
    def of(cls, plan: Plan, runs: Sequence[PlannedRun]) -> PlannedStack:
        """Return the stack of planned runs."""
        return cls(
            configs=tuple(plan.variant_of(run).config for run in runs),
            seeds=tuple(run.seed for run in runs),
            data=plan.data_of(runs[0]),
            member_bytes=training_bytes(plan, runs[0]),
        )

    @property
    def precision(self) -> str:
        """The precision in which the stack trains."""
        return self.configs[0].train.precision

    @property
    def float64_members(self) -> int:
        """Number of members whose float64 training fits into ``FLOAT64_BYTES``; 0 if that of one does not fit."""
        return min(len(self.seeds), FLOAT64_BYTES // (2 * max(1, self.member_bytes)))

    def chosen(self, members: Sequence[int]) -> PlannedStack:
        """Return the stack of some members."""
        configs = tuple(self.configs[member] for member in members)
        seeds = tuple(self.seeds[member] for member in members)
        return replace(self, configs=configs, seeds=seeds)

    def training(self, precision: str) -> StackTraining:
        """Return the training of the stack on a CPU, before its first step."""
        train = {"precision": precision, "backend": "eager"}
        configs = [changed(config, train=train) for config in self.configs]
        return StackTraining(
            configs[0], self.seeds, self.data, torch.device("cpu"), configs=configs
        )


@dataclass(frozen=True)
class Finding:
    """The verdict of a check of a stack.

    Attributes:
        check: Name of the check, in `STATEMENTS`.
        verdict: Its verdict.
        where: The mode and the precision, for a check that is made in several.
    """

    check: str
    verdict: Verdict
    where: str = ""

    @property
    def name(self) -> str:
        """The check, with the mode and the precision."""
        return f"{self.check} in {self.where}" if self.where else self.check


@dataclass
class Findings:
    """The verdicts of a stack, its sizes, and what did not fit into the limits."""

    entries: list[Finding] = field(default_factory=list)
    sizes: str = ""
    not_checked: list[str] = field(default_factory=list)
    step_seconds: float = 0.0
    """Estimated time of a float64 training step of the whole batch."""

    @property
    def violation(self) -> Finding | None:
        """The first violation."""
        violations = (each for each in self.entries if each.verdict.outcome == "violated")
        return next(violations, None)

    def add(self, check: str, verdict: Verdict, stack: PlannedStack, where: str = "") -> None:
        """Add a verdict; a known violation of a setting of the stack is no violation."""
        self.entries.append(Finding(check, with_known_cause(check, verdict, stack), where))

    def miss(self, text: str) -> None:
        """Name what was not checked, once."""
        if text not in self.not_checked:
            self.not_checked.append(text)


def check_as_trained(stack: PlannedStack, seconds: float = SECONDS) -> Findings:
    """Check a stack at the sizes of the study, and stop at the first violation."""
    clock = Clock(seconds)
    findings = Findings()
    has_float64 = stack.float64_members > 0
    _check_in_own_precision(stack, clock.share(0.3 if has_float64 else 0.9), findings)
    if findings.violation is None and not has_float64:
        findings.miss("all checks in float64")
        return findings
    if findings.violation is None:
        _check_in_float64(stack, clock.share(0.6), findings)
    if findings.violation is None:
        findings.add("stack-as-alone", members_as_alone(stack, clock, findings), stack)
    return findings


INVARIANT_OF = {
    "isolation-as-trained": ("causality", "isolation", "batch-of-one"),
    "derivative-as-trained": ("derivative",),
    "stack-as-alone": ("stacking",),
}
"""By check: the invariants whose known violations are violations of the check too."""


def with_known_cause(check: str, verdict: Verdict, stack: PlannedStack) -> Verdict:
    """Return a violation with the setting that is known to cause it, if there is one."""
    if verdict.state != "violated":
        return verdict
    for config in stack.configs:
        causes = known_violations(config)
        for invariant in INVARIANT_OF.get(check, ()):
            if invariant in causes:
                return replace(verdict, cause=causes[invariant])
    return verdict


def _check_in_own_precision(stack: PlannedStack, clock: Clock, findings: Findings) -> None:
    """Check the first step, and the isolation of sequences and members, in the precision of the study."""
    training = stack.training(stack.precision)
    spec = largest_batch(training)
    findings.sizes = (
        f"{counted(len(stack.seeds), 'member')}, {counted(spec.shape.rows, 'sequence')} of up to "
        f"{spec.shape.target_time} target tokens, {stack.precision}"
    )
    forward = _forward(training, spec, clock.left / OWN_PASSES, findings)
    findings.add("trained-tensors", trained_tensors(forward), stack)
    if findings.violation:
        return
    findings.add("finite-as-trained", finite_step(training, spec, forward), stack)
    if findings.violation:
        return
    move_parameters(training.model)
    _check_isolation(stack, training, forward, clock, findings)


def _check_in_float64(stack: PlannedStack, clock: Clock, findings: Findings) -> None:
    """Check isolation and gradients in float64, in which rounding hides nothing."""
    members = stack.float64_members
    if members < len(stack.seeds):
        findings.miss(f"more than {members} of {len(stack.seeds)} members in float64")
    part = stack.chosen(range(members))
    training = part.training("float64")
    move_parameters(training.model)
    spec = largest_batch(training)
    forward = _forward(training, spec, clock.left / 40, findings)
    pass_seconds = forward.measured_seconds() * spec.shape.rows / forward.batch.labels.shape[1]
    findings.step_seconds = PASSES_OF_A_STEP * pass_seconds
    _check_isolation(part, training, forward, clock.share(0.6), findings)
    if findings.violation:
        return
    if any(not attention.style.projects for attention in training.model.attentions):
        reason = "activations of 1e9 leave too few digits to measure a slope"
        findings.add("derivative-as-trained", does_not_apply(reason), stack)
        return
    verdict, checked, number = derivative(forward, clock)
    if checked < number:
        findings.miss(
            f"gradients of {number - checked} of {number} parameters of plugins one by one"
        )
    findings.add("derivative-as-trained", verdict, stack)


def _check_isolation(
    stack: PlannedStack, training: StackTraining, forward: Forward, clock: Clock, findings: Findings
) -> None:
    """Check the isolation of tokens, sequences and members in training and in evaluation."""
    precision = training.train.precision
    is_causal = torch.tensor([hides_future(config) for config in stack.configs])
    evaluation = _evaluation(training, clock.left / OWN_PASSES, findings)
    for passes, fraction in ((forward, 0.5), (evaluation, 1.0)):
        checked = isolation(passes, is_causal, BOUNDS[precision], clock.share(fraction))
        where = f"{passes.mode}, {precision}"
        findings.add("isolation-as-trained", checked.verdict, stack, where)
        if checked.verdict.state == "violated":
            return
        is_complete = checked.covered == checked.positions or not bool(is_causal.any())
        is_most_exact = precision == "float64" or stack.float64_members == 0
        if is_most_exact and not is_complete:
            findings.miss(
                f"{checked.positions - checked.covered} of {checked.positions} positions in {passes.mode}"
            )


def _forward(
    training: StackTraining, spec: BatchSpec, seconds: float, findings: Findings
) -> Forward:
    """Return the passes of training over a batch, or over as many of its sequences as the time allows."""
    batch = training.splits["train"].batch(
        spec.rows, spec.shape.source_time, spec.shape.target_time
    )
    return _fitting(Forward(training.model, batch, training=True), seconds, findings)


def _evaluation(training: StackTraining, seconds: float, findings: Findings) -> Forward:
    """Return the passes of an evaluation over the largest batch of the validation split."""
    split = training.splits["valid"]
    batches = split.padded_batches(training.config.evaluate.batch_size)
    rows = max(batches, key=lambda rows: len(rows) * sum(split.times(rows)))
    batch = split.batch(rows.expand(training.model.members, -1), *split.times(rows))
    return _fitting(Forward(training.model, batch, training=False), seconds, findings)


def _fitting(forward: Forward, seconds: float, findings: Findings) -> Forward:
    fitting = forward.fitting(seconds)
    rows = forward.batch.labels.shape[1]
    checked = fitting.batch.labels.shape[1]
    if checked < rows:
        precision = forward.model.config.train.precision
        findings.miss(f"more than {checked} of {rows} sequences in {forward.mode}, {precision}")
    return fitting


def largest_batch(training: StackTraining) -> BatchSpec:
    """Return the batch with the most tokens among the first batches of the first epoch."""
    seeds = [member.seed for member in training.progress.members]
    batches = islice(training.batches.of_epoch(seeds, 0), MAX_BATCHES)
    rows, source_time, target_time = max(batches, key=_tokens)
    return training.batch_spec(rows, source_time, target_time)


def _tokens(batch: tuple[Tensor, int, int]) -> int:
    rows, source_time, target_time = batch
    return rows.shape[1] * (source_time + target_time)


def hides_future(config: RunConfig) -> bool:
    """Return whether every mask over target tokens is meant to hide later tokens."""
    roles = ["decoder"]
    if "cross" in config.roles and key_sides(config)["cross"] == "target":
        roles.append("cross")
    patterns = [(role, chosen) for role in roles for chosen in config.pattern("masking", role)]
    return all(
        hides(find_masking(chosen.name)(chosen.options), "future", role)
        for role, chosen in patterns
    )


def finite_step(training: StackTraining, spec: BatchSpec, forward: Forward) -> Verdict:
    """Losses and gradients of the first step are finite, on the sequences of the passes."""
    rows = spec.rows[:, : forward.batch.labels.shape[1]]
    labels = training.splits["train"].num_target_tokens(rows)
    shape = spec.shape._replace(rows=rows.shape[1], num_target_tokens=labels)
    training.clear_gradients()
    training.model.train()
    training.model.dropout_rng.set_step(0)
    losses = training.gradients(rows, shape)
    gradients = [value.grad for value in training.parameters if value.grad is not None]
    wrong = sum(int((~tensor.isfinite()).sum()) for tensor in (losses, *gradients))
    training.clear_gradients()
    return within(
        wrong,
        "numbers of the losses and gradients of the first step that are not finite",
        bound=0.0,
    )


def members_as_alone(stack: PlannedStack, clock: Clock, findings: Findings) -> Verdict:
    """Train the stack, and then some of its members alone, for a few steps in float64, and compare the weights."""
    if stack.float64_members == 1:
        return does_not_apply("one member, in the stack or in the memory of the check")
    together = stack.chosen(range(stack.float64_members))
    training = together.training("float64")
    steps = min(STEPS, training.steps)
    if findings.step_seconds > clock.left / 4:
        findings.miss("training steps of the stack against its members alone")
        return does_not_apply("a training step takes too long")
    done = training.train_steps(steps, lambda: clock.left > findings.step_seconds * 2)
    if done < steps:
        findings.miss(f"steps {done + 1} to {steps} of the stack against its members alone")
    differences = []
    order = _spread(len(together.seeds))
    for number, member in enumerate(order):
        if number and clock.left <= 0:
            findings.miss(f"{len(order) - number} of {len(order)} members alone")
            break
        alone = together.chosen([member]).training("float64")
        alone.train_steps(done)
        expected = alone.model.member_state(0)
        for name, value in training.model.member_state(member).items():
            differences.append(_relative_difference(value, expected[name]))
    quantity = f"relative difference between weights after {done} steps in the stack and alone"
    return within(differences, quantity, bound=CLOSE)


def _spread(members: int) -> list[int]:
    """Return at most four members: the first, the last and two between."""
    return sorted({0, members // 3, 2 * members // 3, members - 1})


def _relative_difference(value: Tensor, expected: Tensor) -> float:
    if not value.numel():
        return 0.0
    both = torch.isnan(value) & torch.isnan(expected)
    difference = (value - expected).abs().where(~both, 0.0)
    return float(difference.max() / expected.nan_to_num().abs().max().clamp(min=1.0))
