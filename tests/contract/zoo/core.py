"""Faults of the core: while a check runs, one of its functions is replaced by a wrong function."""

from contextlib import contextmanager
from typing import ClassVar

import torch

from headtohead.model import attention, decoding_state
from headtohead.model.attention import MultiHeadAttention
from headtohead.model.blocks import DecoderLayer
from headtohead.model.builder import Builder
from headtohead.model.dropout import Dropout, DropoutRNG
from headtohead.model.layers import StackedEmbedding
from headtohead.model.transformer import Transformer
from headtohead.training.loop import StackTraining


class Fault:
    """A wrong function of the core: `wrong` returns the replacement of the original function."""

    config: ClassVar = {}
    caught_by = ()
    found_in = ""

    @classmethod
    @contextmanager
    def planted(cls):
        original = vars(cls.where)[cls.name] if isinstance(cls.where, type) else getattr(cls.where, cls.name)
        function = original.__func__ if isinstance(original, staticmethod) else original
        setattr(cls.where, cls.name, cls.wrong(function))
        try:
            yield
        finally:
            setattr(cls.where, cls.name, original)


class ValuesRotated(Fault):
    """values rotated, too"""

    found_in = "x-transformers, two years (#182)"
    where, name = MultiHeadAttention, "_project"
    caught_by = ("joint-shift",)
    config: ClassVar = {"positional": "rotary"}

    @staticmethod
    def wrong(original):
        def project(self, x, memory, context, cache, record=None):
            q, k, v = original(self, x, memory, context, cache, record)
            return q, k, self._rotate(v, context.key_positions, context) if self._rotates else v

        return project


class DoubledOnOnePath(Fault):
    """scale doubled on the explicit path only"""

    where, name = MultiHeadAttention, "_explicit"
    caught_by = ("parity", "weights-times-values")

    @staticmethod
    def wrong(original):
        return lambda self, q, k, v, context, record: original(self, 2 * q, k, v, context, record)


