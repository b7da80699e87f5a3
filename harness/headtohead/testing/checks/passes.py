"""Repeatable passes of a stack over a batch, and what a change of tokens or parameters changes in them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from headtohead.model.batch import Batch
from headtohead.model.precision import matmul_precision
from headtohead.model.transformer import Transformer
from headtohead.plugins.built_in import MODULES
from headtohead.plugins.component import Component
from headtohead.plugins.member_rng import PerMemberRNG
from headtohead.testing.checks.clock import Clock, seconds_of
from headtohead.testing.verdict import Verdict, violated, within

OUTPUTS = ("member", "sequence", "position")
"""Axes of the changes of a decoder's output."""

MOVE = 1e-7
"""Relative move of parameters in a finite difference: so small that a kink of ReLU is rarely between two points."""

SLOPE = 1e-4
"""Largest difference between a slope and a gradient, relative to the slope."""

ROUNDING = 1e-16
"""Rounding error of a sum of float64 numbers, relative to the sum of their absolute values."""

DIRECTIONS = 3
"""Number of directions, of which one must agree: a kink between the points of one is no error."""

LARGE = 4.0
"""Factor of all weights in one of the passes: the size that weights may reach in training."""

MAX_OWN_TENSORS = 8
"""Number of parameters of outside plugins whose gradients are checked one by one."""


class Forward:
    """The decoder's output on a batch, with the same dropout masks and sampled positions in every call.

    Args:
        model: The stack.
        batch: The batch.
        training: Whether passes are those of training, with gradients and dropout, or those of evaluation.
    """

    def __init__(self, model: Transformer, batch: Batch, training: bool) -> None:
        self.model = model.train(training)
        self.batch = batch
        self.training = training
        streams = [module for module in model.modules() if isinstance(module, PerMemberRNG)]
        self._streams = [(stream, stream.state.clone()) for stream in streams]

    @property
    def mode(self) -> str:
        """``training`` or ``evaluation``."""
        return "training" if self.training else "evaluation"

    def __call__(self, batch: Batch | None = None) -> Tensor:
        """Return ``[member, batch, target time, d_model]``, by default of the batch itself."""
        batch = batch or self.batch
        for stream, state in self._streams:
            stream.state.copy_(state)
        dropout = self.model.dropout_rng
        dropout.set_step(0)
        dropout.start_microbatch(batch.shape)
        # Code can depend on the mode and on whether gradients are computed.
        self.model.train(self.training)
        with torch.set_grad_enabled(self.training), matmul_precision(self.model):
            output = self.model.hidden(batch)
        dropout.start_microbatch()
        return output

    def with_rows(self, rows: int) -> Forward:
        """Return the passes over the first sequences of the batch."""
        return Forward(self.model, self.batch.part(slice(rows)), self.training)

    def measured_seconds(self) -> float:
        """Compute a pass and return its processor time."""
        return seconds_of(self)

    def fitting(self, seconds: float) -> Forward:
        """Return the passes over as many sequences as a pass computes in a time, at least two."""
        rows = self.batch.labels.shape[1]
        tried = min(2, rows)
        self.with_rows(tried)()  # the first pass allocates memory
        while tried < rows:
            part = self.with_rows(tried)
            if 2 * part.measured_seconds() > seconds:
                return part
            tried = min(2 * tried, rows)
        return self


@dataclass(frozen=True)
class Tokens:
    """The target tokens of a batch, as the model reads them.

    A decoder-only model reads source and target as one sequence.

    Args:
        name: Field of the batch.
        ids: ``[member, batch, time]``.
        starts: Position of the first target token, ``[member, batch, 1]``.
        ends: Position after the last target token, ``[member, batch, 1]``.
    """

    name: str
    ids: Tensor
    starts: Tensor
    ends: Tensor

    @classmethod
    def of(cls, model: Transformer, batch: Batch) -> Tokens:
        """Return the target tokens of a batch."""
        lengths = batch.target_lengths.unsqueeze(-1)
        if "encoder" in model.roles:
            return cls(
                "decoder_input_ids", batch.decoder_input_ids, torch.zeros_like(lengths), lengths
            )
        ends = batch.source_lengths.unsqueeze(-1)
        return cls("source", batch.source, ends - lengths, ends)


