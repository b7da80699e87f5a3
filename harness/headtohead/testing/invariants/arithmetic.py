"""Arithmetic: loss, gradients and finite differences, precisions, finite numbers, and dropout in training only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headtohead.model.batch import IGNORE_INDEX
from headtohead.model.layers import unshared
from headtohead.model.loss import LossTerms, backward_loss, loss_gradients
from headtohead.model.transformer import Transformer
from headtohead.schema.run_config import changed
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import (
    Subject,
    attention_of,
    explicit_forward,
    first_layer,
    forward,
    gradients,
)
from headtohead.testing.verdict import (
    LOGITS,
    Verdict,
    beyond,
    does_not_apply,
    logit_changes,
    violated,
    within,
    worst,
)

STEP = 1e-7
CLOSE = 1e-4
"""Relative difference between slope and gradient; a kink of ReLU between the steps costs less."""

ROUNDING = 1e-11
"""Far above the rounding error of float64 in a small model, far below that of a float32 constant."""

SINGLE = 1e-2
"""Largest relative difference between float32 and float64 logits."""

LARGE = 1000.0
"""Size of activations that an attention must handle in float32; exp overflows from 89."""

RATE = 0.5
HALF = 0.5
"""Fraction of the target tokens that have a label."""

DROPOUT_FIELDS = ("dropout_embedding", "dropout_attention", "dropout_ffn", "dropout_residual")
PATHS = (forward, explicit_forward)


@invariant("loss", scope="entry")
def smoothed_loss_equals_torch_cross_entropy(subject: Subject) -> Verdict:
    """The label-smoothed mean token loss of each member and its gradients equal those of torch.nn.CrossEntropyLoss."""
    sentences = subject.sentences
    with torch.no_grad():
        output = subject.model.hidden(subject.model.batch_of(*sentences.tensors))
    labels = sentences.target.where(sentences.target_nonpad, IGNORE_INDEX).flatten(1)
    num_labels = sentences.target_nonpad.flatten(1).sum(1).to(output.dtype)
    weight, bias = subject.model.output_map
    hidden = output.flatten(1, 2).detach().requires_grad_()
    weight = weight.detach().requires_grad_()
    leaves = [hidden, weight]
    if bias is not None:
        bias = bias.detach().requires_grad_()
        leaves.append(bias)
    differences = []
    for smoothing in (0.0, 0.1):
        result = loss_gradients(hidden, weight, bias, labels, num_labels, LossTerms(smoothing))
        logits = hidden @ weight
        if bias is not None:
            logits = logits + bias
        cross_entropy = torch.nn.CrossEntropyLoss(label_smoothing=smoothing)
        by_member = zip(logits, labels, strict=True)
        losses = torch.stack([cross_entropy(*member) for member in by_member])
        differences.append(float((result.losses - losses.detach()).abs().max()))
        computed = (result.hidden, result.weight, result.bias)
        by_autograd = torch.autograd.grad(losses.sum(), leaves)
        for gradient, expected in zip(computed, by_autograd, strict=False):
            assert gradient is not None
            differences.append(float((gradient - expected).abs().max()))
    return within(differences, "difference from torch.nn.CrossEntropyLoss")


@invariant("unlabelled", scope="entry")
def positions_without_a_label_have_no_gradient(subject: Subject) -> Verdict:
    """Losses and gradients are those of the labelled positions, with logits at all positions or at these alone."""
    model = subject.model
    sentences = subject.sentences
    generator = torch.Generator().manual_seed(43)
    chosen = torch.rand(sentences.target.shape, generator=generator) < HALF
    chosen[..., 0] = True
    labels = sentences.target.where(chosen & sentences.target_nonpad, IGNORE_INDEX)
    batch = replace(model.batch_of(*sentences.tensors), labels=labels)
    num_labels = batch.num_labels.sum(1).double()
    one_hot = torch.nn.functional.one_hot(labels.clamp(min=0), model.vocab_sizes.target)
    is_label = one_hot * (labels >= 0).unsqueeze(-1)
    logits = forward(model, sentences)
    z = subject.config.train.z_loss * logits.logsumexp(-1, keepdim=True).square()
    losses = ((z - logits.log_softmax(-1)) * is_label).flatten(1).sum(1) / num_labels
    expected = gradients(model, losses)
    differences = []
    for selects in (False, True):
        computed = backward_loss(model, batch, int(num_labels.max()), num_labels, 0.0, selects)
        differences.append(float((computed - losses.detach()).abs().max()))
        for name, parameter in model.named_parameters():
            gradient = parameter.grad
            if gradient is None:
                gradient = torch.zeros_like(parameter)
            differences.append(float((gradient - expected[name]).abs().max()))
        model.zero_grad()
    quantity = "difference from the loss of the labelled positions and its gradients"
    return within(differences, quantity)


@invariant("derivative", scope="entry")
def gradients_equal_finite_differences(subject: Subject) -> Verdict:
    """Along random directions, the gradient is the slope of the logits."""
    if any(not subject.attention(role).style.projects for role in subject.roles):
        return does_not_apply("activations of 1e9 leave too few digits to measure a slope")
    difference = _relative_difference(subject, 37)
    if not difference <= CLOSE:
        # A kink of ReLU between the two steps is no error, and is absent along a second direction.
        difference = min(difference, _relative_difference(subject, 41))
    return within(
        difference,
        "relative difference between slope and gradient along a random direction",
        bound=CLOSE,
    )


def _relative_difference(subject: Subject, seed: int) -> float:
    model = subject.build(subject.seeds)
    generator = torch.Generator().manual_seed(seed)
    weights = subject.random_weights(generator)
    direction: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        shape = parameter.shape
        direction[name] = torch.randn(shape, generator=generator, dtype=torch.float64)
    gradient = gradients(model, forward(model, subject.sentences), weights)
    expected = 0.0
    for name, step in direction.items():
        expected += float((gradient[name] * step).sum())

    @torch.no_grad()
    def after_step(step: float) -> float:
        for name, parameter in model.named_parameters():
            parameter.add_(step * direction[name])
        return float((forward(model, subject.sentences) * weights).sum())

    ahead = after_step(STEP)
    behind = after_step(-2 * STEP)  # from ahead
    slope = (ahead - behind) / (2 * STEP)
    return abs(slope - expected) / max(1.0, abs(expected))


@invariant("precision", scope="entry")
@torch.no_grad()
def nothing_is_computed_in_single_precision(subject: Subject) -> Verdict:
    """Converting every float32 number to float64 changes no logits of a float64 model."""
    original = [path(subject.model, subject.sentences) for path in PATHS]
    with _float64_everywhere():
        model = Transformer(subject.config, subject.seeds, *subject.vocab_sizes).double().eval()
        _copy_weights(model, subject.model)
        converted = [path(model, subject.sentences) for path in PATHS]
    quantity = "change of logits by computing float32 numbers in float64"
    verdicts = []
    for logits, reference in zip(converted, original, strict=True):
        change = logit_changes(logits - reference, subject.sentences.target_nonpad)
        verdicts.append(within(change, quantity, LOGITS, ROUNDING))
    return worst(*verdicts)


def _copy_weights(model: Transformer, original: Transformer) -> None:
    """Copy the parameters of another model, and its buffers that hold random numbers."""
    buffers = dict(original.named_buffers())
    for parameter, value in zip(model.parameters(), original.parameters(), strict=True):
        parameter.copy_(value)
    for name, buffer in model.named_buffers():
        source = buffers[name]
        if buffer.shape == source.shape:
            tolerance = 1e-5 * (1 + source.abs())
            if bool(((buffer - source).abs() <= tolerance).all()):
                continue  # computed from the configuration, with other rounding
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
_CASTS: Mapping[Callable[..., Any], Callable[..., Any]] = dict.fromkeys(
    (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16), torch.Tensor.double
)


class _Float64Mode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def widened(argument: Any) -> Any:
            if isinstance(argument, torch.dtype) and argument in _NARROW:
                return torch.float64
            return argument

        positional = [widened(argument) for argument in args]
        named = {name: widened(argument) for name, argument in (kwargs or {}).items()}
        return _CASTS.get(func, func)(*positional, **named)


@invariant("any-device", scope="entry")
def every_precision_and_the_meta_device_work(subject: Subject) -> Verdict:
    """The model runs in float32, in bfloat16 and on the meta device.

    A tensor that stays on the CPU when the model moves to the meta device would also stay on the
    CPU when it moves to a GPU.
    """
    with torch.no_grad():
        model = Transformer(subject.config, None, *subject.vocab_sizes).eval()
        on_meta = forward(model, subject.sentences.map(lambda tensor: tensor[:1].to("meta")))
    expected = subject.reference_logits[:1].shape
    if on_meta.shape != expected or not on_meta.is_meta:
        return violated(
            f"with inputs on the meta device, logits are {list(on_meta.shape)} on {on_meta.device}, "
            f"expected {list(expected)} on meta"
        )
    single = Transformer(subject.config, subject.seeds, *subject.vocab_sizes).eval()
    single.load_state_dict(subject.model.state_dict())
    logits = forward(single, subject.sentences)
    if logits.dtype != torch.float32:
        return violated(f"float32 weights give {str(logits.dtype).removeprefix('torch.')} logits")
    nonpad = subject.sentences.target_nonpad
    size = max(1.0, float(subject.reference_logits.abs().max()))
    difference = (logits.detach() - subject.reference_logits) / size
    change = logit_changes(difference, nonpad)
    logits.sum().backward()
    with torch.autocast("cpu", torch.bfloat16):
        half = forward(single, subject.sentences)
    half.float().sum().backward()
    return worst(
        within(change, "relative difference between float32 and float64 logits", LOGITS, SINGLE),
        _all_finite([half[nonpad]], "non-finite logits in bfloat16"),
    )


@invariant("finite", scope="entry")
def numbers_stay_finite(subject: Subject) -> Verdict:
    """Outputs and gradients are finite for one token, and in float32 for large activations."""
    float32_model = Transformer(subject.config, subject.seeds, *subject.vocab_sizes).eval()
    float32_model.load_state_dict(subject.model.state_dict())
    at_large = "non-finite outputs and gradients at activations of size 1000"
    verdicts = []
    for role in subject.config.entries("norm"):
        layer = first_layer(float32_model, role)
        x, _ = subject.activations(role)
        tokens = (LARGE * x[:, 0]).float()  # those of the first sentence of each member
        for part in (layer.feed_forward, layer.attention_branch.norm):
            module = unshared(part)
            tensors = _with_gradients(module, module(tokens))
            verdicts.append(_all_finite(tensors, at_large).in_role(role))
    for role in subject.roles:
        attention = attention_of(float32_model, role)
        x, memory = subject.activations(role)
        x = (LARGE * x).float()
        if memory is not None:
            memory = (LARGE * memory).float()
        context = subject.attention_context(role, mask=subject.mask(role))
        training_path_output, _ = attention(x, memory, context)
        # Recording selects the explicit path.
        explicit_output, _ = attention(x, memory, context, record=lambda name, value: None)
        tensors = _with_gradients(attention, training_path_output)
        tensors += _with_gradients(attention, explicit_output)
        verdicts.append(_all_finite(tensors, at_large).in_role(role))
    if subject.only_length is None:
        lengths = (((1, 1),),) * len(subject.seeds)  # a sentence per member
        logits = forward(subject.model, subject.random_sentences(lengths))
        at_one_token = "non-finite logits and gradients of one source token and one target token"
        verdicts.append(_all_finite(_with_gradients(subject.model, logits), at_one_token))
    return worst(*verdicts)


def _with_gradients(module: nn.Module, output: Tensor) -> list[Tensor]:
    """Return an output of a module, and the gradients of the module's parameters."""
    return [output.detach(), *gradients(module, output).values()]


