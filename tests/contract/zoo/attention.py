"""Attention styles with a single fault each: the docstring names it, `caught_by` the invariants that detect it."""

import re
from typing import ClassVar

import torch
from torch.nn import functional

from headtohead.plugin import Attention, Geometry, hookimpl
from headtohead_plugins.attention.random import Random
from headtohead_plugins.attention.sigmoid import Sigmoid
from headtohead_plugins.attention.split_heads import SplitHeads
from headtohead_plugins.attention.uniform import Uniform


class LeakingMembers(SplitHeads):
    """queries of a member include those of the adjacent member"""

    caught_by = ("members", "stacking")

    def transform(self, q, k):
        return q + 1e-3 * q.roll(1, dims=0), k


class LeakingSentences(SplitHeads):
    """batch-dependent output: queries include those of the adjacent sentence"""

    caught_by = ("batch-of-one",)

    def transform(self, q, k):
        return q + 1e-3 * q.roll(1, dims=1), k


class BatchNormalised(SplitHeads):
    """queries normalised over the batch"""

    caught_by = ("batch-of-one",)
    config: ClassVar = {"masking": "none"}

    def transform(self, q, k):
        return q - q.mean(1, keepdim=True), k


class OverQueries(SplitHeads):
    """normalised over the wrong axis: queries"""

    caught_by = ("rows-sum-to-one", "causality")

    def normalise(self, scores, mask):
        return torch.softmax(scores, dim=-2)


class OverHeads(SplitHeads):
    """normalised over the wrong axis: heads"""

    caught_by = ("rows-sum-to-one",)

    def normalise(self, scores, mask):
        return torch.softmax(scores, dim=2).nan_to_num()


class NegativeWeights(SplitHeads):
    """negative weights that the style does not declare"""

    caught_by = ("rows-sum-to-one",)

    def normalise(self, scores, mask):
        weights = super().normalise(scores, mask)
        return 2 * weights - weights.roll(1, dims=-1)


class SelfOnly(SplitHeads):
    """every token attends to itself only"""

    caught_by = ("mask-obeyed", "target-reaches-logits")

    def normalise(self, scores, mask):
        weights = super().normalise(scores, mask)
        queries, keys = scores.shape[-2:]
        alone = torch.eye(queries, dtype=scores.dtype, device=scores.device)
        return alone + 0 * weights if queries == keys else weights


class Unscaled(SplitHeads):
    """scale missing on both paths"""

    caught_by = ("temperature",)

    @classmethod
    def geometry(cls, options, model):
        width = model.d_model // model.heads
        return Geometry(model.heads, model.heads, width, width, 1.0)


class DoublyScaled(SplitHeads):
    """scale doubled: 1 / d_k"""

    caught_by = ("temperature",)

    @classmethod
    def geometry(cls, options, model):
        width = model.d_model // model.heads
        return Geometry(model.heads, model.heads, width, width, 1 / width)


class ScaledByModel(SplitHeads):
    """scale by the model's width instead of the head's"""

    found_in = "hand-written attentions that divide by sqrt(d_model)"
    caught_by = ("temperature",)

    @classmethod
    def geometry(cls, options, model):
        width = model.d_model // model.heads
        return Geometry(model.heads, model.heads, width, width, model.d_model**-0.5)


class UnscaledScores(SplitHeads):
    """custom scores without the scale"""

    caught_by = ("temperature",)

    def scores(self, q, k, query_positions, key_positions):
        return q @ k.transpose(-2, -1)


class MaskedToZero(SplitHeads):
    """masked scores set to 0 instead of -inf"""

    caught_by = ("masked-keys", "causality", "pad-content")

    def normalise(self, scores, mask):
        return torch.softmax(scores.masked_fill(scores.isinf(), 0.0), dim=-1)


class MaskedAfterwards(SplitHeads):
    """weights masked after the softmax and not normalised again"""

    caught_by = ("rows-sum-to-one",)

    def normalise(self, scores, mask):
        weights = torch.softmax(scores.masked_fill(scores.isinf(), 0.0), dim=-1)
        return weights if mask is None else weights * mask


