"""Faults of the core itself: one function replaced by a wrong one while a check runs."""

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
    """One wrong function: ``wrong`` is given the right one and returns what stands in its place."""

    beside: ClassVar = {}
    caught_by = ()
    seen = ""

    @classmethod
    @contextmanager
    def planted(cls):
        right = vars(cls.where)[cls.name] if isinstance(cls.where, type) else getattr(cls.where, cls.name)
        plain = right.__func__ if isinstance(right, staticmethod) else right
        setattr(cls.where, cls.name, cls.wrong(plain))
        try:
            yield
        finally:
            setattr(cls.where, cls.name, right)


class ValuesRotated(Fault):
    """values rotated too"""

    seen = "x-transformers, two years (#182)"
    where, name = MultiHeadAttention, "_project"
    caught_by = ("joint-shift",)
    beside: ClassVar = {"positional": "rotary"}

    @staticmethod
    def wrong(right):
        def project(self, x, memory, view, cache, record=None):
            q, k, v = right(self, x, memory, view, cache, record)
            return q, k, self._rotate(v, view.key_positions, view) if self._rotates else v

        return project


class DoubledOnOnePath(Fault):
    """scale doubled on the explicit path alone"""

    where, name = MultiHeadAttention, "_explicit"
    caught_by = ("parity", "weights-act")

    @staticmethod
    def wrong(right):
        return lambda self, q, k, v, view, record: right(self, 2 * q, k, v, view, record)


