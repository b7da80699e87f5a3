"""Arithmetic: loss, gradients and finite differences, precisions, finite numbers, and dropout in training only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from headtohead.model.batch import IGNORE_INDEX
from headtohead.model.loss import loss_gradients
from headtohead.model.transformer import Transformer
from headtohead.schema.run_config import RunConfig
from headtohead.testing.extremum import largest_logit_change, largest_number
from headtohead.testing.invariant import invariant
from headtohead.testing.invariants.parity import gradients
from headtohead.testing.subject import Lengths, SentenceBatch, Subject, attention_of, explicit_forward, forward
from headtohead.testing.verdict import Verdict, beyond, does_not_apply, violated, within, worst


@invariant("loss")
def smoothed_loss_equals_torch_cross_entropy(subject: Subject) -> Verdict:
    """The label-smoothed mean token loss of each member and its gradients equal those of torch.nn.CrossEntropyLoss."""
    model, sentences = subject.model, subject.sentences
    with torch.no_grad():
        memory = model.encode(sentences.source, sentences.source_lengths)
        output = model.decode(sentences.target, sentences.target_lengths, memory, sentences.source_lengths)
    labels = sentences.target.where(sentences.target_nonpad, IGNORE_INDEX).flatten(1)
    num_labels = sentences.target_nonpad.flatten(1).sum(1).to(output.dtype)
    weight, bias = model.output_map
    leaves = [tensor.detach().requires_grad_() for tensor in (output.flatten(1, 2), weight, bias) if tensor is not None]
    differences = []
    for smoothing in (0.0, 0.1):
        hidden, matrix, *shift = leaves
        result = loss_gradients(hidden, matrix, shift[0] if shift else None, labels, num_labels, smoothing)
        logits = sum(shift, hidden @ matrix)
        cross_entropy = torch.nn.CrossEntropyLoss(label_smoothing=smoothing)
        expected = torch.stack([cross_entropy(*member) for member in zip(logits, labels, strict=True)])
        gradients = torch.autograd.grad(expected.sum(), leaves)
        found = (result.hidden, result.weight, result.bias)
        for value, reference in zip((result.losses, *found), (expected.detach(), *gradients), strict=False):
            assert value is not None
            differences.append(float((value - reference).abs().max()))
    return within(largest_number(differences), "difference from torch.nn.CrossEntropyLoss")


STEP = 1e-7
CLOSE = 1e-4
"""Relative difference between slope and gradient; a kink of ReLU between the steps costs less."""


@invariant("derivative")
def gradients_equal_finite_differences(subject: Subject) -> Verdict:
    """Along random directions, the gradient is the slope of the logits."""
    if any(not subject.attention(role).style.projects for role in subject.roles):
        return does_not_apply("activations of 1e9 leave too few digits to measure a slope")
    difference = _relative_difference(subject, 37)
    if not difference <= CLOSE:
        # A kink of ReLU between the two steps is no error, and is absent along a second direction.
        difference = min(difference, _relative_difference(subject, 41))
    return within(difference, "relative difference between slope and gradient along a random direction", CLOSE)


def _relative_difference(subject: Subject, seed: int) -> float:
    model = subject.build(subject.seeds)
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(subject.reference_logits.shape, generator=generator, dtype=torch.float64)
    weights = weights * subject.sentences.target_nonpad.unsqueeze(-1)
    direction = {
        name: torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        for name, parameter in model.named_parameters()
    }
    gradient = gradients(model, forward(model, subject.sentences), weights)
    expected = sum(float((gradient[name] * direction[name]).sum()) for name in direction)
    ahead = _weighted_logits_after_step(subject, model, direction, STEP, weights)
    behind = _weighted_logits_after_step(subject, model, direction, -2 * STEP, weights)
    slope = (ahead - behind) / (2 * STEP)
    return abs(slope - expected) / max(1.0, abs(expected))


@torch.no_grad()
def _weighted_logits_after_step(
    subject: Subject, model: Transformer, direction: dict[str, Tensor], step: float, weights: Tensor
) -> float:
    for name, parameter in model.named_parameters():
        parameter.add_(step * direction[name])
    return float((forward(model, subject.sentences) * weights).sum())


ROUNDING = 1e-11
"""Far above the rounding error of float64 in a small model, far below that of a float32 constant."""

SINGLE = 1e-2
"""Largest relative difference between float32 and float64 logits."""


@invariant("precision")
def nothing_is_computed_in_single_precision(subject: Subject) -> Verdict:
    """Converting every float32 number to float64 changes no logits of a float64 model."""
    with _float64_everywhere():
        model = Transformer(subject.config, subject.seeds, *subject.vocab_sizes).double().eval()
        _copy_weights(model, subject.model)
        with torch.no_grad():
            converted = [path(model, subject.sentences) for path in _PATHS]
    with torch.no_grad():
        original = [path(subject.model, subject.sentences) for path in _PATHS]
    return worst(
        *(
            within(
                largest_logit_change(
                    first - second, subject.sentences.target_nonpad, "computing float32 numbers in float64"
                ),
                "change of logits by computing float32 numbers in float64",
                ROUNDING,
            )
            for first, second in zip(converted, original, strict=True)
        )
    )


@invariant("any-device")
def every_precision_and_the_meta_device_work(subject: Subject) -> Verdict:
    """The model runs in float32, in bfloat16 and on the meta device.

    A tensor that stays on the CPU when the model moves to the meta device would also stay on the
    CPU when it moves to a GPU.
    """
    verdicts = [_meta_device(subject)]
    single = Transformer(subject.config, subject.seeds, *subject.vocab_sizes).eval()
    single.load_state_dict(subject.model.state_dict())
    logits = forward(single, subject.sentences)
    if logits.dtype != torch.float32:
        return violated(f"float32 weights give {str(logits.dtype).removeprefix('torch.')} logits")
    size = max(1.0, float(subject.reference_logits.abs().max()))
    difference = (logits.detach() - subject.reference_logits) / size
    change = largest_logit_change(difference, subject.sentences.target_nonpad, "single precision")
    verdicts.append(within(change, "relative difference between float32 and float64 logits", SINGLE))
    logits.sum().backward()
    with torch.autocast("cpu", torch.bfloat16):
        half = forward(single, subject.sentences)
    half.float().sum().backward()
    wrong = float((~half[subject.sentences.target_nonpad].isfinite()).sum())
    verdicts.append(within(wrong, "non-finite logits in bfloat16", 0.0))
    return worst(*verdicts)


def _meta_device(subject: Subject) -> Verdict:
    model = Transformer(subject.config, None, *subject.vocab_sizes).eval()
    sentences = subject.sentences
    batch = (sentences.source, sentences.source_lengths, sentences.target, sentences.target_lengths)
    with torch.no_grad():
        logits = model(*(tensor[:1].to("meta") for tensor in batch))
    expected = subject.reference_logits[:1].shape
    if logits.shape != expected or not logits.is_meta:
        return violated(
            f"with inputs on the meta device, logits are {list(logits.shape)} on {logits.device}, "
            f"expected {list(expected)} on meta"
        )
    return Verdict("holds", 0.0, "shape of logits on the meta device")


_PATHS: tuple[Callable[[Transformer, SentenceBatch], Tensor], ...] = (forward, explicit_forward)


def _copy_weights(model: Transformer, original: Transformer) -> None:
    """Copy the parameters of another model, and its buffers that hold random numbers."""
    buffers = dict(original.named_buffers())
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), original.parameters(), strict=True):
            parameter.copy_(value)
        for name, buffer in model.named_buffers():
            source = buffers[name]
            computed = buffer.shape == source.shape and bool(
                ((buffer - source).abs() <= 1e-5 * (1 + source.abs())).all()
            )
            if not computed:
                buffer.copy_(source)


@contextmanager
def _float64_everywhere() -> Iterator[None]:
    """Replace every conversion to a narrower type, and the default type, by float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Float64Mode():
            yield
    finally:
        torch.set_default_dtype(before)


