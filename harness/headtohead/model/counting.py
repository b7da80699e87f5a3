"""Parameters, floating-point operations and memory of a variant, counted without a run."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from headtohead.model.attention import MultiHeadAttention
from headtohead.model.operations import Operations, counted
from headtohead.model.transformer import Transformer
from headtohead.plugins.positional import Positional
from headtohead.schema.run_config import RunConfig


@dataclass(frozen=True)
class Counts:
    """Costs of one run.

    ``total`` counts every weight; ``non_embedding`` leaves out what grows with the vocabulary
    (token tables and the projection to words); ``attention`` counts the projections of all
    attentions. ``flops_per_token`` is one forward pass over a pair of mean lengths, divided by its
    target tokens; a training step costs about three times as much. ``inner_width`` is heads times
    key width of the decoder's self-attention.
    """

    total: int
    non_embedding: int
    attention: int
    flops_per_token: float
    inner_width: int
    path: dict[str, str]


def count(
    config: RunConfig, source_words: int, target_words: int, source_length: float, target_length: float
) -> Counts:
    """Count one run's costs.

    Args:
        config: The variant.
        source_words: Size of the source vocabulary.
        target_words: Size of the target vocabulary.
        source_length: Mean source length in tokens, rounded for the count.
        target_length: Mean target length in tokens, likewise.

    Raises:
        HeadToHeadError: If the configuration is not defined.
    """
    return _count(
        config.model_dump_json(), source_words, target_words, max(1, round(source_length)), max(1, round(target_length))
    )


@cache
def _count(config_json: str, source_words: int, target_words: int, source_length: int, target_length: int) -> Counts:
    config = RunConfig.model_validate_json(config_json)

    def of_shapes(operations: Operations) -> Counts:
        model = Transformer(config, None, source_words, target_words).eval()
        source = torch.zeros(1, 1, source_length, dtype=torch.long, device="meta")
        target = torch.zeros(1, 1, target_length, dtype=torch.long, device="meta")
        lengths = torch.ones(1, 1, dtype=torch.long, device="meta")
        with operations:
            model(source, lengths, target, lengths)
        return _counts(model, operations.flops / target_length)

    return counted(of_shapes)


def _counts(model: Transformer, flops_per_token: float) -> Counts:
    total = sum(parameter.numel() for parameter in model.parameters())
    vocabulary = sum(
        parameter.numel()
        for part in (model.source_embedding, model.target_embedding, model.words)
        if part is not None
        for parameter in part.parameters()
    )
    attention = sum(
        parameter.numel()
        for module in model.modules()
        if isinstance(module, MultiHeadAttention)
        for parameter in module.parameters()
    )
    positional = model.positionals["decoder"]
    assert isinstance(positional, Positional)
    geometry = positional.context.geometry
    return Counts(
        total=total,
        non_embedding=total - vocabulary,
        attention=attention,
        flops_per_token=flops_per_token,
        inner_width=geometry.heads * geometry.key_width,
        path=model.paths,
    )


LARGE_VOCABULARY = 512
"""Words from which it pays to project only the positions that have a target, not padding."""

LOGITS_AT_ONCE = 2**26
"""Logits that an evaluation computes together; more are cut into pieces that give the same."""


def training_bytes(config: RunConfig, source_words: int, target_words: int, batch: tuple[int, int, int]) -> int:
    """Return the most memory that one member of a stack holds in a training step, in bytes.

    A step is traced on shapes alone, so whatever the entries of the variant compute is in it:
    activations and logits that wait for the backward pass, and gradients. Added are the weights,
    the two moments of the optimizer, and a copy of the weights where early stopping keeps the best.
    It is an upper bound where targets are padded: every position counts as one with a target.

    Args:
        config: The variant. With ``bfloat16`` the activations are counted as float32.
        source_words: Size of the source vocabulary.
        target_words: Size of the target vocabulary.
        batch: Rows, source time and target time of the largest batch.
    """
    return _training_bytes(config.model_dump_json(), source_words, target_words, batch)


@cache
def _training_bytes(config_json: str, source_words: int, target_words: int, batch: tuple[int, int, int]) -> int:
    config = RunConfig.model_validate_json(config_json)
    dtype = torch.float64 if config.train.precision == "float64" else torch.float32
    model = Transformer(config, None, source_words, target_words).to(dtype).train()
    weights = sum(one.numel() * one.element_size() for one in model.parameters())
    rows, *times = batch
    pieces = 1 if model.position_is_row else min(config.train.num_microbatches, rows)
    rows = -(-rows // pieces)
    source, target = (torch.zeros(1, rows, time, dtype=torch.long, device="meta") for time in times)
    lengths = torch.ones(1, rows, dtype=torch.long, device="meta")
    with Allocations() as memory:
        for _ in range(min(2, pieces)):  # from the second piece on there are gradients
            hidden = model.hidden(source, lengths, target, lengths)
            writes = target
            if model.rows.target >= LARGE_VOCABULARY:
                writes = target.flatten(1)
                index = writes.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
                hidden = hidden.flatten(1, 2).gather(1, index).unsqueeze(1)
            logits = model.project(hidden)
            losses = functional.cross_entropy(
                logits.flatten(0, 2), writes.flatten(), reduction="none", label_smoothing=config.train.label_smoothing
            )
            losses.sum().backward()
            del hidden, logits, losses
    copies = 2 if config.train.early_stopping is None else 3
    return int(memory.most + weights * (1 + copies))


class Allocations(TorchDispatchMode):
    """Follows the memory of all tensors that are made in the block; ``most`` is its peak."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._held: dict[int, int] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, or torch would load its compiler, as for ``Operations``."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Iterable[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute one operation and add the memory that it made."""
        given = {one.untyped_storage()._cdata for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)}
        out = func(*args, **(kwargs or {}))
        for one in tree_leaves(out):
            if isinstance(one, Tensor):
                storage = one.untyped_storage()
                if storage._cdata not in given and storage._cdata not in self._held:
                    self._add(storage)
        return out

    def _add(self, storage: UntypedStorage) -> None:
        self._held[storage._cdata] = storage.nbytes()
        self.now += storage.nbytes()
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._drop, storage._cdata)

    def _drop(self, address: int) -> None:
        self.now -= self._held.pop(address)
