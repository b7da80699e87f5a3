"""Faults of the core: while a check runs, one of its functions is replaced by a wrong function."""

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch

from headtohead.model import attention
from headtohead.model import decoding as model_decoding
from headtohead.model.attention import MultiHeadAttention
from headtohead.model.batch import Batch
from headtohead.model.blocks import DecoderLayer
from headtohead.model.builder import Builder
from headtohead.model.dropout import Dropout, DropoutRNG
from headtohead.model.layers import StackedEmbedding
from headtohead.model.transformer import Transformer
from headtohead.testing.invariants import arithmetic, decoding
from headtohead.training.loop import StackTraining

FAULTS = []
"""The fields of each fault, as of ``Fault`` in page.py."""


def fault(description, *places, name, caught_by, found_in="", **config):
    """Return a decorator for a function that maps the function ``name`` of some classes or modules to a wrong one."""

    def add(wrong):
        @contextmanager
        def planted():
            with ExitStack() as stack:
                for place in places:
                    original = vars(place)[name]
                    replacement = wrong(getattr(original, "__func__", original))
                    stack.enter_context(patch.object(place, name, replacement))
                yield

        label = wrong.__name__.replace("_", "-")
        FAULTS.append(("core", label, description, found_in, caught_by, config, planted))
        return wrong

    return add


@fault(
    "values rotated, too",
    MultiHeadAttention,
    name="_project",
    caught_by=("joint-shift",),
    found_in="x-transformers, two years (#182)",
    positional="rotary",
)
def values_rotated(original):
    def project(self, x, memory, context, cache, record=None):
        q, k, v = original(self, x, memory, context, cache, record)
        return q, k, self._rotate(v, context.key_positions, context)

    return project


@fault(
    "scale doubled on the explicit path only",
    MultiHeadAttention,
    name="_explicit",
    caught_by=("parity", "weights-times-values"),
)
def doubled_on_one_path(original):
    return lambda self, q, *rest: original(self, 2 * q, *rest)


@fault(
    "key/value heads tiled instead of repeated",
    MultiHeadAttention,
    name="_repeat",
    caught_by=("weights-times-values",),
    found_in="repeat for repeat_interleave in ports of grouped-query attention",
    attention="grouped-query",
)
def tiled_heads(original):
    def tiled(self, x):
        geometry = self.context.geometry
        return x.repeat(1, 1, geometry.heads // geometry.kv_heads, 1, 1)

    return tiled


@fault("a member has no gradient", MultiHeadAttention, name="forward", caught_by=("gradients",))
def lost_gradient(original):
    def forward(self, *arguments, **named):
        out = original(self, *arguments, **named)
        cut = self.context.role == "cross"
        return torch.cat([out[:1], out[1:].detach()]) if cut else out

    return forward


@fault("the decoder ignores the source", MultiHeadAttention, name="forward", caught_by=("source-reaches-logits",))
def source_ignored(original):
    def forward(self, x, memory, *rest):
        return original(self, x, None if memory is None else torch.ones_like(memory), *rest)

    return forward


@fault(
    "encoder and decoder exchange their inputs",
    Transformer,
    name="hidden",
    caught_by=("causality",),
    found_in="Keras' English-Spanish example (keras-io #1964)",
)
def swapped_inputs(original):
    def hidden(self, batch):
        source, target = batch.source % self.vocab_sizes.target, batch.decoder_input_ids
        time = min(source.shape[-1], target.shape[-1])
        out = original(self, Batch(target.clone(), batch.target_lengths, source, source, batch.source_lengths))
        return torch.nn.functional.pad(out[:, :, :time], (0, 0, 0, target.shape[-1] - time))

    return hidden


@fault("positions restart in the cache", Transformer, name="_embed", caught_by=("cached-decoding",))
def restarted_cache(original):
    def embed(self, ids, embedding, role, start, *more, **named):
        return original(self, ids, embedding, role, 0, *more, **named)

    return embed


@fault("cross-attention with the decoder's causal mask", Transformer, name="_cross_context", caught_by=("mask-used",))
def causal_cross(original):
    def context(self, queries, written, lengths, memory, memory_lengths):
        positions = (0, memory.shape[2])
        return self._attention_context("decoder", queries, positions, memory_lengths)

    return context


@fault("dropout in evaluation", Dropout, name="is_active", caught_by=("evaluation",))
def dropout_in_evaluation(original):
    return property(lambda self: bool(self.rate))


@fault("dropout masks that depend on the stack", DropoutRNG, name="__init__", caught_by=("stacking",))
def shared_dropout(original):
    def init(self, keys, device):
        original(self, [key + len(keys) for key in keys], device)

    return init


@fault("only dropout sites with a non-zero rate are counted", Builder, name="dropout", caught_by=("stacking",))
def counts_active_sites(original):
    def dropout(self, where):
        site = original(self, where)
        self._sites -= not site.rate
        return site

    return dropout


@fault(
    "projections with biases, although model.bias is false",
    MultiHeadAttention,
    name="__init__",
    caught_by=("parameter-count",),
    bias=False,
)
def biased_projections(original):
    def init(self, style, positional, mask_value, dropout, bias, *rest, **named):
        original(self, style, positional, mask_value, dropout, True, *rest, **named)

    return init


@fault("bias missing on the fused path", MultiHeadAttention, name="_fused", caught_by=("parity",), positional="alibi")
def missing_bias(original):
    return lambda self, q, k, v, context, bias: original(self, q, k, v, context, None)


@fault("every member uses the first member's embeddings", StackedEmbedding, name="forward", caught_by=("members",))
def shared_table(original):
    return lambda self, ids: torch.embedding(self.weight.flatten(0, 1), ids)


@fault("the new key is missing from the cache", attention.Cache, name="append", caught_by=("cached-decoding",))
def late_cache(original):
    def append(self, name, new):
        every = original(self, name, new).clone()
        if name == "keys":
            every[:, :, :, -1] = 0
        return every

    return append


@fault(
    "earlier inputs are missing from the cache",
    MultiHeadAttention,
    name="_inputs",
    caught_by=("cached-decoding",),
    attention="short-convolution",
)
def forgotten_inputs(original):
    return lambda self, x, context, cache: original(self, x, context, None)


@fault(
    "a cache although the mask shows the future",
    model_decoding,
    decoding,
    name="is_causal",
    caught_by=("greedy-decoding",),
    masking="padding",
)
def cache_without_causality(original):
    return lambda model: True


@fault("a resumed training with a new optimizer state", StackTraining, name="_resume", caught_by=("resume",))
def restarted_optimizer(original):
    def resume(self):
        original(self)
        self.optimizer.moments.clear()

    return resume


@fault("label smoothing missing from the loss", arithmetic, name="loss_gradients", caught_by=("loss",))
def unsmoothed_loss(original):
    return lambda *arguments: original(*arguments[:-1], 0.0)


@fault("the second decoder layer ignores its mask", DecoderLayer, name="forward", caught_by=("mask-used", "causality"))
def unmasked_layer(original):
    def forward(self, x, memory, views, *rest, **named):
        own, cross = views
        if self.attention.context.layer:
            own = attention.AttentionContext(own.query_positions, own.key_positions, None, own.sampled_positions)
        return original(self, x, memory, (own, cross), *rest, **named)

    return forward
