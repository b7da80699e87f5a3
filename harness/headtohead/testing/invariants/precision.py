"""In double precision nothing is computed in single precision, and single precision is enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from headtohead.model.transformer import Transformer
from headtohead.testing.invariant import invariant
from headtohead.testing.seen import moved_logit
from headtohead.testing.subject import Subject, explicit_forward, forward
from headtohead.testing.verdict import Verdict, within, worst

ROUNDING = 1e-11
"""Far above the rounding of float64 in so small a model, far below that of one float32 constant."""

SINGLE = 1e-2
"""Relative difference that float32 may make."""


@invariant("precision")
def nothing_is_computed_in_single_precision(subject: Subject) -> Verdict:
    """With every float32 number made a float64, no logit of a float64 model moves."""
    with _doubled():
        model = Transformer(subject.config, subject.seeds, *subject.words).double().eval()
        _give(model, subject.model)
        with torch.no_grad():
            found = [ask(model, subject) for ask in _PATHS]
    with torch.no_grad():
        plain = [ask(subject.model, subject) for ask in _PATHS]
    everywhere = subject.sentences.live_target
    return worst(
        *(
            within(
                moved_logit(one - other, everywhere, "computing float32 numbers in float64"),
                "change of logits by computing float32 numbers in float64",
                ROUNDING,
            )
            for one, other in zip(found, plain, strict=True)
        )
    )


@invariant("any-device")
def it_runs_in_every_precision_and_as_shapes(subject: Subject) -> Verdict:
    """It runs in float32 and bfloat16, and as shapes without numbers, as plans count it.

    Shapes live on a device of their own: what is left on the CPU there would stay behind on a GPU.
    """
    verdicts = [_counted(subject)]
    single = Transformer(subject.config, subject.seeds, *subject.words).eval()
    single.load_state_dict(subject.model.state_dict())
    logits = forward(single, subject.sentences)
    if logits.dtype != torch.float32:
        told = f"float32 weights give {str(logits.dtype).removeprefix('torch.')} logits"
        return Verdict("broken", None, told, shown=told)
    size = max(1.0, float(subject.plain.abs().max()))
    apart = moved_logit((logits.detach() - subject.plain) / size, subject.sentences.live_target, "single precision")
    verdicts.append(within(apart, "relative difference of float32 and float64 logits", SINGLE))
    logits.sum().backward()
    with torch.autocast("cpu", torch.bfloat16):
        half = forward(single, subject.sentences)
    half.float().sum().backward()
    wrong = float((~half[subject.sentences.live_target].isfinite()).sum())
    verdicts.append(within(wrong, "logits in bfloat16 that are not finite", 0.0))
    return worst(*verdicts)


def _counted(subject: Subject) -> Verdict:
    model = Transformer(subject.config, None, *subject.words).eval()
    sentences = subject.sentences
    ids = [one[:1].to("meta") for one in (sentences.source, sentences.target)]
    lengths = [one[:1].to("meta") for one in (sentences.source_lengths, sentences.target_lengths)]
    with torch.no_grad():
        logits = model(ids[0], lengths[0], ids[1], lengths[1])
    wanted = subject.plain[:1].shape
    if logits.shape != wanted or not logits.is_meta:
        told = f"without numbers, logits are {list(logits.shape)} on {logits.device}"
        return Verdict("broken", None, f"{told}, expected {list(wanted)} on meta", shown=told)
    return Verdict("holds", 0.0, "logits have their shape without numbers")


def _explicit(model: Transformer, subject: Subject) -> Tensor:
    return explicit_forward(model, subject.sentences)


def _fused(model: Transformer, subject: Subject) -> Tensor:
    return forward(model, subject.sentences)


_PATHS = (_fused, _explicit)


def _give(model: Transformer, own: Transformer) -> None:
    """Give a model another one's weights, and the buffers that were drawn and not computed."""
    known = dict(own.named_buffers())
    with torch.no_grad():
        for parameter, other in zip(model.parameters(), own.parameters(), strict=True):
            parameter.copy_(other)
        for name, value in model.named_buffers():
            drawn = known[name]
            computed = value.shape == drawn.shape and bool(((value - drawn).abs() <= 1e-5 * (1 + drawn.abs())).all())
            if not computed:
                value.copy_(drawn)


@contextmanager
def _doubled() -> Iterator[None]:
    """Make a float64 of whatever asks to be a float32, the default included."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Doubled():
            yield
    finally:
        torch.set_default_dtype(before)


_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_CASTS: Mapping[Callable[..., Any], Callable[..., Any]] = {
    torch.Tensor.float: torch.Tensor.double,
    torch.Tensor.half: torch.Tensor.double,
    torch.Tensor.bfloat16: torch.Tensor.double,
}


class _Doubled(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wide = [_wide(one) for one in args]
        named = {name: _wide(one) for name, one in (kwargs or {}).items()}
        return _CASTS.get(func, func)(*wide, **named)


def _wide(argument: Any) -> Any:
    narrow = isinstance(argument, torch.dtype) and argument in _NARROW
    return torch.float64 if narrow else argument