def _all_finite(tensors: Sequence[Tensor], quantity: str) -> Verdict:
    wrong = sum(int((~tensor.isfinite()).sum()) for tensor in tensors)
    return within(wrong, quantity, bound=0.0)


@invariant("evaluation", scope="entry")
def dropout_acts_in_training_only(subject: Subject) -> Verdict:
    """Each dropout rate changes no logits in evaluation and some logits in training."""
    verdicts: list[Verdict] = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(31)
        for field in DROPOUT_FIELDS:
            verdicts += _dropout_verdicts(subject, field)
    return worst(*verdicts)


def _dropout_verdicts(subject: Subject, field: str) -> Iterator[Verdict]:
    config = changed(subject.config, model={field: RATE})
    model = Transformer(config, subject.seeds, *subject.vocab_sizes)
    model.double().load_state_dict(subject.model.state_dict())
    model.eval()
    nonpad = subject.sentences.target_nonpad
    for path in PATHS:
        difference = path(model, subject.sentences) - subject.reference_logits
        quantity = f"change of logits in evaluation by {field}"
        yield within(logit_changes(difference, nonpad), quantity, LOGITS)
    if any(not subject.attention(role).style.projects for role in subject.roles):
        return  # among activations of 1e9, a change may be below every threshold
    model.train()
    # The state of sampled positions: restoring it leaves dropout as the only difference between two passes.
    parameters = dict(model.named_parameters())
    buffers: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        if name not in parameters:
            buffers[name] = value.clone()
    first = forward(model, subject.sentences)[nonpad]
    model.load_state_dict(buffers, strict=False)
    second = forward(model, subject.sentences)[nonpad]
    change = float((first - second).abs().max())
    yield beyond(change, f"change of logits between two training passes by {field}")
