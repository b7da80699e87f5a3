"""Faults of the core: while a check runs, one of its functions is replaced by a wrong function."""

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
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
from headtohead.model.transformer import Span, Transformer
from headtohead.testing.invariants import arithmetic, decoding
from headtohead.training.loop import StackTraining

FAULTS = []
"""The fields of each fault, as of ``Fault`` in page.py."""


@contextmanager
def planted(wrong, name, *places):
    """Replace the function ``name`` of some classes or modules by ``wrong``, whose first argument is the original."""
    with ExitStack() as stack:
        for place in places:
            original = vars(place)[name]
            function = getattr(original, "fget", getattr(original, "__func__", original))

            def replacement(*arguments, function=function, **named):
                return wrong(function, *arguments, **named)

            new = property(replacement) if isinstance(original, property) else replacement
            stack.enter_context(patch.object(place, name, new))
        yield


def fault(description, *places, name, caught_by, found_in="", **config):
    """Return a decorator for a wrong function, as of `planted`, that is a fault of the zoo."""

    def add(wrong):
        label = wrong.__name__.replace("_", "-")
        FAULTS.append(
            (
                "core",
                label,
                description,
                found_in,
                caught_by,
                config,
                partial(planted, wrong, name, *places),
            )
        )
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
def values_rotated(original, self, x, memory, context, *rest):
    q, k, v, first_values = original(self, x, memory, context, *rest)
    return q, k, self._rotate(v, context.key_positions, is_sampled=context.is_sampled), first_values


@fault(
    "scale doubled on the explicit path only",
    MultiHeadAttention,
    name="_explicit",
    caught_by=("parity", "weights-times-values"),
)
def doubled_on_one_path(original, self, q, *rest):
    return original(self, 2 * q, *rest)


@fault(
    "key/value heads tiled instead of repeated",
    MultiHeadAttention,
    name="_repeat",
    caught_by=("weights-times-values",),
    found_in="repeat for repeat_interleave in ports of grouped-query attention",
    attention="grouped-query",
)
def tiled_heads(original, self, x):
    geometry = self.context.geometry
    return x.repeat(1, 1, geometry.heads // geometry.kv_heads, 1, 1)


@fault("a member has no gradient", MultiHeadAttention, name="forward", caught_by=("gradients",))
def lost_gradient(original, self, *arguments, **named):
    out, first_values = original(self, *arguments, **named)
    if self.context.role == "cross":
        out = torch.cat([out[:1], out[1:].detach()])
    return out, first_values


@fault(
    "the decoder ignores the source",
    MultiHeadAttention,
    name="forward",
    caught_by=("source-reaches-logits",),
)
def source_ignored(original, self, x, memory, *rest):
    return original(self, x, None if memory is None else torch.ones_like(memory), *rest)


@fault(
    "encoder and decoder exchange their inputs",
    Transformer,
    name="hidden",
    caught_by=("causality",),
    found_in="Keras' English-Spanish example (keras-io #1964)",
)
def swapped_inputs(original, self, batch):
    source, target = batch.source % self.vocab_sizes.target, batch.decoder_input_ids
    time = min(source.shape[-1], target.shape[-1])
    out = original(
        self, Batch(target.clone(), batch.target_lengths, source, source, batch.source_lengths)
    )
    return torch.nn.functional.pad(out[:, :, :time], (0, 0, 0, target.shape[-1] - time))


@fault("positions restart in the cache", Transformer, name="_embed", caught_by=("cached-decoding",))
def restarted_cache(original, self, ids, embedding, role, start, *more, **named):
    return original(self, ids, embedding, role, 0, *more, **named)


@fault(
    "cross-attention with the decoder's causal mask",
    Transformer,
    name="_cross_contexts",
    caught_by=("mask-used",),
)
def causal_cross(original, self, queries, lengths, memory, memory_lengths):
    keys = Span(0, memory.shape[2])
    return self._attention_contexts("decoder", queries, keys, memory_lengths)


@fault("dropout in evaluation", Dropout, name="is_active", caught_by=("evaluation",))
def dropout_in_evaluation(original, self):
    return bool(self.rate)


@fault(
    "dropout masks that depend on the stack", DropoutRNG, name="__init__", caught_by=("stacking",)
)
def shared_dropout(original, self, keys, device):
    original(self, [key + len(keys) for key in keys], device)


@fault(
    "only dropout sites with a non-zero rate are counted",
    Builder,
    name="dropout",
    caught_by=("stacking",),
)
def counts_active_sites(original, self, where):
    site = original(self, where)
    self._sites -= not site.rate
    return site


@fault(
    "projections with biases, although model.bias is false",
    MultiHeadAttention,
    name="__init__",
    caught_by=("parameter-count",),
    bias=False,
)
def biased_projections(
    original, self, style, positional, mask_value, dropout, bias, *rest, **named
):
    original(self, style, positional, mask_value, dropout, True, *rest, **named)


@fault(
    "bias missing on the fused path",
    MultiHeadAttention,
    name="_fused",
    caught_by=("parity",),
    positional="alibi",
)
def missing_bias(original, self, q, k, v, context, bias):
    return original(self, q, k, v, context, None)


@fault(
    "every member uses the first member's embeddings",
    StackedEmbedding,
    name="forward",
    caught_by=("members",),
)
def shared_table(original, self, ids):
    return torch.embedding(self.weight.flatten(0, 1), ids)


@fault(
    "the new key is missing from the cache",
    attention.Cache,
    name="append",
    caught_by=("cached-decoding",),
)
def late_cache(original, self, name, new):
    every = original(self, name, new).clone()
    if name == "keys":
        every[:, :, :, -1] = 0
    return every


@fault(
    "earlier inputs are missing from the cache",
    MultiHeadAttention,
    name="_inputs",
    caught_by=("cached-decoding",),
    attention="short-convolution",
)
def forgotten_inputs(original, self, x, context, cache):
    return original(self, x, context, None)


@fault(
    "earlier vectors of a layer are missing from the cache",
    MultiHeadAttention,
    name="_mixed",
    caught_by=("cached-decoding",),
    attention="canon",
)
def forgotten_vectors(original, self, hook, context, cache, x):
    return original(self, hook, context, None, x)


@fault(
    "a cache although the mask shows the future",
    model_decoding,
    decoding,
    name="is_causal",
    caught_by=("greedy-decoding",),
    masking="padding",
)
def cache_without_causality(original, model):
    return True


@fault(
    "a resumed training with a new optimizer state",
    StackTraining,
    name="_resume",
    caught_by=("resume",),
)
def restarted_optimizer(original, self):
    original(self)
    self.optimizer.moments.clear()


@fault(
    "label smoothing missing from the loss", arithmetic, name="loss_gradients", caught_by=("loss",)
)
def unsmoothed_loss(original, *arguments):
    *tensors, terms = arguments
    return original(*tensors, replace(terms, smoothing=0.0))


@fault(
    "the second decoder layer ignores its mask",
    DecoderLayer,
    name="forward",
    caught_by=("mask-used", "causality"),
)
def unmasked_layer(original, self, x, memory, views, *rest, **named):
    own, cross = views
    if self.attention.context.layer:
        own = attention.AttentionContext(
            own.query_positions, own.key_positions, None, own.is_sampled
        )
    return original(self, x, memory, (own, cross), *rest, **named)