def changed_from(
    model: Transformer, batch: Batch, points: Tensor, is_changed: Tensor, seed: int
) -> Batch:
    """Return the batch with other target tokens from a position on.

    Args:
        model: The stack.
        batch: The batch.
        points: The first changed target position, ``[member, batch]``.
        is_changed: Whether a sequence is changed, ``[member, batch]``.
        seed: Seed of the other tokens, which are tokens of the batch.
    """
    tokens = Tokens.of(model, batch)
    positions = torch.arange(tokens.ids.shape[-1])
    mask = (positions >= tokens.starts + points.unsqueeze(-1)) & (positions < tokens.ends)
    mask &= is_changed.unsqueeze(-1)
    return replace(batch, **{tokens.name: other_tokens(tokens.ids, mask, seed)})


def with_other_sources(batch: Batch, is_changed: Tensor, seed: int) -> Batch:
    """Return the batch with other source tokens in some sequences of an encoder-decoder."""
    positions = torch.arange(batch.source.shape[-1])
    mask = (positions < batch.source_lengths.unsqueeze(-1)) & is_changed.unsqueeze(-1)
    return replace(batch, source=other_tokens(batch.source, mask, seed))


def other_tokens(ids: Tensor, mask: Tensor, seed: int) -> Tensor:
    """Return ids with another id of the same tensor at every position of a mask."""
    used = ids.unique()
    if len(used) == 1:
        return ids.where(~mask, ids + 1)
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(1, len(used), ids.shape, generator=generator)
    other = used[(torch.searchsorted(used, ids.contiguous()) + steps) % len(used)]
    return ids.where(~mask, other)


@dataclass
class Isolation:
    """The verdict on the isolation of tokens, and how many positions were changed."""

    verdict: Verdict
    covered: int
    positions: int


def isolation(forward: Forward, is_causal: Tensor, bound: float, clock: Clock) -> Isolation:
    """Change target tokens of half of the sequences at a time, and compare what must not change.

    Outputs of the other sequences and members must not change. With a causal mask, outputs before the first changed
    token must not change either. The passes continue until every position was the first changed position of some
    sequence, or the time is over.

    Args:
        forward: The passes.
        is_causal: Whether the mask of a member hides later target tokens, ``[member]``.
        bound: Largest change by rounding, relative to the largest output.
        clock: Limit of time.
    """
    model, batch = forward.model, forward.batch
    before = forward().detach()
    longest = int(batch.target_lengths.max())
    covered = torch.zeros(longest, dtype=torch.bool)
    covered[0] = True  # no output is earlier than the first token
    result = Isolation(_repeated(forward, before), 0, longest - 1)
    if result.verdict.state == "violated":
        return result
    quantity = (
        "relative change of outputs that a later token, another sequence or another member causes "
        f"({forward.mode}, {model.config.train.precision})"
    )
    for number, changed, allowed in _changes(forward, is_causal, covered):
        result.verdict = within(
            _forbidden_change(forward, before, changed, allowed), quantity, OUTPUTS, bound
        )
        result.covered = int(covered[1:].sum())
        if result.verdict.state == "violated":
            return result
        if clock.left <= 0 and number >= 1:
            break
    return _with_large_weights(forward, is_causal, bound, quantity, result)


def _forbidden_change(forward: Forward, before: Tensor, changed: Batch, allowed: Tensor) -> Tensor:
    """Return the changes of outputs that may not change, relative to the largest output, ``[member, batch, time]``."""
    change = (forward(changed).detach() - before).abs().amax(-1).where(~allowed, 0.0)
    return change.double() / max(1.0, float(before.abs().max()))


def _repeated(forward: Forward, before: Tensor) -> Verdict:
    """Compare two equal passes: a pass must not change the state of the model."""
    again = forward().detach()
    if torch.equal(before, again):
        return within(0.0, "difference between two equal passes", bound=0.0)
    difference = (before - again).abs().amax(-1)
    return within(difference, f"difference between two equal passes ({forward.mode})", OUTPUTS, 0.0)