class NotANumber(SplitHeads):
    """softmax of a fully masked row: NaN"""

    found_in = "explicit softmax over -inf"
    caught_by = ("masked-rows",)

    def normalise(self, scores, mask):
        return torch.softmax(scores, dim=-1)


class Overflowing(SplitHeads):
    """softmax without subtracting the largest score"""

    caught_by = ("finite",)

    def normalise(self, scores, mask):
        powers = scores.exp()
        return powers / powers.sum(-1, keepdim=True).clamp(min=1e-30)


class AlwaysDropping(SplitHeads):
    """dropout in evaluation"""

    caught_by = ("determinism", "stateless")

    def mix(self, weights):
        return functional.dropout(weights, 0.1, training=True)


class GlobalDropout(SplitHeads):
    """dropout from torch's global generator"""

    caught_by = ("stacking",)

    def mix(self, weights):
        return functional.dropout(weights, 0.1, training=self.training)


class DetachedWeights(SplitHeads):
    """queries and keys have no gradient"""

    caught_by = ("gradients",)

    def mix(self, weights):
        return weights.detach()


class HalfDetached(SplitHeads):
    """gradient of the softmax's denominator missing"""

    caught_by = ("derivative",)

    def normalise(self, scores, mask):
        weights = super().normalise(scores, mask)
        return weights * (weights / weights.clamp(min=1e-9)).detach() + 0.3 * (weights.detach() - weights)


class SinkInPlace(SplitHeads):
    """in-place change of the mask"""

    caught_by = ("stateless",)

    def normalise(self, scores, mask):
        if mask is not None:
            mask[..., 0] = True
        return super().normalise(scores, mask)


class NormOverTime(SplitHeads):
    """outputs of heads normalised over time"""

    caught_by = ("causality", "pad-columns")

    def post_heads(self, heads):
        return heads - heads.mean(-2, keepdim=True)


class QueriesLate(SplitHeads):
    """queries off by one position"""

    caught_by = ("causality", "cached-decoding")

    def transform(self, q, k):
        return q.roll(1, dims=-2), k


class KeysLate(SplitHeads):
    """keys off by one position relative to their values"""

    caught_by = ("mask-obeyed", "cached-decoding")

    def transform(self, q, k):
        return q, k.roll(1, dims=-2)


class Gain(SplitHeads):
    """a gain for each head, without a fault"""

    def build(self):
        self.gain = self.parameter(self.context.geometry.heads, std=0.1, mean=1.0)

    def transform(self, q, k):
        return q * self.gain[:, None, :, None, None], k


class IdleGain(Gain):
    """parameter never used"""

    caught_by = ("gradients",)

    def transform(self, q, k):
        return q, k


class FirstHeadsGain(Gain):
    """a gain for each head, but every head uses the first"""

    caught_by = ("gradients",)

    def transform(self, q, k):
        return q * self.gain[:, :1, None, None, None].transpose(1, 2), k


class AverageGain(Gain):
    """gain averaged over members"""

    caught_by = ("members",)

    def transform(self, q, k):
        return q * self.gain.mean(0)[:, None, None], k


class UnseededGain(Gain):
    """initialised from torch's global generator"""

    caught_by = ("determinism", "stateless")

    def build(self):
        self.gain = self.parameter(self.context.geometry.heads, init=lambda out, generator: out.normal_(1.0, 0.1))


class SingleConstant(SplitHeads):
    """float32 constant in a float64 model"""

    caught_by = ("precision",)

    def mix_scores(self, scores):
        return scores * torch.tensor(0.9, device=scores.device)


class SingleScores(SplitHeads):
    """scores converted to float32 and back"""

    found_in = "softmax in float32 whatever the model's precision"
    caught_by = ("precision",)

    def mix_scores(self, scores):
        return scores.float().to(scores.dtype)