_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_CASTS: Mapping[Callable[..., Any], Callable[..., Any]] = {
    torch.Tensor.float: torch.Tensor.double,
    torch.Tensor.half: torch.Tensor.double,
    torch.Tensor.bfloat16: torch.Tensor.double,
}


class _Float64Mode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        positional = [_widened(argument) for argument in args]
        named = {name: _widened(argument) for name, argument in (kwargs or {}).items()}
        return _CASTS.get(func, func)(*positional, **named)


def _widened(argument: Any) -> Any:
    narrow = isinstance(argument, torch.dtype) and argument in _NARROW
    return torch.float64 if narrow else argument


LARGE = 1000.0
"""Size of activations that an attention must handle in float32; exp overflows from 89."""


@invariant("finite")
def numbers_stay_finite(subject: Subject) -> Verdict:
    """Outputs and gradients are finite for one token, and in float32 for large activations."""
    single = Transformer(subject.config, subject.seeds, *subject.vocab_sizes).eval()
    single.load_state_dict(subject.model.state_dict())
    verdicts = [_large_activations(subject, single, role) for role in subject.roles]
    if subject.only_length is None:
        verdicts.append(_one_token(subject))
    return worst(*verdicts)


def _one_token(subject: Subject) -> Verdict:
    members = len(subject.seeds)
    ones = Lengths(((1,),) * members, ((1,),) * members)
    logits = forward(subject.model, subject.random_sentences(ones))
    gradients = torch.autograd.grad(
        logits.sum(), list(subject.model.parameters()), allow_unused=True, materialize_grads=True
    )
    return _all_finite((logits, *gradients), "non-finite logits and gradients of one source token and one target token")


