"""Unusual entries without a fault: no invariant may report a violation."""

from typing import ClassVar

import torch
from torch.nn import functional

from headtohead.plugin import Masking, Positional
from headtohead_plugins.attention.split_heads import SplitHeads
from headtohead_plugins.positional.learned import Learned
from headtohead_plugins.positional.sinusoidal import Sinusoidal, sinusoids


class Cosine(SplitHeads):
    """cosines times a learned temperature"""

    def build(self):
        self.heat = self.parameter(self.context.geometry.heads, std=0.1, mean=3.0)

    def transform(self, q, k):
        heat = self.heat[:, None, :, None, None]
        return functional.normalize(q, dim=-1) * heat, functional.normalize(k, dim=-1)


class CosineOverTau(SplitHeads):
    """cosines over a learned tau of at least 0.01 that starts at 0.1, as Swin V2's"""

    def build(self):
        self.tau = self.parameter(self.context.geometry.heads, std=0.0, mean=0.1)

    def transform(self, q, k):
        tau = self.tau.clamp(min=0.01)[:, None, :, None, None]
        return functional.normalize(q, dim=-1) / tau, functional.normalize(k, dim=-1)


class Gaussian(SplitHeads):
    """scores by distance of query and key"""

    def scores(self, q, k, query_positions, key_positions):
        distance = q.unsqueeze(-2) - k.unsqueeze(-3)
        return -distance.square().sum(-1) * self.context.geometry.scale


class AdditiveScores(SplitHeads):
    """Bahdanau's: v · tanh(q + k)"""

    def build(self):
        self.v = self.parameter(self.context.geometry.key_width)

    def scores(self, q, k, query_positions, key_positions):
        both = (q.unsqueeze(-2) + k.unsqueeze(-3)).tanh()
        return (both * self.v[:, None, None, None, None]).sum(-1)


class OffByOneSoftmax(SplitHeads):
    """exp over one plus the sum: a row may sum to less than one"""

    weights = "positive"

    def normalise(self, scores, mask):
        top = scores.amax(-1, keepdim=True).clamp(min=0.0)
        powers = (scores - top).exp()
        return powers / (powers.sum(-1, keepdim=True) + (-top).exp())


class Unscaled(SplitHeads):
    """T5's: no scale, as declared"""

    temperature = None

    @classmethod
    def geometry(cls, options, model):
        from dataclasses import replace

        return replace(super().geometry(options, model), scale=1.0)


class Gated(SplitHeads):
    """a gate on the output of each head"""

    def build(self):
        self.gate = self.parameter(self.context.geometry.heads)

    def post_heads(self, heads, x, values):
        return heads * self.gate.sigmoid()[:, None, :, None, None]


class LearnedSlopes(Positional):
    """a trained slope per head"""

    properties = frozenset({"relative", "mirror-invariant", "falls-with-distance"})

    def build(self):
        self.raw = self.parameter(self.context.geometry.heads)

    def bias(self, query_positions, key_positions, role, layer):
        distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs()
        rate = functional.softplus(self.raw)[:, None, :, None, None]
        return -rate * distance[:, None]


class TrainedTable(Positional):
    """a table of 16 positions without incompatible_with"""

    def build(self):
        self.table = self.parameter(16, self.context.d_model, std=0.5)

    @classmethod
    def limit(cls, options):
        return 16

    def embed(self, positions, role):
        return self.table[:, positions]


class ScaledSinusoids(Sinusoidal):
    """sinusoids times a trained scalar"""

    def build(self):
        self.size = self.parameter(1, std=0.1, mean=1.0)

    def embed(self, positions, role):
        table = sinusoids(positions, self.context.d_model)
        return self.size[:, :, None, None] * table


class DirectionAware(Positional):
    """linear in the signed distance"""

    properties = frozenset({"relative"})

    def build(self):
        self.rates = self.parameter(2, self.context.geometry.heads)

    def bias(self, query_positions, key_positions, role, layer):
        distance = key_positions[:, None, :] - query_positions[:, :, None]
        ahead, behind = self.rates[:, :, None, :, None, None].unbind(1)
        return ahead * distance.clamp(min=0)[:, None] + behind * distance.clamp(max=0)[:, None]


class WellStarted(Learned):
    """a learned table initialised with sinusoids"""

    def build(self):
        super().build()
        start = sinusoids(torch.arange(128, device=self.table.device), self.context.d_model)
        self.table.data.copy_(start.expand_as(self.table))


class Dilated(Masking):
    """every second key, the query itself among them"""

    role_defaults: ClassVar = {"cross": "padding"}

    def role_properties(self, role):
        return frozenset({"hides-padding"} | ({"hides-future"} if role == "decoder" else set()))

    def mask(self, role, query_positions, key_positions, lengths):
        distance = query_positions[:, None] - key_positions[None, :]
        mask = distance % 2 == 0
        if role == "decoder":
            mask = mask & (distance >= 0)
        return mask.unsqueeze(0) & (key_positions[None, None, :] < lengths[:, None, None])


class Blocks(Masking):
    """blocks of four, without declared properties"""

    role_defaults: ClassVar = {"cross": "padding", "decoder": "padding-causal"}

    def mask(self, role, query_positions, key_positions, lengths):
        same = query_positions[:, None] // 4 == key_positions[None, :] // 4
        return same.unsqueeze(0) & (key_positions[None, None, :] < lengths[:, None, None])


SOUND = {
    "attention": (
        Cosine,
        CosineOverTau,
        Gaussian,
        AdditiveScores,
        OffByOneSoftmax,
        Unscaled,
        Gated,
    ),
    "positional": (LearnedSlopes, TrainedTable, ScaledSinusoids, DirectionAware, WellStarted),
    "masking": (Dilated, Blocks),
}