class Doubles(SplitHeads):
    """a float64 constant that a float32 model cannot multiply"""

    caught_by = ("any-device",)

    def mix_scores(self, scores):
        return scores * torch.full((1,), 0.9, dtype=torch.float64, device=scores.device)


class LeftBehind(SplitHeads):
    """a constant that is not moved with the model's device"""

    caught_by = ("any-device",)

    def mix_scores(self, scores):
        heads = self.context.geometry.heads
        return scores * torch.linspace(0.9, 1.1, heads).to(scores.dtype)[:, None, None]


class WrongFastPath(SplitHeads):
    """a fast path that ignores the mask"""

    caught_by = ("parity",)

    def normalise(self, scores, mask):
        kept = scores if mask is None else torch.where(mask, scores, 0.0)
        return kept / scores.shape[-1]

    weights = "signed"

    def fast_path(self, q, k, v, mask, may_attend):
        read = q @ (k.transpose(-2, -1) @ v)
        return read * self.context.geometry.scale / k.shape[-2]


class UndeclaredSigmoid(Sigmoid):
    """declares that its weights are a distribution"""

    caught_by = ("rows-sum-to-one",)
    weights = "distribution"


class UndeclaredPositions(Random):
    """scores depend on positions, undeclared"""

    caught_by = ("positions-act", "source-order")
    config: ClassVar = {"positional": "none"}
    position_dependent = False


class ClampedRandom(Random):
    """positions clamped to the table instead of an error"""

    caught_by = ("limit",)

    def scores(self, q, k, query_positions, key_positions):
        most = self.table.shape[-1] - 1
        rows, columns = query_positions.clamp(max=most)[0], key_positions.clamp(max=most)[0]
        return self.table[:, :, rows][..., columns].unsqueeze(1)


class DropsBias(Uniform):
    """an encoding's bias ignored"""

    caught_by = ("positions-act",)
    config: ClassVar = {"positional": "alibi"}

    def normalise(self, scores, mask):
        return super().normalise(torch.where(scores.isinf(), scores, 0.0), mask)


class RunningMean(SplitHeads):
    """running statistics updated in evaluation"""

    caught_by = ("stateless",)

    def build(self):
        self.mean = self.buffer(self.context.geometry.key_width, std=0.0)

    def transform(self, q, k):
        mean = k.detach().flatten(1, 3).mean(1)
        self.mean.lerp_(mean, 0.1)
        return q, k - self.mean[:, None, None, None]


class FirstKeys(SplitHeads):
    """state kept between calls: the first sentence's keys"""

    caught_by = ("stateless",)

    def transform(self, q, k):
        known = getattr(self, "known", None)
        if known is None or known.shape != k.shape:
            self.known = known = k.detach()
        return q, 0.9 * k + 0.1 * known


class SoftmaxTwice(SplitHeads):
    """softmax of the softmax"""

    caught_by = ("masked-keys",)

    def normalise(self, scores, mask):
        return torch.softmax(super().normalise(scores, mask), dim=-1)


class Relu(SplitHeads):
    """weights that are zero at a visible key"""

    caught_by = ("mask-obeyed",)

    def normalise(self, scores, mask):
        weights = super().normalise(scores, mask)
        kept = torch.where(weights >= weights.amax(-1, keepdim=True), weights, 0.0)
        return kept / kept.sum(-1, keepdim=True).clamp(min=1e-9)


class NormalisedAcrossMembers(SplitHeads):
    """heads normalised across members"""

    caught_by = ("members",)

    def post_heads(self, heads):
        return heads / heads.abs().amax(0, keepdim=True).clamp(min=1e-3)


@hookimpl
def register_attentions():
    return {
        re.sub("(?<!^)(?=[A-Z])", "-", entry.__name__).lower(): entry
        for entry in list(globals().values())
        if isinstance(entry, type) and issubclass(entry, Attention) and "caught_by" in vars(entry)
    }