def _changes(
    forward: Forward, is_causal: Tensor, covered: Tensor
) -> Iterator[tuple[int, Batch, Tensor]]:
    """Yield changed batches by number, with a mask of the outputs that may change, ``[member, batch, time]``.

    ``covered`` is updated with the first changed positions.
    """
    model, batch = forward.model, forward.batch
    if "encoder" in model.roles:
        for parity in (0, 1):
            is_changed = _half(batch, parity)
            allowed = _all_positions(batch, is_changed)
            yield 0, with_other_sources(batch, is_changed, parity), allowed
    number = 0
    lengths = batch.target_lengths
    positions = torch.arange(batch.labels.shape[-1])
    while number < 2 or (bool(is_causal.any()) and not bool(covered.all())):
        is_changed = _half(batch, number % 2)
        points = _points(lengths, is_changed, covered)
        before = len(covered) - int(covered.sum())
        covered[points[is_changed & (lengths > 1)]] = True
        may_change = is_changed.unsqueeze(-1) & (positions >= points.unsqueeze(-1))
        allowed = torch.where(
            is_causal.view(-1, 1, 1), may_change, _all_positions(batch, is_changed)
        )
        yield (
            number,
            changed_from(model, batch, points, is_changed, number),
            allowed | _padding(batch),
        )
        number += 1
        if number > 2 and len(covered) - int(covered.sum()) == before:
            return  # no sequence of this half is long enough


def _half(batch: Batch, parity: int) -> Tensor:
    """Return every second sequence of every member, ``[member, batch]``; all of a single sequence."""
    members, rows = batch.target_lengths.shape
    if members * rows == 1:
        return torch.ones(1, 1, dtype=torch.bool)
    return (torch.arange(members).unsqueeze(-1) + torch.arange(rows)) % 2 == parity


def _points(lengths: Tensor, is_changed: Tensor, covered: Tensor) -> Tensor:
    """Return the first changed position of each sequence, ``[member, batch]``: one that is not covered yet, if any."""
    points = torch.ones_like(lengths)
    missing = torch.nonzero(~covered).flatten().tolist()
    cells = torch.nonzero(is_changed).tolist()
    cells.sort(key=lambda cell: int(lengths[cell[0], cell[1]]), reverse=True)
    for member, row in cells:
        longest = int(lengths[member, row])
        # The latest positions first: the longest sequences alone have them.
        if missing and missing[-1] < longest:
            points[member, row] = missing.pop()
        elif longest > 1:
            points[member, row] = 1 + (member + row) % (longest - 1)
    return points


def _all_positions(batch: Batch, is_changed: Tensor) -> Tensor:
    return is_changed.unsqueeze(-1).expand(batch.labels.shape) | _padding(batch)


def _padding(batch: Batch) -> Tensor:
    return torch.arange(batch.labels.shape[-1]) >= batch.target_lengths.unsqueeze(-1)


@torch.no_grad()
def _scale_weights(model: Transformer, factor: float) -> None:
    for parameter in model.parameters():
        parameter.mul_(factor)


def _with_large_weights(
    forward: Forward, is_causal: Tensor, bound: float, quantity: str, result: Isolation
) -> Isolation:
    """Repeat one change with larger weights, and so with larger activations."""
    _scale_weights(forward.model, LARGE)
    try:
        before = forward().detach()
        covered = torch.zeros(int(forward.batch.target_lengths.max()), dtype=torch.bool)
        _, changed, allowed = next(_changes(forward, is_causal, covered))
        change = _forbidden_change(forward, before, changed, allowed)
    finally:
        _scale_weights(forward.model, 1 / LARGE)
    if not bool(before.isfinite().all()):
        return result  # whether numbers stay finite is another check
    verdict = within(change, f"{quantity}, with large weights", OUTPUTS, bound)
    if verdict.state == "violated":
        result.verdict = verdict
    return result


def trained_tensors(forward: Forward) -> Verdict:
    """Every tensor that a backward pass reaches must be a parameter of the model that is not frozen.

    Other tensors, such as one that a closure holds, are shared by all members, never updated and not saved.
    """
    names_by_id = {id(parameter): name for name, parameter in forward.model.named_parameters()}
    output = forward()
    after = dict(forward.model.named_parameters())
    if new := [name for name, parameter in after.items() if id(parameter) not in names_by_id]:
        return violated(
            f"'{new[0]}' is created in a forward pass, so it never trains; create it in build"
        )
    for tensor in _leaves(output):
        if id(tensor) not in names_by_id:
            return violated(
                f"a backward pass reaches a tensor {list(tensor.shape)} that is no parameter of the model, so it "
                "never trains, is shared by all members and is not saved; create it in build with self.parameter"
            )
    return within(0.0, "tensors outside the model that a backward pass reaches", bound=0.0)


