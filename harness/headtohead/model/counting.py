"""Parameters and FLOPs of a variant, counted without training: FLOPs of small models on the CPU, of others on ``meta``.

On the device ``meta``, torch computes shapes only. It does so in Python for many operations and loads its compiler,
which takes longer than everything else in a small plan. torch's ``FlopCounterMode`` loads the compiler on every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import product
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from headtohead.config.entries import entries_of
from headtohead.model.attention import overrides
from headtohead.model.precision import one_thread
from headtohead.model.transformer import Transformer
from headtohead.plugins.attention import Attention
from headtohead.plugins.component import Component, require_members
from headtohead.plugins.families import COMPONENTS
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig
from headtohead.storage.experiment import ModelCounts

MAX_CPU_FLOPS = 2**34
"""Most FLOPs of a pass on the CPU; larger models are counted on the device ``meta``."""

FORMULAS: Mapping[Any, Callable[..., int]] = {
    **flop_registry,
    torch.ops.aten.linalg_solve_triangular: lambda system, right, **_: (
        right.numel() * system.shape[-1]
    ),
}
"""FLOPs of operations: torch's formulas, and forward substitution, which torch has none for."""

_COUNTED: dict[tuple[object, ...], ModelCounts] = {}


def count(
    config: RunConfig,
    source_words: int,
    target_words: int,
    source_length: float,
    target_length: float,
    labels: float | None = None,
) -> ModelCounts:
    """Return the costs of a run with vocabularies, mean lengths and mean labels per target of these sizes.

    By default, each target token has a label.
    """
    # A cell of a notebook that is executed again registers another class under the same name.
    classes = tuple(
        current().find(family, entry.name).entry for family, entry in entries_of(config)
    )
    # Masks and dropout of attention weights decide whether an attention style uses its fast path.
    ignored = {"dropout_embedding", "dropout_ffn", "dropout_residual"}
    parts = {*COMPONENTS, "model", "quirks"}
    shape = config.model_dump_json(include=parts, exclude={"model": ignored})
    lengths = max(source_length, min(1.0, math.ceil(source_length))), max(1.0, target_length)
    key = (
        shape,
        classes,
        source_words,
        target_words,
        *lengths,
        lengths[1] if labels is None else labels,
    )
    if key not in _COUNTED:
        _COUNTED[key] = _count(config, *key[2:])
    return _COUNTED[key]


def _count(
    config: RunConfig,
    source_words: int,
    target_words: int,
    source_length: float,
    target_length: float,
    labels: float,
) -> ModelCounts:
    length = math.ceil(max(source_length, target_length))
    device_mode = (
        OnCpu() if _is_small(config, source_words + target_words, length) else nullcontext()
    )
    # The math kernel is the attention kernel that has a FLOP formula in torch.
    with device_mode, torch.no_grad(), sdpa_kernel(SDPBackend.MATH), one_thread():
        model = Transformer(config, None, source_words, target_words).eval()
        with Operations() as logits:
            model.project(torch.zeros(1, 1, 1, config.model.d_model, device="meta"))
        flops = logits.flops * labels
        for source, target in product(_neighbours(source_length), _neighbours(target_length)):
            weight = (1 - abs(source - source_length)) * (1 - abs(target - target_length))
            flops += weight * _hidden_flops(model, source, target)
    for part in model.modules():
        if isinstance(part, Component):
            require_members(part, attributes=False)  # a hook may have assigned another parameter
    total = sum(parameter.numel() for parameter in model.parameters())
    positions = (part for part in map(model.positional, model.roles) if "embed" in part.mechanisms)
    values = [
        part.style for part in model.attentions if overrides(part.style, Attention, "embed_values")
    ]
    tables = (model.source_embedding, model.target_embedding, model.lm_head, *positions, *values)
    geometry = next(
        part.context.geometry for part in model.attentions if part.context.role == "decoder"
    )
    return ModelCounts(
        total=total,
        non_embedding=total
        - sum(p.numel() for part in tables if part is not None for p in part.parameters()),
        attention=sum(p.numel() for part in model.attentions for p in part.parameters())
        - sum(p.numel() for style in values for p in style.parameters()),
        flops_per_token=flops / target_length,
        inner_width=geometry.heads * geometry.key_width,
        path=model.paths,
    )


def _hidden_flops(model: Transformer, source_length: int, target_length: int) -> int:
    """Return the FLOPs of the decoder's outputs for a pair: those of the cheaper path of attention.

    A fast path may add coordinates that its kernel needs, and an explicit path computes more than a linear fast path.
    """
    source = torch.zeros(1, 1, source_length, dtype=torch.long, device="meta")
    target = torch.zeros(1, 1, target_length, dtype=torch.long, device="meta")
    lengths = torch.ones(1, 1, dtype=torch.long, device="meta")
    batch = model.batch_of(source, lengths, target, lengths)
    found: list[int] = []
    paths = (
        [None, lambda *_: None] if any(part.has_fast_path for part in model.attentions) else [None]
    )
    for observe in paths:  # an observed pass is explicit
        with Operations() as operations:
            model.hidden(batch, observe)
        found.append(operations.flops)
    return min(found)


def _neighbours(length: float) -> set[int]:
    return {math.floor(length), math.ceil(length)}


def _is_small(config: RunConfig, words: int, length: int) -> bool:
    """Return whether a pass takes less time than torch's compiler takes to load, from a rough number of FLOPs."""
    model = config.model
    layers = (model.encoder_layers + 2 * model.decoder_layers) * (
        4 * model.d_model + 2 * model.d_ff + 2 * length
    )
    return 2 * model.d_model * (words + layers) * length < MAX_CPU_FLOPS


class Operations(TorchDispatchMode):
    """Counts the FLOPs of matrix products and triangular systems."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False; otherwise torch loads its compiler to exclude it from ``__torch_dispatch__``."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Execute an operation and count its FLOPs."""
        named = kwargs or {}
        out = func(*args, **named)
        if formula := FORMULAS.get(func.overloadpacket):
            self.flops += formula(*args, **named, out_val=out)
        return out


class OnCpu(TorchFunctionMode):
    """Creates tensors on the CPU instead of ``meta``, with zeros instead of uninitialised memory."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a torch function with the device CPU instead of ``meta``."""
        named = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        created = torch.zeros if func is torch.empty else func
        return created(*map(_on_cpu, args), **named)


def _on_cpu(value: Any) -> Any:
    return "cpu" if isinstance(value, str | torch.device) and str(value) == "meta" else value