class TiledHeads(Fault):
    """key/value heads mapped wrongly: tiled in place of repeated"""

    seen = "repeat for repeat_interleave in ports of grouped-query attention"
    where, name = MultiHeadAttention, "_repeat"
    caught_by = ("weights-act",)
    beside: ClassVar = {"attention": "grouped-query"}

    @staticmethod
    def wrong(right):
        def tiled(self, x):
            geometry = self.context.geometry
            return x.repeat(1, 1, geometry.heads // geometry.kv_heads, 1, 1)

        return tiled


class LostGradient(Fault):
    """no gradient reaches a member"""

    where, name = MultiHeadAttention, "attend"
    caught_by = ("gradients",)

    @staticmethod
    def wrong(right):
        def attend(self, *arguments, **named):
            out = right(self, *arguments, **named)
            cut = self.context.role == "cross"
            return torch.cat([out[:1], out[1:].detach()]) if cut else out

        return attend


class DeafDecoder(Fault):
    """the decoder does not hear the source"""

    where, name = MultiHeadAttention, "attend"
    caught_by = ("hears-source",)

    @staticmethod
    def wrong(right):
        def attend(self, x, memory, *rest):
            return right(self, x, None if memory is None else torch.ones_like(memory), *rest)

        return attend


class SwappedInputs(Fault):
    """encoder and decoder exchange their inputs"""

    seen = "Keras' English-Spanish example (keras-io #1964)"
    where, name = Transformer, "hidden"
    caught_by = ("causality",)

    @staticmethod
    def wrong(right):
        def hidden(self, source, source_lengths, target, target_lengths):
            least = min(source.shape[-1], target.shape[-1])
            words = self.vocab_sizes.target
            out = right(self, target.clone(), target_lengths, source % words, source_lengths)
            return torch.nn.functional.pad(out[:, :, :least], (0, 0, 0, target.shape[-1] - least))

        return hidden


class RestartedCache(Fault):
    """positions restarted in the cache"""

    where, name = Transformer, "_embed"
    caught_by = ("cached-decoding",)

    @staticmethod
    def wrong(right):
        def embed(self, ids, embedding, role, start, *more, **named):
            return right(self, ids, embedding, role, 0, *more, **named)

        return embed


class CausalCross(Fault):
    """cross role given the decoder's causal mask"""

    where, name = Transformer, "_cross_context"
    caught_by = ("mask-used",)

    @staticmethod
    def wrong(right):
        def view(self, queries, written, lengths, memory, memory_lengths):
            places = (0, memory.shape[2])
            return self._attention_context("decoder", queries, places, memory_lengths)

        return view


class DropsWhileEvaluating(Fault):
    """dropout in evaluation"""

    where, name = Dropout, "is_active"
    caught_by = ("evaluation",)

    @staticmethod
    def wrong(right):
        return property(lambda self: bool(self.rate))


class DropsAsOne(Fault):
    """dropout drawn for a stack as a whole"""

    where, name = DropoutRNG, "__init__"
    caught_by = ("stacking",)

    @staticmethod
    def wrong(right):
        def init(self, keys, device):
            right(self, [key + len(keys) for key in keys], device)

        return init


class PlacesThatAct(Fault):
    """only the places whose rate is not zero counted"""

    where, name = Builder, "dropout"
    caught_by = ("stacking",)

    @staticmethod
    def wrong(right):
        def dropout(self, where):
            place = right(self, where)
            self._sites -= not place.rate
            return place

        return dropout


class ForgottenBias(Fault):
    """bias forgotten on the fused path"""

    where, name = MultiHeadAttention, "_fused"
    caught_by = ("parity",)
    beside: ClassVar = {"positional": "alibi"}

    @staticmethod
    def wrong(right):
        def fused(self, q, k, v, view):
            self._has_bias = False
            try:
                return right(self, q, k, v, view)
            finally:
                self._has_bias = True

        return fused


class SharedTable(Fault):
    """every member reads the first one's words"""

    where, name = StackedEmbedding, "forward"
    caught_by = ("members",)

    @staticmethod
    def wrong(right):
        return lambda self, ids: torch.embedding(self.weight.flatten(0, 1), ids)


class LateCache(Fault):
    """the cache is read before the new key is written"""

    where, name = attention.Cache, "append"
    caught_by = ("cached-decoding",)

    @staticmethod
    def wrong(right):
        def append(self, keys, values):
            right(self, keys, values)
            kept = self.keys.clone()
            kept[:, :, :, self.filled - 1 : self.filled] = 0
            return kept[:, :, :, : self.filled], self.values[:, :, :, : self.filled]

        return append


class UncachedPeek(Fault):
    """a cache where the future is seen"""

    where, name = decoding_state, "is_causal"
    caught_by = ("greedy-decoding",)
    beside: ClassVar = {"masking": "padding"}

    @classmethod
    @contextmanager
    def planted(cls):
        from headtohead.testing.invariants import decoding as asked

        before = decoding_state.is_causal, asked.is_causal
        decoding_state.is_causal = asked.is_causal = lambda model: True
        try:
            yield
        finally:
            decoding_state.is_causal, asked.is_causal = before


class ForgottenMoments(Fault):
    """a resumed training that begins its optimizer anew"""

    where, name = StackTraining, "_resume"
    caught_by = ("resume",)

    @staticmethod
    def wrong(right):
        def resume(self):
            right(self)
            self.optimizer.optimizer.state.clear()

        return resume


class SummedLoss(Fault):
    """label smoothing forgotten in the loss"""

    where, name = None, "token_losses"
    caught_by = ("loss",)

    @classmethod
    @contextmanager
    def planted(cls):
        from headtohead.testing.invariants import loss

        right = loss.token_losses
        loss.token_losses = lambda logits, labels, smoothing: right(logits, labels, 0.0)
        try:
            yield
        finally:
            loss.token_losses = right


class SkippedCrossLayer(Fault):
    """the second decoder layer forgets its mask"""

    where, name = DecoderLayer, "forward"
    caught_by = ("mask-used", "causality")

    @staticmethod
    def wrong(right):
        def forward(self, x, memory, views, *rest, **named):
            own, cross = views
            if self.attention.context.layer:
                own = attention.AttentionContext(own.query_positions, own.key_positions, None, own.sampled_positions)
            return right(self, x, memory, (own, cross), *rest, **named)

        return forward


FAULTS = [
    one for one in list(globals().values()) if isinstance(one, type) and issubclass(one, Fault) and one is not Fault
]
