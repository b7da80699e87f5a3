"""Parameters, FLOPs and memory of a variant, counted without training."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from headtohead.config.entries import entries_of, recorded_config
from headtohead.model.attention import MultiHeadAttention
from headtohead.model.loss import backward_loss
from headtohead.model.operations import Operations, counted
from headtohead.model.transformer import Transformer
from headtohead.plugins.component import Component, require_members
from headtohead.plugins.entry import Entry
from headtohead.plugins.positional import Positional
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig


@dataclass(frozen=True)
class ModelCounts:
    """Counted costs of a run.

    Args:
        total: Number of weights.
        non_embedding: Number of weights that do not grow with the vocabulary, hence without
            embedding tables and ``lm_head``.
        attention: Number of weights of all attentions.
        flops_per_token: FLOPs of a forward pass over a pair of mean lengths, per target token. A
            training step needs about three times as many.
        inner_width: Heads times key width of the decoder's self-attention.
        path: ``"fused"`` or ``"explicit"`` per role.
    """

    total: int
    non_embedding: int
    attention: int
    flops_per_token: float
    inner_width: int
    path: dict[str, str]


def count(
    config: RunConfig, source_words: int, target_words: int, source_length: float, target_length: float
) -> ModelCounts:
    """Return the costs of a run.

    Args:
        config: The variant.
        source_words: Size of the source vocabulary.
        target_words: Size of the target vocabulary.
        source_length: Mean source length in tokens, rounded for the count.
        target_length: Mean target length in tokens, rounded for the count.

    Raises:
        HeadToHeadError: If the configuration has an unknown entry or inconsistent sizes.
    """
    lengths = max(1, round(source_length)), max(1, round(target_length))
    return _count(*_cache_key(config), source_words, target_words, *lengths)


Classes = tuple[type[Entry], ...]


def _cache_key(config: RunConfig) -> tuple[str, Classes]:
    # A cell of a notebook that is executed again registers another class under the same name.
    classes = (current().find(family, entry.name).entry for family, entry in entries_of(config))
    return config.model_dump_json(), tuple(classes)


@cache
def _count(
    config_json: str, classes: Classes, source_words: int, target_words: int, source_length: int, target_length: int
) -> ModelCounts:
    config = recorded_config(json.loads(config_json), current(), "this one")

    def measure(operations: Operations) -> ModelCounts:
        model = Transformer(config, None, source_words, target_words).eval()
        source = torch.zeros(1, 1, source_length, dtype=torch.long, device="meta")
        target = torch.zeros(1, 1, target_length, dtype=torch.long, device="meta")
        lengths = torch.ones(1, 1, dtype=torch.long, device="meta")
        with operations:
            model(source, lengths, target, lengths)
        for part in model.modules():
            if isinstance(part, Component):
                require_members(part)  # a hook may have assigned another parameter
        return _counts(model, operations.flops / target_length)

    return counted(measure)


def _counts(model: Transformer, flops_per_token: float) -> ModelCounts:
    total = sum(parameter.numel() for parameter in model.parameters())
    vocabulary = sum(
        parameter.numel()
        for part in (model.source_embedding, model.target_embedding, model.lm_head)
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
    return ModelCounts(
        total=total,
        non_embedding=total - vocabulary,
        attention=attention,
        flops_per_token=flops_per_token,
        inner_width=geometry.heads * geometry.key_width,
        path=model.paths,
    )


def estimate_parameters(config: RunConfig, source_words: int, target_words: int) -> int:
    """Return the number of weights of a model without building all its layers.

    The number is linear in the numbers of layers, so that three models of one or two layers determine it.
    """

    def built(encoder: int, decoder: int) -> int:
        layers = {"encoder_layers": encoder, "decoder_layers": decoder}
        small = config.model_copy(update={"model": config.model.model_copy(update=layers)})
        model = Transformer(small, None, source_words, target_words)
        return sum(parameter.numel() for parameter in model.parameters())

    model, least = config.model, built(1, 1)
    encoder = (built(2, 1) - least) * (model.encoder_layers - 1) if model.encoder_layers > 1 else 0
    decoder = (built(1, 2) - least) * (model.decoder_layers - 1) if model.decoder_layers > 1 else 0
    return least + encoder + decoder


def training_bytes(config: RunConfig, source_words: int, target_words: int, batch: tuple[int, int, int]) -> int:
    """Return the peak memory of a member of a stack in a training step, in bytes.

    A step is traced on the device ``meta``, which includes all that the variant's entries compute:
    activations stored for the backward pass, the logits of a chunk, and gradients. Weights, two moments of the
    optimizer, and with early stopping a copy of the best weights are added. Every target position
    is counted as having a label, so the result is an upper bound.

    Args:
        config: The variant. With ``bfloat16`` the activations are counted as float32.
        source_words: Size of the source vocabulary.
        target_words: Size of the target vocabulary.
        batch: Rows, source time and target time of the largest batch.
    """
    return _training_bytes(*_cache_key(config), source_words, target_words, batch)


@cache
def _training_bytes(
    config_json: str, classes: Classes, source_words: int, target_words: int, batch: tuple[int, int, int]
) -> int:
    config = recorded_config(json.loads(config_json), current(), "this one")
    dtype = torch.float64 if config.train.precision == "float64" else torch.float32
    model = Transformer(config, None, source_words, target_words).to(dtype).train()
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    rows, *times = batch
    pieces = 1 if model.position_is_row else min(config.train.num_microbatches, rows)
    rows = -(-rows // pieces)
    source, target = (torch.zeros(1, rows, time, dtype=torch.long, device="meta") for time in times)
    lengths = torch.ones(1, rows, dtype=torch.long, device="meta")
    with Allocations() as memory:
        for _ in range(min(2, pieces)):  # from the second piece on, gradients exist
            hidden = model.hidden(source, lengths, target, lengths)
            backward_loss(model, hidden, target, target.numel(), lengths.new_ones(1), config.train.label_smoothing)
            del hidden
    copies = 2 if config.train.early_stopping is None else 3
    return int(memory.most + weights * (1 + copies))


class Allocations(TorchDispatchMode):
    """Tracks the memory of all tensors created in its context; ``most`` is the peak in bytes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._held: dict[int, int] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that torch does not load its compiler, as in ``Operations``."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Iterable[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Execute an operation and add the memory that it allocates."""
        inputs = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                storage = leaf.untyped_storage()
                if storage._cdata not in inputs and storage._cdata not in self._held:
                    self._add(storage)
        return out

    def _add(self, storage: UntypedStorage) -> None:
        self._held[storage._cdata] = storage.nbytes()
        self.now += storage.nbytes()
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._drop, storage._cdata)

    def _drop(self, address: int) -> None:
        self.now -= self._held.pop(address)
