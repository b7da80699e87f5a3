"""Parameters and FLOPs of a variant, counted without training: FLOPs of small models on the CPU, of others on ``meta``.

On the device ``meta``, torch computes shapes only. It does so in Python for many operations and loads its compiler,
which takes longer than everything else in a small plan. torch's ``FlopCounterMode`` loads the compiler on every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from headtohead.config.entries import named_entries
from headtohead.model.attention import overrides
from headtohead.model.precision import one_thread
from headtohead.model.transformer import Transformer
from headtohead.plugins.attention import Attention
from headtohead.plugins.component import Component, require_members
from headtohead.plugins.families import COMPONENTS
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
    """Return the parameters and FLOPs of a run's model, which is built and called, once for equal arguments.

    Args:
        config: A resolved configuration.
        source_words: Size of the source vocabulary.
        target_words: Size of the target vocabulary.
        source_length: Mean tokens of a source; counted as at least 1 unless it is 0.
        target_length: Mean tokens that the decoder reads of a target; counted as at least 1.
        labels: Mean labels of a target; default: each target token has one.

    Raises:
        HeadToHeadError: If an entry is unknown or does not fit the model or the lengths, a plugin fails while it is
            constructed, `require_members` refuses it, or a hook returns a tensor of a wrong shape.
        Exception: An error in a hook that a forward pass calls, unchanged.
    """
    # A cell of a notebook that is executed again registers another class under the same name.
    classes = tuple(registered.entry for registered in named_entries(config))
    # Masks and dropout of attention weights decide whether an attention style uses its fast path.
    ignored = {"dropout_embedding", "dropout_ffn", "dropout_residual"}
    parts = {*COMPONENTS, "model", "quirks"}
    shape = config.model_dump_json(include=parts, exclude={"model": ignored})
    source_length = max(source_length, min(1.0, math.ceil(source_length)))
    target_length = max(1.0, target_length)
    if labels is None:
        labels = target_length
    sizes = source_words, target_words, source_length, target_length, labels
    key = (shape, classes, *sizes)
    if key not in _COUNTED:
        _COUNTED[key] = _count(config, *sizes)
    return _COUNTED[key]


def _count(
    config: RunConfig,
    source_words: int,
    target_words: int,
    source_length: float,
    target_length: float,
    labels: float,
) -> ModelCounts:
    """Return the counts of a model, which is built anew, without gradients; arguments and errors are those of `count`.

    Raises:
        HeadToHeadError: If an entry does not fit the model or the lengths, a plugin fails while it is constructed,
            `require_members` refuses it, or a hook returns a tensor of a wrong shape.
    """
    length = math.ceil(max(source_length, target_length))
    with mode_without_data(config, source_words + target_words, length):
        model = Transformer(config, None, source_words, target_words).eval()
    # The math kernel is the attention kernel that has a FLOP formula in torch.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), one_thread():
        flops = _pair_flops(model, source_length, target_length, labels)
    for part in model.modules():
        if isinstance(part, Component):
            require_members(part, attributes=False)  # a hook may have assigned another parameter
    styles = [part.style for part in model.attentions]
    value_tables = [style for style in styles if overrides(style, Attention, "embed_values")]
    encodings = [model.positional(role) for role in model.roles]
    position_tables = [encoding for encoding in encodings if "embed" in encoding.mechanisms]
    word_tables = [model.source_embedding, model.target_embedding, model.lm_head]
    total = _numel([model])
    by_role = {part.context.role: part.context.geometry for part in model.attentions}
    geometry = by_role["decoder"]
    return ModelCounts(
        total=total,
        non_embedding=total - _numel([*word_tables, *position_tables, *value_tables]),
        attention=_numel(model.attentions) - _numel(value_tables),
        flops_per_token=flops / target_length,
        inner_width=geometry.heads * geometry.key_width,
        path=model.paths,
    )


def _numel(modules: Iterable[nn.Module | None]) -> int:
    """Return the number of weights of modules, those of all members together."""
    total = 0
    for module in modules:
        if module is not None:
            total += sum(parameter.numel() for parameter in module.parameters())
    return total


def _pair_flops(
    model: Transformer, source_length: float, target_length: float, labels: float
) -> float:
    """Return the FLOPs of a forward pass over a pair of mean lengths, with this mean number of labels.

    Those of a fractional length are interpolated between the whole lengths around it.

    Raises:
        HeadToHeadError: If a length exceeds the maximum of an encoding or an attention, or a plugin returns a tensor of
            a wrong shape.
    """
    device = _device_of(model)
    with Operations() as logits:
        model.project(torch.zeros(1, 1, 1, model.config.model.d_model, device=device))
    flops: float = logits.flops * labels
    for source, target in product(_neighbours(source_length), _neighbours(target_length)):
        weight = (1 - abs(source - source_length)) * (1 - abs(target - target_length))
        flops += weight * _hidden_flops(model, source, target)
    return flops


def _hidden_flops(model: Transformer, source_length: int, target_length: int) -> int:
    """Return the FLOPs of a forward pass over a pair up to the decoder's output.

    If an attention style has a fast path, they are those of the pass with fewer FLOPs: with all fast paths, or with all
    attention explicit. A fast path may add coordinates that its kernel needs, and an explicit path computes more than a
    linear fast path.

    The caller must hold ``sdpa_kernel(SDPBackend.MATH)``: FLOPs of other attention kernels are not counted on a CPU.

    Args:
        model: With one member, in evaluation mode; the pass runs on its device.
        source_length: Tokens of the source.
        target_length: Tokens that the decoder reads of the target.

    Raises:
        HeadToHeadError: If a length exceeds the maximum of an encoding or an attention, or a plugin returns a tensor of
            a wrong shape.
    """
    device = _device_of(model)
    source = torch.zeros(1, 1, source_length, dtype=torch.long, device=device)
    target = torch.zeros(1, 1, target_length, dtype=torch.long, device=device)
    lengths = torch.ones(1, 1, dtype=torch.long, device=device)
    batch = model.batch_of(source, lengths, target, lengths)
    fast = Operations()
    with fast:
        model.hidden(batch)
    if not any(part.has_fast_path for part in model.attentions):
        return fast.flops
    explicit = Operations()
    with explicit:
        model.hidden(batch, lambda *step: None)  # an observed pass is explicit
    return min(fast.flops, explicit.flops)


def _device_of(model: Transformer) -> torch.device:
    return next(model.parameters()).device


def _neighbours(length: float) -> set[int]:
    return {math.floor(length), math.ceil(length)}


def mode_without_data(config: RunConfig, words: int, length: int) -> AbstractContextManager[object]:
    """Return a context in which a model without data is built: on the CPU if it is small, else on ``meta``.

    ``length`` is the number of tokens of the pass that must be small.
    """
    if _is_small(config, words, length):
        return OnCpu()
    return nullcontext()


def _is_small(config: RunConfig, words: int, length: int) -> bool:
    """Return whether a pass takes less time than torch's compiler takes to load, from a rough number of FLOPs."""
    model = config.model
    sublayers = model.encoder_layers + 2 * model.decoder_layers
    width = 4 * model.d_model + 2 * model.d_ff + 2 * length
    return 2 * model.d_model * (words + sublayers * width) * length < MAX_CPU_FLOPS


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
        """Execute an operation and return its result; add its FLOPs to ``flops`` if `FORMULAS` has a formula."""
        named = kwargs or {}
        out = func(*args, **named)
        formula = FORMULAS.get(func.overloadpacket)
        if formula is not None:
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
        """Call a torch function with the device CPU in place of each argument ``meta``, and return its result.

        ``torch.empty`` becomes ``torch.zeros``.
        """
        if func is torch.empty:
            func = torch.zeros
        named = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        return func(*map(_on_cpu, args), **named)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, str | torch.device) and str(value) == "meta":
        return "cpu"
    return value