def _large_activations(subject: Subject, model: Transformer, role: str) -> Verdict:
    attention = attention_of(model, role)
    x, memory = (None if value is None else (value * LARGE).float() for value in subject.activations(role))
    assert x is not None
    context = subject.attention_context(role, mask=subject.mask(role))
    tensors: list[torch.Tensor] = []
    for record in (None, lambda name, value: None):
        output = attention(x, memory, context, None, record)
        tensors.append(output.detach())
        if parameters := list(attention.parameters()):
            tensors += torch.autograd.grad(output.sum(), parameters, allow_unused=True, materialize_grads=True)
    return _all_finite(tuple(tensors), f"{role}: non-finite outputs and gradients at activations of size 1000")


def _all_finite(tensors: tuple[torch.Tensor, ...], quantity: str) -> Verdict:
    wrong = sum(int((~tensor.isfinite()).sum()) for tensor in tensors)
    return within(float(wrong), quantity, 0.0, counterexample=f"{wrong} {quantity}")


RATE = 0.5
FIELDS = ("dropout_embedding", "dropout_attention", "dropout_ffn", "dropout_residual")


@invariant("evaluation")
def dropout_acts_in_training_only(subject: Subject) -> Verdict:
    """Each dropout rate changes no logits in evaluation and some logits in training."""
    verdicts: list[Verdict] = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(31)
        for field in FIELDS:
            verdicts += _check(subject, field)
    return worst(*verdicts)


def _check(subject: Subject, field: str) -> list[Verdict]:
    model = Transformer(_with_rate(subject.config, field), subject.seeds, *subject.vocab_sizes)
    model.double().load_state_dict(subject.model.state_dict())
    model.eval()
    verdicts = [
        within(
            largest_logit_change(
                logits - subject.reference_logits, subject.sentences.target_nonpad, f"{field} of {RATE}"
            ),
            f"change of logits in evaluation by {field}",
        )
        for logits in (forward(model, subject.sentences), explicit_forward(model, subject.sentences))
    ]
    if any(not subject.attention(role).style.projects for role in subject.roles):
        return verdicts  # among activations of 1e9, a change may be below every threshold
    model.train()
    parameters = {name for name, _ in model.named_parameters()}
    buffers = {name: value.clone() for name, value in model.state_dict().items() if name not in parameters}
    first, second = (_training_logits(subject, model, buffers) for _ in range(2))
    change = float((first - second).abs().max())
    return [*verdicts, beyond(change, f"change of logits between two training passes by {field}")]


def _with_rate(config: RunConfig, field: str) -> RunConfig:
    model = config.model.model_copy(update={field: RATE})
    return config.model_copy(update={"model": model})


def _training_logits(subject: Subject, model: Transformer, buffers: dict[str, Tensor]) -> Tensor:
    """Return the logits of a training pass at non-padding positions.

    The buffers hold the state of sampled positions; restoring them leaves dropout as the only
    difference between two passes.
    """
    if buffers:
        model.load_state_dict(buffers, strict=False)
    return forward(model, subject.sentences)[subject.sentences.target_nonpad]