class TiledHeads(Fault):
    """key/value heads tiled instead of repeated"""

    found_in = "repeat for repeat_interleave in ports of grouped-query attention"
    where, name = MultiHeadAttention, "_repeat"
    caught_by = ("weights-times-values",)
    config: ClassVar = {"attention": "grouped-query"}

    @staticmethod
    def wrong(original):
        def tiled(self, x):
            geometry = self.context.geometry
            return x.repeat(1, 1, geometry.heads // geometry.kv_heads, 1, 1)

        return tiled


class LostGradient(Fault):
    """a member has no gradient"""

    where, name = MultiHeadAttention, "attend"
    caught_by = ("gradients",)

    @staticmethod
    def wrong(original):
        def attend(self, *arguments, **named):
            out = original(self, *arguments, **named)
            cut = self.context.role == "cross"
            return torch.cat([out[:1], out[1:].detach()]) if cut else out

        return attend


class SourceIgnored(Fault):
    """the decoder ignores the source"""

    where, name = MultiHeadAttention, "attend"
    caught_by = ("source-reaches-logits",)

    @staticmethod
    def wrong(original):
        def attend(self, x, memory, *rest):
            return original(self, x, None if memory is None else torch.ones_like(memory), *rest)

        return attend


class SwappedInputs(Fault):
    """encoder and decoder exchange their inputs"""

    found_in = "Keras' English-Spanish example (keras-io #1964)"
    where, name = Transformer, "hidden"
    caught_by = ("causality",)

    @staticmethod
    def wrong(original):
        def hidden(self, source, source_lengths, target, target_lengths):
            time = min(source.shape[-1], target.shape[-1])
            vocab_size = self.vocab_sizes.target
            out = original(self, target.clone(), target_lengths, source % vocab_size, source_lengths)
            return torch.nn.functional.pad(out[:, :, :time], (0, 0, 0, target.shape[-1] - time))

        return hidden


class RestartedCache(Fault):
    """positions restart in the cache"""

    where, name = Transformer, "_embed"
    caught_by = ("cached-decoding",)

    @staticmethod
    def wrong(original):
        def embed(self, ids, embedding, role, start, *more, **named):
            return original(self, ids, embedding, role, 0, *more, **named)

        return embed


class CausalCross(Fault):
    """cross-attention with the decoder's causal mask"""

    where, name = Transformer, "_cross_context"
    caught_by = ("mask-used",)

    @staticmethod
    def wrong(original):
        def context(self, queries, written, lengths, memory, memory_lengths):
            positions = (0, memory.shape[2])
            return self._attention_context("decoder", queries, positions, memory_lengths)

        return context


class DropoutInEvaluation(Fault):
    """dropout in evaluation"""

    where, name = Dropout, "is_active"
    caught_by = ("evaluation",)

    @staticmethod
    def wrong(original):
        return property(lambda self: bool(self.rate))


class SharedDropout(Fault):
    """dropout masks that depend on the stack"""

    where, name = DropoutRNG, "__init__"
    caught_by = ("stacking",)

    @staticmethod
    def wrong(original):
        def init(self, keys, device):
            original(self, [key + len(keys) for key in keys], device)

        return init


class CountsActiveSites(Fault):
    """only dropout sites with a non-zero rate are counted"""

    where, name = Builder, "dropout"
    caught_by = ("stacking",)

    @staticmethod
    def wrong(original):
        def dropout(self, where):
            site = original(self, where)
            self._sites -= not site.rate
            return site

        return dropout


class MissingBias(Fault):
    """bias missing on the fused path"""

    where, name = MultiHeadAttention, "_fused"
    caught_by = ("parity",)
    config: ClassVar = {"positional": "alibi"}

    @staticmethod
    def wrong(original):
        def fused(self, q, k, v, context):
            self._has_bias = False
            try:
                return original(self, q, k, v, context)
            finally:
                self._has_bias = True

        return fused


class SharedTable(Fault):
    """every member uses the first member's embeddings"""

    where, name = StackedEmbedding, "forward"
    caught_by = ("members",)

    @staticmethod
    def wrong(original):
        return lambda self, ids: torch.embedding(self.weight.flatten(0, 1), ids)


class LateCache(Fault):
    """the new key is missing from the cache"""

    where, name = attention.Cache, "append"
    caught_by = ("cached-decoding",)

    @staticmethod
    def wrong(original):
        def append(self, keys, values):
            original(self, keys, values)
            keys = self.keys.clone()
            keys[:, :, :, self.filled - 1 : self.filled] = 0
            return keys[:, :, :, : self.filled], self.values[:, :, :, : self.filled]

        return append


class CacheWithoutCausality(Fault):
    """a cache although the mask shows the future"""

    where, name = decoding_state, "is_causal"
    caught_by = ("greedy-decoding",)
    config: ClassVar = {"masking": "padding"}

    @classmethod
    @contextmanager
    def planted(cls):
        from headtohead.testing.invariants import decoding as invariant

        before = decoding_state.is_causal, invariant.is_causal
        decoding_state.is_causal = invariant.is_causal = lambda model: True
        try:
            yield
        finally:
            decoding_state.is_causal, invariant.is_causal = before


class RestartedOptimizer(Fault):
    """a resumed training with a new optimizer state"""

    where, name = StackTraining, "_resume"
    caught_by = ("resume",)

    @staticmethod
    def wrong(original):
        def resume(self):
            original(self)
            self.optimizer.optimizer.state.clear()

        return resume


class UnsmoothedLoss(Fault):
    """label smoothing missing from the loss"""

    where, name = None, "loss_gradients"
    caught_by = ("loss",)

    @classmethod
    @contextmanager
    def planted(cls):
        from headtohead.testing.invariants import arithmetic

        original = arithmetic.loss_gradients
        arithmetic.loss_gradients = lambda *arguments: original(*arguments[:-1], 0.0)
        try:
            yield
        finally:
            arithmetic.loss_gradients = original


class UnmaskedLayer(Fault):
    """the second decoder layer ignores its mask"""

    where, name = DecoderLayer, "forward"
    caught_by = ("mask-used", "causality")

    @staticmethod
    def wrong(original):
        def forward(self, x, memory, views, *rest, **named):
            own, cross = views
            if self.attention.context.layer:
                own = attention.AttentionContext(own.query_positions, own.key_positions, None, own.sampled_positions)
            return original(self, x, memory, (own, cross), *rest, **named)

        return forward


FAULTS = Fault.__subclasses__()
