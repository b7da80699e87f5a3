"""Float64 models compute everything in float64; float32, bfloat16 and the meta device work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from headtohead.model.transformer import Transformer
from headtohead.testing.extremum import largest_logit_change
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import SentenceBatch, Subject, explicit_forward, forward
from headtohead.testing.verdict import Verdict, violated, within, worst

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