def _leaves(output: Tensor) -> Iterator[Tensor]:
    """Yield the leaf tensors of the graph of an output."""
    waiting = [output.grad_fn]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        waiting += [following for following, _ in node.next_functions]


def derivative(forward: Forward, clock: Clock) -> tuple[Verdict, int, int]:
    """Compare gradients with finite differences along random directions.

    First along a direction of all parameters, then along one of each parameter of an outside plugin.

    Returns:
        The verdict, the number of parameters of outside plugins that were checked alone, and their number.
    """
    model = forward.model
    generator = torch.Generator().manual_seed(37)
    parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
    weights = torch.randn(forward().shape, generator=generator, dtype=torch.float64)
    weights = weights.where(~_padding(forward.batch).unsqueeze(-1), 0.0)
    model.zero_grad()
    # A backward pass, and not torch.autograd.grad, so that hooks of gradients act as in training.
    (forward() * weights).sum().backward()
    slope = Slope(forward, weights, generator)
    verdict = slope.compare(parameters, "all parameters")
    outside = outside_parameters(model)
    checked = 0
    for name, parameter in list(outside.items())[:MAX_OWN_TENSORS]:
        if verdict.state == "violated" or clock.left <= 0:
            break
        verdict = slope.compare({name: parameter}, name)
        checked += 1
    model.zero_grad()
    return verdict, checked, len(outside)


@dataclass(frozen=True)
class Slope:
    """Finite differences of a weighted sum of outputs.

    Args:
        forward: The passes; parameters have the gradient of the sum.
        weights: The weights of the outputs.
        generator: Source of the directions.
    """

    forward: Forward
    weights: Tensor
    generator: torch.Generator

    def compare(self, parameters: dict[str, nn.Parameter], label: str) -> Verdict:
        """Return whether gradients equal the slope along a random direction of parameters.

        Of several directions, one must agree: a kink of ReLU between two points is no error.
        """
        smallest = min(self._difference(parameters) for _ in range(DIRECTIONS))
        quantity = (
            f"relative difference between slope and gradient along a random direction of {label}"
        )
        return within(smallest, quantity, bound=SLOPE)

    def _difference(self, parameters: dict[str, nn.Parameter]) -> float:
        directions = []
        expected = 0.0
        squares = []
        for parameter in parameters.values():
            noise = torch.randn(parameter.shape, generator=self.generator, dtype=torch.float64)
            scale = max(float(parameter.detach().square().mean().sqrt()), 1e-3)
            directions.append((parameter, noise * scale))
            if parameter.grad is not None:
                part = float((parameter.grad * noise).sum()) * scale
                expected += part
                squares.append(part * part)
        ahead = self._moved(directions, MOVE)
        behind = self._moved(directions, -MOVE)
        slope = (ahead - behind) / (2 * MOVE)
        rounding = ROUNDING * float(self.weights.abs().sum()) / MOVE
        excess = max(0.0, abs(slope - expected) - rounding)
        return excess / max(abs(slope), math.sqrt(sum(squares)), sys.float_info.min)

    @torch.no_grad()
    def _moved(self, directions: Sequence[tuple[nn.Parameter, Tensor]], step: float) -> float:
        originals = [parameter.clone() for parameter, _ in directions]
        for parameter, direction in directions:
            parameter.add_(step * direction)
        value = float((self.forward().detach() * self.weights).sum())
        for (parameter, _), original in zip(directions, originals, strict=True):
            parameter.copy_(original)
        return value


def outside_parameters(model: Transformer) -> dict[str, nn.Parameter]:
    """Return the trained parameters of components that headtohead does not provide."""
    parameters: dict[str, nn.Parameter] = {}
    for path, module in model.named_modules():
        if not isinstance(module, Component) or type(module).__module__ in MODULES:
            continue
        for name, parameter in module.named_parameters(prefix=path):
            if parameter.requires_grad:
                parameters[name] = parameter
    return parameters
